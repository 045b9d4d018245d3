"""Rules of static graphs: known figures, bad input, memory, and an enumeration of all rules."""

import subprocess
import sys
from itertools import combinations, permutations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.calls import Amie
from shared.replies import Atom, Rule
from shared.rules.amie import mine as amie_mine
from shared.rules.graph import Graph
from shared.rules.miners import memory_bytes, mine
from tests.unit.datasets import DATA, needs
from tools.bench.mining import make_graph

# Rules of static graphs: known graphs with known figures, bad input, memory.

KINSHIP = DATA / "kg" / "kinship"
ALL = Amie(min_support=1, min_head_facts=1)

NATIONALITIES = """
c1 locatedIn A, c2 locatedIn A, c3 locatedIn B, c4 locatedIn B,
p1 bornIn c1, p2 bornIn c1, p3 bornIn c2, p4 bornIn c2, p5 bornIn c3, p6 bornIn c3, p7 bornIn c4, p8 bornIn c4,
p9 bornIn c1, p10 bornIn c3,
p1 nationality A, p2 nationality A, p3 nationality A, p4 nationality A, p5 nationality B, p6 nationality B,
p7 nationality B, p8 nationality A,
p1 spouse p2, p2 spouse p1, p3 spouse p4, p4 spouse p3, p5 spouse p6, p6 spouse p5, p7 spouse p8
"""
"""Two countries; the nationalities of p9 and p10 are unknown, and p8 has another one than that of its birthplace."""

OFFICES = """
Luis wasBornIn Guayaquil, Thomas wasBornIn Munich, Antoine wasBornIn Colmar,
Oana livesIn Paris, Luis livesIn Paris, Thomas livesIn Paris, Antoine livesIn Paris,
Ambar worksAt ESPOL, Luis worksAt Telecom, Thomas worksAt Telecom, Antoine worksAt Telecom,
Telecom isLocatedIn Paris
"""
"""The facts of AMIE's unit test B_KBTest; the figures were worked out by hand."""


def _graph(facts: list[tuple[str, str, str]]) -> Graph:
    entities = {name: None for subject, _, object_ in facts for name in (subject, object_)}
    relations = {relation: None for _, relation, _ in facts}
    numbers = [{name: number for number, name in enumerate(names)} for names in (entities, relations, entities)]
    triples = [[by_name[name] for by_name, name in zip(numbers, fact, strict=True)] for fact in facts]
    return Graph(np.array(triples, dtype=np.int32).reshape(-1, 3), None, list(entities), list(relations))


def _parse(text: str) -> Graph:
    facts = (fact.split() for fact in text.split(","))
    return _graph([(subject, relation, object_) for subject, relation, object_ in facts])


def _find(rules: tuple[Rule, ...], *body: Atom) -> Rule | None:
    return next((rule for rule in rules if set(rule.body) == set(body)), None)


def test_a_path_and_its_figures() -> None:
    rules = mine(_parse(NATIONALITIES), "nationality", ALL)
    assert _find(rules, Atom("bornIn", 0, 2), Atom("locatedIn", 2, 1)) == Rule(
        head=Atom("nationality", 0, 1),
        body=(Atom("bornIn", 0, 2), Atom("locatedIn", 2, 1)),
        support=7,
        body_size=10,
        confidence=0.7,
        head_coverage=0.875,
        pca_confidence=0.875,
        pca_body_size=8,
        functional=0,
    )


def test_a_path_through_the_heads_own_relation() -> None:
    rule = _find(mine(_parse(NATIONALITIES), "nationality", ALL), Atom("spouse", 0, 2), Atom("nationality", 2, 1))
    assert rule is not None
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.head_coverage) == (6, 7, 7, 0.75)


def test_a_symmetric_relation() -> None:
    rule = _find(mine(_parse(NATIONALITIES), "spouse", ALL), Atom("spouse", 1, 0))
    assert rule is not None
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.certainty) == (6, 7, 6, 1)


