"""Figures that RuleRAG's authors report for DPR and LLaMA2-7B on their five question sets (Hu et al. 2024)."""

from typing import NamedTuple


class Published(NamedTuple):
    """Figures of one question set, in percent. The sets are not public, so none of ours equals one of them."""

    title: str
    recall: tuple[float, float, float]
    """R@10 of standard retrieval, of RuleRAG-ICL and of RuleRAG-FT."""
    exact: tuple[float, float, float]
    """Exact match of the same three systems."""


PUBLISHED = (
    Published("RuleQA-I (ICEWS14)", (14.1, 24.2, 45.1), (5.2, 9.8, 20.5)),
    Published("RuleQA-Y (YAGO)", (3.8, 6.6, 55.7), (2.6, 6.1, 44.6)),
    Published("RuleQA-W (WIKI)", (7.4, 22.6, 49.9), (4.8, 12.7, 41.6)),
    Published("RuleQA-F (FB15K-237)", (18.9, 29.9, 95.1), (11.0, 19.0, 34.9)),
    Published("RuleQA-N (NELL-995)", (19.3, 26.5, 92.5), (9.8, 15.2, 42.0)),
)
