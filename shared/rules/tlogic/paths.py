"""Rules as paths: a body leads from variable 0 over one atom after the other to variable 1."""

from collections.abc import Sequence
from itertools import count, pairwise

from shared.contracts.rules import Atom, Rule

Step = tuple[str, bool]
"""A relation, and whether it is followed from subject to object."""


def rule_of(head: Step, body: Sequence[Step], variables: Sequence[int], support: int, size: int) -> Rule:
    """The rule of a body along `variables`, one more than there are steps."""
    return Rule(
        head=_atom(head, variables[0], variables[-1]),
        body=tuple(_atom(step, *ends) for step, ends in zip(body, pairwise(variables), strict=True)),
        support=support,
        body_size=size,
        confidence=round(support / size, 6),
    )


def _atom(step: Step, start: int, end: int) -> Atom:
    relation, forward = step
    return Atom(relation, start, end) if forward else Atom(relation, end, start)


def number_variables(entities: Sequence[int]) -> list[int]:
    """One variable for each distinct entity of a path: 0 where it starts, 1 where it ends, others from 2 on."""
    numbers = {entities[0]: 0}
    numbers.setdefault(entities[-1], 1)
    others = count(2)
    for entity in entities:
        if entity not in numbers:
            numbers[entity] = next(others)
    return [numbers[entity] for entity in entities]


def path_of(rule: Rule) -> list[tuple[Step, int]]:
    """The steps of a body from variable 0 on, each with the variable that it leads to.

    Raises:
        ValueError: the body is no path from variable 0 to the head's other variable, as those of TLogic are.
    """
    path, place = list[tuple[Step, int]](), 0
    for atom in rule.body:
        forward = atom.subject == place
        end = atom.object if forward else atom.subject
        if (not forward and atom.object != place) or not isinstance(end, int):
            raise ValueError(f"a body of TLogic leads from one variable to the next, but this one does not: {rule}")
        path.append(((atom.relation, forward), end))
        place = end
    if {0, place} != {rule.head.subject, rule.head.object}:
        raise ValueError(
            f"a body of TLogic leads from variable 0 to the head's other one, but this one does not: {rule}"
        )
    return path
