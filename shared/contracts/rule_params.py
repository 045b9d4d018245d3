"""Parameters of rule-guided retrieval (RuleRAG, Hu et al. 2024; docs/how-to/rulerag.md)."""

from typing import Annotated, Literal

import msgspec

from shared.contracts.calls import Decoding
from shared.contracts.mining import Count, Share


class RuleragParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule-guided retrieval and answering (seed document 002). The authors give no numbers but 10 documents for each
    rule."""

    most: Annotated[int, msgspec.Meta(ge=0, le=20)] = 3
    """Maximum number of rules for a question; 0: no rules are looked for."""
    confidence: Share = 0.0
    """Minimum certainty of a rule: its PCA confidence if it has one, or else its standard confidence."""
    support: Count = 1
    """Minimum support of a rule."""
    order: Literal["best", "worst", "random"] = "best"
    """`best`: the most certain rules of the relation; `worst`: the least certain; `random`: any rules of the bank. The
    last two are for ablations."""
    use: Literal["both", "retrieval", "generation"] = "both"
    """What the rules guide: searches, the prompt, or both."""
    index: Literal["dense", "sparse", "both"] = "both"
    """Index to search; `both`: the lists of each search are fused."""
    ask: bool = True
    """Whether the judge model is asked for the relation if neither the item nor a phrase names it; set to false at
    submission if there is no judge model."""
    query: Literal["joined", "rewritten"] = "joined"
    """Query for a rule: question and rule joined, or rewritten by the judge model."""
    cot: bool = False
    """Whether the generator is asked to name rule and document before it answers."""
    width: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """Documents of a search from which the next atom of a rule is searched; 0: a rule is searched by its query alone,
    as the authors do."""
    phrases: str = ""
    """SHA-256 of the relation phrases of the corpus's graph; set at submission."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=128)
    """How the judge model samples when it names the relation or rewrites a query."""
