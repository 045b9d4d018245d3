"""Knowledge graphs as they are uploaded: facts, and phrases that make sentences of them."""

from typing import Literal

import msgspec

TimeUnit = Literal["day", "step"]
"""What the times of a graph count: days (of the proleptic Gregorian calendar, from 1), or steps of the file's own."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """That a relation holds between two entities, at a time where the graph has times."""

    subject: str
    relation: str
    object: str
    time: str | None = None
    """A date (YYYY-MM-DD) or a whole number."""


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
    """The words for a relation in sentences."""

    relation: str
    phrase: str
    inverse: str | None = None
    """The words where subject and object are exchanged; None: made of `phrase`."""
