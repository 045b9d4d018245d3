"""Links as atoms, and back."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.contracts.rules import Atom, Term


class Names(NamedTuple):
    """What a graph's numbers are called."""

    entities: Sequence[str]
    relations: Sequence[str]

    def atom(self, link: int, source: Term, target: Term) -> Atom:
        """That a link leads from one term to another."""
        relation = self.relations[link // 2]
        return Atom(relation, target, source) if link % 2 else Atom(relation, source, target)


def link_of(atom: Atom, source: Term, relations: Mapping[str, int]) -> int | None:
    """The link that leads from `source`; None where `relations` has none of that name."""
    relation = relations.get(atom.relation)
    return None if relation is None else 2 * relation + (atom.subject != source)


def target_of(atom: Atom, link: int) -> Term:
    """Where a link leads."""
    return atom.subject if link % 2 else atom.object
