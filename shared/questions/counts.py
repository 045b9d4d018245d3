"""Counts of what a question set contains and of what was left out."""

import msgspec


class LeftOut(msgspec.Struct, kw_only=True):
    """Why there are fewer questions than the held-out facts have ends."""

    repeated: int = 0
    """Facts that the upload has already contained."""
    known: int = 0
    """Facts that the graph has, at the same time where there are times."""
    unknown_relation: int = 0
    """Facts of a relation that the graph does not have."""
    unknown_entity: int = 0
    """Questions about an entity that the graph does not have."""
    many_answers: int = 0
    """Questions with more than 1,000 answers (`ANSWERS`)."""
    answered: int = 0
    """Questions that a fact of the graph answers, if the choice is `unanswered`."""
    long: int = 0
    """Questions of more characters than an item may have."""


class Counts(msgspec.Struct, kw_only=True):
    """Counts questions; only `answers` counts something else."""

    available: int = 0
    """Questions before the limit is applied."""
    answers: int = 0
    """Answers of all questions together."""
    answered_by_graph: int = 0
    """Questions with a further answer that a fact of the graph gives (at the same time, if there are times)."""
    unnamed_answers: int = 0
    """Questions whose answers are all missing from the graph's entities."""
    not_after_graph: int = 0
    """Questions whose time is not after the graph's last fact, so that the corpus contains later facts."""
    with_leads: int = 0
    """Questions with a rule that leads to an answer."""
    with_documents: int = 0
    """Questions with gold documents."""
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
