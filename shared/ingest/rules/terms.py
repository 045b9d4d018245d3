"""Atoms as they are named in a file, and with their variables numbered."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared.contracts.rules import Atom, Term
from shared.ingest.lines import Defect

MOST_ATOMS = 16
"""Atoms of a body; miners find three or four."""


class Named(NamedTuple):
    """An atom whose terms are still text."""

    relation: str
    subject: str
    object: str


def numbered(head: Named, body: Sequence[Named], is_variable: Callable[[str], bool]) -> tuple[Atom, tuple[Atom, ...]]:
    """Head and body, the head's subject being variable 0 and its object 1, further ones from 2 in the body's order.

    Raises:
        Defect: the body has more than `MOST_ATOMS` atoms.
    """
    if len(body) > MOST_ATOMS:
        raise Defect(f"has {len(body)} atoms in its body; at most {MOST_ATOMS} are read")
    numbers = {head.object: 1} if is_variable(head.object) else {}
    numbers |= {head.subject: 0} if is_variable(head.subject) else {}
    next_number = 2

    def term(name: str) -> Term:
        nonlocal next_number
        if not is_variable(name):
            return name
        if name not in numbers:
            numbers[name] = next_number
            next_number += 1
        return numbers[name]

    atoms = [Atom(atom.relation, term(atom.subject), term(atom.object)) for atom in (head, *body)]
    return atoms[0], tuple(atoms[1:])
