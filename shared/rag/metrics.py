"""Measure ranked lists by relevance judgements with trec_eval's measures (`ir-measures`), query by query."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from mathrag.errors import Invalid

Judged = Mapping[str, Mapping[str, int]]
"""Query -> {relevant document: grade}; grades are at least 1, other documents are not relevant."""
Run = Mapping[str, Sequence[str]]
"""Query -> documents, best first, each once."""

_NAME = re.compile(r"(nDCG|Recall|Precision|F1)@([1-9]\d{0,3})|(MAP|MRR)(?:@([1-9]\d{0,3}))?")
_MEASURES = {"nDCG": "nDCG", "Recall": "R", "Precision": "P", "MAP": "AP", "MRR": "RR"}
_PARTS = ("Precision", "Recall")
"""What F1 is made of."""


def get_cutoff(name: str) -> int | None:
    """Return how many documents of a list the measure `name` uses; None means all.

    Raises:
        Invalid: the measure does not exist.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        hint = "write nDCG@10, Recall@100, Precision@10, F1@10, MAP, MAP@100, MRR or MRR@10"
        raise Invalid(f"unknown measure {name!r}", hint=hint)
    depth = found[2] or found[4]
    return int(depth) if depth else None


def measure_per_query(judged: Judged, run: Run, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return {query: {name: value in [0, 1]}} for every query of `judged`, in its order.

    A query that `run` does not answer counts 0. A query without a relevant document has no recall: leave it out of
    `judged`. nDCG has linear gains and log2 discounts, precision divides by the cutoff also where fewer were found, and
    F1 is each query's harmonic mean of the two at the cutoff (not ir-measures' SetF, which knows none).

    Raises:
        Invalid: the measure does not exist.
    """
    import ir_measures

    needed: dict[str, None] = {}
    for name in names:
        family, _, depth = name.partition("@")
        needed |= dict.fromkeys([f"{part}@{depth}" for part in _PARTS] if family == "F1" else [name])
    measures = {_parse(name): name for name in needed}
    # trec_eval sorts by score and breaks ties by its own rule: falling whole numbers leave it none to break.
    scored = {query: dict(zip(found, range(len(found), 0, -1), strict=True)) for query, found in run.items()}
    values: dict[str, dict[str, float]] = {query: {} for query in judged}
    for each in ir_measures.iter_calc(list(measures), judged, scored):
        values[each.query_id][measures[each.measure]] = float(each.value)
    return {query: {name: _get_value(name, found) for name in names} for query, found in values.items()}


def _get_value(name: str, found: Mapping[str, float]) -> float:
    family, _, depth = name.partition("@")
    if family != "F1":
        return found[name]
    precision, recall = (found[f"{part}@{depth}"] for part in _PARTS)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@cache
def _parse(name: str) -> Any:
    """Return the measure of ir-measures."""
    from ir_measures import parse_measure  # a tenth of a second, and most processes never need it

    get_cutoff(name)
    family, at, depth = name.partition("@")
    return parse_measure(f"{_MEASURES[family]}{at}{depth}")
