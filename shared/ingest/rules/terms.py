"""Number the variables of atoms, which a file names."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared.contracts.rules import Atom, Term
from shared.ingest.lines import Defect

MOST_ATOMS = 16
"""Maximum number of atoms in a body; miners find three or four."""


class NamedAtom(NamedTuple):
    """An atom whose terms are still text."""

    relation: str
    subject: str
    object: str


def number_variables(
    head: NamedAtom, body: Sequence[NamedAtom], is_variable: Callable[[str], bool]
) -> tuple[Atom, tuple[Atom, ...]]:
    """Number the variables of head and body: the head's subject is 0, its object 1, others from 2 in the body's order.

    Raises:
        Defect: the body has more than `MOST_ATOMS` atoms.
    """
    if len(body) > MOST_ATOMS:
        raise Defect(f"has {len(body)} atoms in its body, but at most {MOST_ATOMS} are read")
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