def test_the_offices_of_amies_own_test() -> None:
    rule = _find(mine(_parse(OFFICES), "livesIn", ALL), Atom("worksAt", 0, 2), Atom("isLocatedIn", 2, 1))
    assert rule is not None
    assert (rule.support, rule.head_coverage, rule.confidence, rule.certainty) == (3, 0.75, 1, 1)


def test_the_defaults_find_nothing_in_a_toy() -> None:
    assert mine(_parse(NATIONALITIES), "nationality", Amie()) == ()


def test_constants_name_entities_in_bodies() -> None:
    rules = mine(_parse(OFFICES), "livesIn", Amie(min_support=3, min_head_facts=1, constants=True))
    rule = _find(rules, Atom("worksAt", 0, "Telecom"), Atom("isLocatedIn", "Telecom", 1))
    assert rule is not None
    assert (rule.support, rule.body_size, rule.certainty) == (3, 3, 1)
    assert not any(isinstance(term, str) for rule in rules for term in (rule.head.subject, rule.head.object))


def _term(name: str) -> int:
    return {"?a": 0, "?b": 1}.get(name, 2)


def _read_line(line: str) -> tuple[object, ...]:
    text, *figures = line.split("\t")
    body, (_, head, _) = (part.split() for part in text.split("=>"))
    atoms = [Atom(body[n + 1], _term(body[n]), _term(body[n + 2])) for n in range(0, len(body), 3)]
    return head, frozenset(atoms), *map(float, figures[:3]), *map(int, figures[3:6]), _term(figures[6])


def figures_of(rule: Rule) -> tuple[object, ...]:
    assert rule.head_coverage is not None
    shares = (round(share, 9) for share in (rule.head_coverage, rule.confidence, rule.certainty))
    counts = rule.support, rule.body_size, rule.pca_body_size, rule.functional
    return rule.head.relation, frozenset(rule.body), *shares, *counts


@needs("kg/kinship")
def test_kinship_gives_the_rules_and_figures_of_amie3() -> None:
    facts = [tuple(line.split("\t")) for line in (KINSHIP / "train.tsv").read_text().splitlines()]
    expected = {_read_line(line) for line in (KINSHIP / "amie-rules.tsv").read_text().splitlines()}
    graph = _graph(facts)
    found = [figures_of(rule) for relation in graph.relations for rule in mine(graph, relation, Amie())]
    assert len(found) == len(expected) == 2452
    assert set(found) == expected


def test_an_unknown_relation_is_named() -> None:
    with pytest.raises(ValueError, match="no relation 'loves'"):
        mine(_parse(OFFICES), "loves", ALL)
    with pytest.raises(ValueError, match="no relation 'loves'"):
        mine(_graph([]), "loves", ALL)


def test_a_single_fact_has_no_rules_of_support_two() -> None:
    assert mine(_parse(OFFICES), "isLocatedIn", Amie(min_head_facts=1)) == ()
    graph = _parse(OFFICES)._replace(relations=[*_parse(OFFICES).relations, "unused"])
    assert mine(graph, "unused", ALL) == ()


def test_facts_that_differ_in_time_alone_are_one() -> None:
    graph = _parse(OFFICES)
    twice = Graph(np.repeat(graph.triples, 2, axis=0), np.arange(24), graph.entities, graph.relations)
    assert mine(twice, "livesIn", ALL) == mine(graph, "livesIn", ALL)


MEASURE = """
from tools.bench.mining import make_graph
from tools.bench.mining import peak_bytes
from shared.calls import Amie
from shared.rules.miners import mine
graph = make_graph(30_000, 2_000, 60)
for relation in graph.relations[:2]:
    mine(graph, relation, Amie(constants=True))
print(peak_bytes())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_mining_takes_no_more_memory_than_estimated() -> None:
    peak = int(subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True).stdout)
    graph = make_graph(30_000, 2_000, 60)
    estimate = memory_bytes(len(graph.triples), len(graph.entities), len(graph.relations), Amie(constants=True))
    assert peak <= estimate <= 10 * peak


# The miner against an enumeration of all rules by their definition, on random small graphs.

Fact = tuple[int, int, int]
"""Subject, relation, object."""
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
        mined = list(amie_mine(graph, f"r{head}", limits))
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
