"""Rules over graphs, as miners find them, banks store them and pipelines follow them."""

from typing import Literal

import msgspec

Term = int | str
"""A variable by its number, or the name of an entity.

Variables 0 and 1 are the head's; further ones count from 2 in the order in which the body names them. The head of a
static rule is `relation(0, 1)`. A temporal rule leads from 0 to 1: its head is `relation(0, 1)` where it predicts
objects, and `relation(1, 0)`, an inverse relation, where it predicts subjects; with a constant, `relation(0, "c")`
predicts the object and `relation("c", 0)` the subject c, and `relation(1, "c")` predicts the subject that c is asked
for.
"""
Miner = Literal["amie", "tlogic", "temporal-simple", "anyburl"]
"""The miner that found a rule; it defines the meaning of the rule's figures. This release mines with the first two;
`temporal-simple` and `anyburl` are those of banks of earlier releases."""
TEMPORAL: frozenset[Miner] = frozenset({"tlogic", "temporal-simple"})
"""Miners whose bodies are ordered in time, and whose rules predict one end of their head."""


class Atom(msgspec.Struct, frozen=True, array_like=True):
    """States that a relation holds between two terms. An inverse relation is the relation with its terms exchanged."""

    relation: str
    subject: Term
    object: Term


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """States that `body` leads to `head`. Atoms of a temporal body are in the order of their times, all before the
    head's."""

    head: Atom
    body: tuple[Atom, ...]
    support: int
    """How often body and head both hold, as distinct pairs (AMIE), or as bodies that the head follows (TLogic)."""
    body_size: int
    """How often the body holds, counted in the same way."""
    confidence: float
    """Standard confidence: `support` / `body_size`, as the miner rounds it."""
    head_coverage: float | None = None
    """`support` divided by the number of facts of the head's relation."""
    pca_confidence: float | None = None
    """`support` / `pca_body_size` (Galárraga et al. 2013)."""
    pca_body_size: int | None = None
    """How often the body holds where `functional` has a fact of the head's relation."""
    functional: int | None = None
    """The variable of the head's functional side: 0 or 1."""
    kind: str = ""
    """Type of a rule of `temporal-simple`."""
    curve: tuple[float, ...] = ()
    """Coefficients of the confidence over time, of a rule of `temporal-simple`."""

    @property
    def certainty(self) -> float:
        """Return the figure by which rules are chosen: the PCA confidence if there is one, or else the standard
        confidence."""
        return self.confidence if self.pca_confidence is None else self.pca_confidence
