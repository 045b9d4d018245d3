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


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that leads from the graph to an answer of a question, and the facts that it follows there."""

    rule: int
    """Its number in the bank, from 0."""
    documents: tuple[str, ...]
    """External ids of the facts in the graph's corpus, in the graph's order."""


class FactQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a question asks of a graph: the other end of the facts that one entity has of one relation.

    A question of other origin may name its relation alone.
    """

    relation: str
    entity: str = ""
    """The end that the question names; "": not said."""
    side: Literal["object", "subject"] = "object"
    """The end that it asks for."""
    time: str | None = None
    """When the facts hold that are asked for; only earlier ones are known."""
    bank: str = ""
    """Hash of the rule bank whose rules are numbered in `leads`, in hex; "": none."""
    leads: tuple[Lead, ...] = ()
