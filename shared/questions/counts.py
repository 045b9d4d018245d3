"""What a question set holds, and what was left out of it."""

import msgspec


class LeftOut(msgspec.Struct, kw_only=True):
    """Why there are fewer questions than the held-out facts have ends."""

    repeated: int = 0
    """Facts that the upload holds before."""
    known: int = 0
    """Facts that the graph has, at the same time where there are times."""
    unknown_relation: int = 0
    """Facts of a relation that the graph does not have."""
    unknown_entity: int = 0
    """Questions about an entity that the graph does not have."""
    many_answers: int = 0
    """Questions with more than 1,000 answers."""
    answered: int = 0
    """Questions that a fact of the graph answers, where these are not wanted."""
    long: int = 0
    """Questions of more characters than an item may have."""


class Counts(msgspec.Struct, kw_only=True):
    """Questions, but for `answers`."""

    available: int = 0
    """Before the limit."""
    answers: int = 0
    """Of all questions together."""
    answered_by_graph: int = 0
    """With a further answer that a fact of the graph gives (at the same time, where there are times)."""
    unnamed_answers: int = 0
    """Without an answer that the graph names."""
    not_after_graph: int = 0
    """Whose time is not after the graph's last fact: its corpus tells of what is later."""
    with_leads: int = 0
    """To which a rule leads."""
    with_documents: int = 0
    """With gold documents."""
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
