"""What a dataset holds."""

import msgspec

from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery


class DatasetItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question. A field with a default is not hashed while it has it: datasets stored before keep their hash."""

    question: str
    gold: str | None
    """The expected answer; None where the dataset has none."""
    gold_documents: dict[str, int] | None
    """External id of a corpus document -> grade (1 where ungraded); None: unknown."""
    subject: str | None
    level: str | None
    custom_id: str | None
    alternatives: int = 0
    """Further expected answers of an item that was stored before these were kept: it is graded against `gold` alone."""
    expected: Expected | None = None
    """Further gold answers, choices, a rubric; None: none of them."""
    query: FactQuery | None = None
    """What it asks of a graph; None: not said."""
