"""Parameters of rule-guided retrieval (RuleRAG, Hu et al. 2024; docs/rulerag.md)."""

from typing import Annotated, Literal

import msgspec

from shared.contracts.calls import Decoding
from shared.contracts.mining import Count, Share


class RuleragParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule-guided retrieval and answering (seed document 002); the authors give no number but 10 documents a rule."""

    most: Annotated[int, msgspec.Meta(ge=0, le=20)] = 3
    """Most rules of a question; 0: none are looked for."""
    confidence: Share = 0.0
    """Lowest certainty of a rule: PCA confidence where it has one, else standard confidence."""
    support: Count = 1
    """Lowest support of a rule."""
    order: Literal["best", "worst", "random"] = "best"
    """`worst`: the least certain rules of the relation; `random`: any rules of the bank. Both are for ablations."""
    use: Literal["both", "retrieval", "generation"] = "both"
    """Where rules guide: searches, the prompt, or both."""
    index: Literal["dense", "sparse", "both"] = "both"
    """Which index is searched; `both`: the lists of each search are fused."""
    ask: bool = True
    """Whether the judge model is asked for the relation of a question that no item and no phrase names; set to false at
    submission where there is no judge model."""
    query: Literal["joined", "rewritten"] = "joined"
    """What is searched for a rule: question and rule, or what the judge model makes of them."""
    cot: bool = False
    """Whether the generator is asked to name rule and document before it answers."""
    width: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """Documents of a search from which the next atom of a rule is searched on; 0: a rule is searched for by its query
    alone, as the authors do."""
    phrases: str = ""
    """SHA-256 of the relation phrases of the corpus's graph; filled in at submission."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=128)
    """Of the judge model, where it names the relation or rewrites a query."""
