"""The items of a dataset, as they are stored."""

import msgspec

from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery


class DatasetItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question. Fields with their default value are not hashed, so that datasets from before a field keep their
    hash."""

    question: str
    gold: str | None
    """Expected answer; None if the dataset has none."""
    gold_documents: dict[str, int] | None
    """Maps external ids of corpus documents to grades (1 where ungraded); None if they are unknown."""
    subject: str | None
    level: str | None
    custom_id: str | None
    alternatives: int = 0
    """Number of other expected answers of an item from before these were stored; the item is graded against `gold`
    alone."""
    expected: Expected | None = None
    """Other gold answers, choices, a rubric; None if there are none."""
    query: FactQuery | None = None
    """What the question asks of a graph; None if unknown."""
