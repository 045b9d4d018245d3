"""The miner against an enumeration of all rules by their definition, on random small graphs."""

from itertools import combinations, permutations, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.calls import Amie
from shared.replies import Atom, Rule
from shared.rules.amie import mine
from shared.rules.graph import Graph

Fact = tuple[int, int, int]
"""Subject, relation, object."""
ALL = Amie(min_support=1, min_head_facts=1)
"""Limits that hardly limit a small graph."""


def _facts(entities: int, relations: int) -> st.SearchStrategy[list[Fact]]:
    numbers = st.integers(0, entities - 1)
    return st.lists(st.tuples(numbers, st.integers(0, relations - 1), numbers), min_size=1, max_size=24)


def _limits(*, constants: bool) -> st.SearchStrategy[Amie]:
    return st.builds(
        Amie,
        min_support=st.integers(1, 3),
        min_head_coverage=st.sampled_from([0.0, 0.01, 0.4]),
        min_pca_confidence=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        max_atoms=st.sampled_from([2, 3, 3]),
        min_head_facts=st.sampled_from([1, 1, 3]),
        constants=st.just(constants),
    )


class _Enumeration:
    def __init__(self, triples: list[Fact], head: int, limits: Amie) -> None:
        self.facts = {(f"e{s}", f"r{r}", f"e{o}") for s, r, o in triples}
        self.entities = sorted({fact[0] for fact in self.facts} | {fact[2] for fact in self.facts})
        self.head = Atom(f"r{head}", 0, 1)
        self.pairs = {(s, o) for s, r, o in self.facts if r == self.head.relation}
        self.limits = limits

    def rules(self) -> list[Rule]:
        if len(self.pairs) < self.limits.min_head_facts:
            return []
        found = [self.rule(body) for body in self.bodies()]
        return [rule for rule in found if self.passes(rule) and not self.is_surpassed(rule)]

    def bodies(self) -> list[tuple[Atom, ...]]:
        ends = list(permutations((0, 1, 2), 2))
        if self.limits.constants:
            ends += product((0, 1, 2), self.entities)
            ends += product(self.entities, (0, 1, 2))
        atoms = [Atom(relation, *pair) for relation in sorted({fact[1] for fact in self.facts}) for pair in ends]
        atoms = [atom for atom in atoms if atom != self.head]
        bodies = [body for size in range(1, self.limits.max_atoms) for body in combinations(atoms, size)]
        return [body for body in bodies if self.is_closed(body) and not self.is_redundant(body)]

    def is_closed(self, body: tuple[Atom, ...]) -> bool:
        terms = [term for atom in (self.head, *body) for term in (atom.subject, atom.object)]
        return all(terms.count(variable) > 1 for variable in terms if isinstance(variable, int))

    def is_redundant(self, body: tuple[Atom, ...]) -> bool:
        return any(self.is_instance(one, other) for one, other in permutations((self.head, *body), 2))

    def is_instance(self, one: Atom, other: Atom) -> bool:
        if one.relation != other.relation or isinstance(other.subject, str) or isinstance(other.object, str):
            return False
        if isinstance(one.subject, str):
            return one.object == other.object
        return isinstance(one.object, str) and one.subject == other.subject

    def rule(self, body: tuple[Atom, ...]) -> Rule:
        pairs = self.predictions(body)
        known = [{pair[end] for pair in self.pairs} for end in (0, 1)]
        functional = 0 if len(known[0]) >= len(known[1]) else 1
        judged = [pair for pair in pairs if pair[functional] in known[functional]]
        support = len(pairs & self.pairs)
        return Rule(
            head=self.head,
            body=body,
            support=support,
            body_size=len(pairs),
            confidence=support / max(1, len(pairs)),
            head_coverage=support / len(self.pairs) if self.pairs else 0,
            pca_confidence=support / max(1, len(judged)),
            pca_body_size=len(judged),
            functional=functional,
        )

    def predictions(self, body: tuple[Atom, ...]) -> set[tuple[str, ...]]:
        every = product(self.entities, repeat=3 if any(2 in (atom.subject, atom.object) for atom in body) else 2)
        return {values[:2] for values in every if all(self.holds(atom, values) for atom in body)}

    def holds(self, atom: Atom, values: tuple[str, ...]) -> bool:
        subject, object_ = (values[t] if isinstance(t, int) else t for t in (atom.subject, atom.object))
        return (subject, atom.relation, object_) in self.facts

    def passes(self, rule: Rule) -> bool:
        assert rule.head_coverage is not None
        enough = rule.support >= self.limits.min_support and rule.head_coverage >= self.limits.min_head_coverage
        return enough and rule.certainty >= self.limits.min_pca_confidence

    def is_surpassed(self, rule: Rule) -> bool:
        parents = [(atom,) for atom in rule.body if len(rule.body) > 1 and self.is_closed((atom,))]
        return any(self.rule(parent).certainty >= rule.certainty for parent in parents)


def sorted_figures(rules: list[Rule]) -> list[list[str]]:
    names = Rule.__struct_fields__[2:]
    return sorted([*sorted(map(repr, rule.body)), *(repr(getattr(rule, name)) for name in names)] for rule in rules)


def _compare(triples: list[Fact], entities: int, relations: int, limits: Amie) -> None:
    names = [f"e{number}" for number in range(entities)], [f"r{number}" for number in range(relations)]
    graph = Graph(np.array(triples, dtype=np.int32), None, *names)
    for head in range(relations):
        mined = list(mine(graph, f"r{head}", limits))
        assert sorted_figures(mined) == sorted_figures(_Enumeration(triples, head, limits).rules())


@given(_facts(4, 3), _limits(constants=False))
@example([(0, 0, 0), (0, 0, 0), (1, 0, 1)], ALL)  # only loops, one of them repeated
@example([(0, 0, 1), (1, 1, 0), (2, 0, 1), (1, 1, 2)], ALL)  # a relation and its inverse
def test_rules_and_figures_are_those_of_the_definition(triples: list[Fact], limits: Amie) -> None:
    _compare(triples, 4, 3, limits)


@settings(max_examples=20)
@given(_facts(4, 2), _limits(constants=True))
def test_rules_that_name_entities_are_those_of_the_definition(triples: list[Fact], limits: Amie) -> None:
    _compare(triples, 4, 2, limits)


@pytest.mark.parametrize("limit", ["MOST_JOINED", "MOST_PATHS", "MOST_CELLS"])
@settings(max_examples=6)
@given(triples=_facts(4, 2))
def test_slices_of_a_join_change_nothing(triples: list[Fact], limit: str) -> None:
    with patch(f"shared.rules.amie.{limit}", 1):
        _compare(triples, 4, 2, Amie(min_support=1, min_head_facts=1, constants=limit == "MOST_CELLS"))
