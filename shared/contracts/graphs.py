"""Knowledge graphs as they are uploaded: facts, and phrases to make sentences of them."""

from typing import Literal

import msgspec

TimeUnit = Literal["day", "step"]
"""Unit of a graph's times: days (of the proleptic Gregorian calendar, from 1), or the steps of the uploaded file."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """States that a relation holds between two entities, at a time if the graph has times."""

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
    """The words for the relation with subject and object exchanged; None: derived from `phrase`."""


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that leads from the graph to an answer of a question, and the facts that it follows to get there."""

    rule: int
    """Number of the rule in the bank, from 0."""
    documents: tuple[str, ...]
    """External ids of the facts in the graph's corpus, in the order of the graph."""


class FactQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a question asks of a graph: the other end of the facts that one entity has of one relation.

    A question that was not made from a graph may name only its relation.
    """

    relation: str
    entity: str = ""
    """Entity that the question names; "": unknown."""
    side: Literal["object", "subject"] = "object"
    """The end that the question asks for."""
    time: str | None = None
    """Time of the facts that the question asks for; only earlier facts are known."""
    bank: str = ""
    """Hash, in hex, of the rule bank that numbers the rules in `leads`; "": none."""
    leads: tuple[Lead, ...] = ()
