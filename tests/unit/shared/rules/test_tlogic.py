"""Graphs and their rules over time, against hand-computed figures and a plain implementation."""

import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import TLogic
from shared.replies import Atom, Rule
from shared.rules import facts
from shared.rules.facts import inverse_phrase, phrase, sentence
from shared.rules.graph import Graph
from shared.rules.tlogic import FACT, Edges, draw_recent, draw_uniformly, mine, walk
from shared.samples import Phrase

# TLogic-style mining, against hand-computed figures and an independent plain implementation.

# TLogic once more, in plain loops, from the reference's description: nothing of `shared.rules` is used.
#
# A quad is (subject, relation, object, time); the inverse of relation r is `~r`. A rule's `equal` says for each place
# on its path the first place with the same entity, where two places are equal at all, and is empty otherwise.

Quad = tuple[int, int, int, int]


class PlainRule(NamedTuple):
    """A rule without its figures."""

    head: int
    body: tuple[int, ...]
    equal: tuple[int, ...]


class Plain:
    """All quads in both directions."""

    def __init__(self, quads: Sequence[Quad]) -> None:
        self.by_relation: dict[int, list[Quad]] = defaultdict(list)
        self.by_entity: dict[int, list[Quad]] = defaultdict(list)
        self.by_both: dict[tuple[int, int], list[Quad]] = defaultdict(list)
        for s, r, o, t in quads:
            for quad in ((s, r, o, t), (o, ~r, s, t)):
                self.by_relation[quad[1]].append(quad)
                self.by_entity[quad[0]].append(quad)
                self.by_both[quad[0], quad[1]].append(quad)

    def bodies(self, body: tuple[int, ...], equal: tuple[int, ...]) -> Iterator[tuple[Quad, ...]]:
        """All of them."""
        paths: list[tuple[Quad, ...]] = [(edge,) for edge in self.by_relation[body[0]]]
        for relation in body[1:]:
            paths = [
                (*path, edge)
                for path in paths
                for edge in self.by_both.get((path[-1][2], relation), ())
                if edge[3] >= path[-1][3]
            ]
        return (path for path in paths if not equal or equalities(path) == equal)

    def follows(self, head: int, body: Sequence[Quad]) -> bool:
        """Whether a fact of the head comes strictly after the body."""
        facts = self.by_both.get((body[0][0], head), ())
        return any(edge[2] == body[-1][2] and edge[3] > body[-1][3] for edge in facts)


def shape_of(walk: Sequence[Quad]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inverse relations of all but the first edge, reversed, and the equalities of their entities."""
    back = [(o, ~r, s, t) for s, r, o, t in reversed(walk[1:])]
    return tuple(r for _, r, _, _ in back), equalities(back)


def equalities(path: Sequence[Quad]) -> tuple[int, ...]:
    """See the module."""
    entities = [path[0][0], *(edge[2] for edge in path)]
    return tuple(entities.index(entity) for entity in entities) if len(set(entities)) < len(entities) else ()


VISIT_SIGN = ("visit", "sign")


def make_graph(quads: Iterable[Quad], relations: Sequence[str] = ("r0", "r1", "r2")) -> Graph:
    """The quads as a graph of entities e0, e1 and so on."""
    table = np.array([*quads], np.int64).reshape(-1, 4)
    entities = [f"e{number}" for number in range(int(table[:, [0, 2]].max(initial=0)) + 1)]
    return Graph(table[:, :3].astype(np.int32), table[:, 3].copy(), entities, relations)


def draw_quads(seed: int, facts: int, entities: int = 5, relations: int = 3, times: int = 6) -> list[Quad]:
    """Distinct random quads; loops and several facts at one time are among them."""
    rows = np.random.default_rng(seed).integers((entities, relations, entities, times), size=(facts, 4)).tolist()
    return [*dict.fromkeys((s, r, o, t) for s, r, o, t in rows)]


def toy(repeated_at: int) -> list[Quad]:
    """The toy of the reference: visits at 0, 2, ..., 10, signs one step later except at 9; e0 visits e1 twice."""
    quads: list[Quad] = []
    for time in range(0, 12, 2):
        subject = 0 if time in {0, repeated_at} else time
        quads.append((subject, 0, subject + 1, time))
        if time != 8:
            quads.append((subject, 1, subject + 1, time + 1))
    return quads


def plain_rule(rule: Rule, relations: Sequence[str]) -> PlainRule:
    """The same rule with `~` for inverse relations."""
    variables, numbers = [0], []
    for atom in rule.body:
        forward = atom.subject == variables[-1]
        number = relations.index(atom.relation)
        numbers.append(number if forward else ~number)
        end = atom.object if forward else atom.subject
        assert isinstance(end, int)
        variables.append(end)
    head = relations.index(rule.head.relation)
    is_plain = len({*variables}) == len(variables)
    return PlainRule(
        head if rule.head.subject == 0 else ~head,
        tuple(numbers),
        () if is_plain else tuple(variables.index(variable) for variable in variables),
    )


def mine_all(graph: Graph, mining: TLogic) -> list[Rule]:
    return [rule for relation in graph.relations for rule in mine(graph, relation, mining)]


def read(rule: Rule) -> str:
    atoms = [f"{atom.relation}({atom.subject},{atom.object})" for atom in (*rule.body, rule.head)]
    return f"{' & '.join(atoms[:-1])} => {atoms[-1]}"


@pytest.mark.parametrize("exact", [False, True])
def test_the_toy_of_the_reference_gives_its_confidences(exact: bool) -> None:
    rules = mine_all(make_graph(toy(8), VISIT_SIGN), TLogic(exact=exact))
    assert {read(rule): (rule.support, rule.body_size, rule.confidence) for rule in rules} == {
        "visit(0,1) => sign(0,1)": (5, 6, 0.833333),
        "visit(1,0) => sign(1,0)": (5, 6, 0.833333),
        "sign(0,1) => visit(0,1)": (1, 5, 0.2),
        "sign(1,0) => visit(1,0)": (1, 5, 0.2),
        "visit(0,1) => visit(0,1)": (1, 6, 0.166667),
        "visit(1,0) => visit(1,0)": (1, 6, 0.166667),
    }


@pytest.mark.parametrize("exact", [False, True])
def test_where_the_repeated_pair_signs_twice_recent_walks_miss_a_rule_in_one_direction(exact: bool) -> None:
    graph = make_graph(toy(6), VISIT_SIGN)
    by_chance = {seed: mine_all(graph, TLogic(max_length=1, seed=seed, exact=exact)) for seed in range(10)}
    assert {len(rules) for rules in by_chance.values()} == {6, 7}
    figures = {rule.confidence for rules in by_chance.values() for rule in rules}
    assert figures == {0.833333, 0.2, 0.166667}
    assert len(mine_all(graph, TLogic(max_length=1, transition="uniform"))) == 8


@pytest.mark.parametrize("seed", range(2))
def test_exact_figures_are_those_of_the_plain_enumeration(seed: int) -> None:
    quads = draw_quads(seed, 40)
    plain, graph = Plain(quads), make_graph(quads)
    rules = mine_all(graph, TLogic(exact=True, seed=seed, walks=40))
    assert {len(rule.body) for rule in rules} == {1, 2, 3}
    for rule in rules:
        head, body, equal = plain_rule(rule, graph.relations)
        bodies = {*plain.bodies(body, equal)}
        assert (rule.body_size, rule.support) == (len(bodies), sum(plain.follows(head, found) for found in bodies))
        assert rule.confidence == round(rule.support / rule.body_size, 6)


@pytest.mark.parametrize("seed", range(2))
def test_with_walks_enough_the_rules_are_all_that_cyclic_walks_show(seed: int) -> None:
    quads = [quad for quad in draw_quads(seed, 16) if quad[0] != quad[2]]
    plain, graph = Plain(quads), make_graph(quads)
    found = mine_all(graph, TLogic(exact=True, transition="uniform", walks=2000))
    walks = [walk for head in plain.by_relation for edge in plain.by_relation[head] for walk in cycles(plain, [edge])]
    assert {plain_rule(rule, graph.relations) for rule in found} == {(walk[0][1], *shape_of(walk)) for walk in walks}


def cycles(plain: Plain, path: list[Quad]) -> list[list[Quad]]:
    s, r, o, t = path[-1]
    found = []
    for edge in plain.by_entity[o]:
        is_earlier = edge[3] < t if len(path) == 1 else edge[3] <= t and edge != (o, ~r, s, t)
        if is_earlier and edge[2] == path[0][0]:
            found.append([*path, edge])
        if is_earlier and len(path) < 3:
            found += cycles(plain, [*path, edge])
    return found


@pytest.mark.parametrize("length", [2, 3])
def test_walks_go_back_in_time_and_return_without_retracing(length: int) -> None:
    edges = Edges(make_graph(draw_quads(1, 60)))
    walks = walk(edges, np.arange(edges.facts), length, 2000, draw_recent, np.random.default_rng(0))
    assert len(walks) > 100
    for path in walks.tolist():
        assert edges.subject[path[0]] == edges.object[path[-1]]
        assert edges.rank[path[0]] > edges.rank[path[1]]
        for one, other in pairwise(path):
            assert edges.object[one] == edges.subject[other]
            assert edges.rank[one] >= edges.rank[other]
        assert all(other != edges.reverse(np.array([one]))[0] for one, other in pairwise(path))


@pytest.mark.parametrize("draw", [draw_recent, draw_uniformly])
def test_steps_are_drawn_as_the_transition_says(draw: object) -> None:
    edges = Edges(make_graph([(0, 0, 1, 9), (0, 0, 1, 8), (0, 1, 1, 7), (0, 2, 1, 5)]))
    walks = walk(edges, np.array([0]), 1, 4000, draw, np.random.default_rng(0))  # type: ignore[arg-type]
    weights = np.exp([-1, -2, -4]) if draw is draw_recent else np.ones(3)
    for place, share in zip((1, 2, 3), weights / weights.sum(), strict=True):
        drawn = np.mean(walks[:, 1] == edges.reverse(np.array([place]))[0])
        assert abs(drawn - share) < 4.5 * (share * (1 - share) / 4000) ** 0.5


def test_a_step_beside_the_one_that_it_may_not_retrace_is_drawn_alike() -> None:
    quads = [(0, 0, 1, 9), (1, 1, 2, 5), (2, 0, 3, 5), (2, 2, 4, 5), (2, 2, 0, 5), *((n, 0, 0, 1) for n in (3, 4))]
    edges = Edges(make_graph(quads))
    rng = np.random.default_rng(0)
    walks = np.array([walk(edges, np.array([0]), 3, 6000, draw_recent, rng)[:, 2:]])[0]
    last = walks[:, 0].tolist()
    assert {*last} <= {2, 3, 4}
    assert abs(last.count(2) - last.count(3)) < 4.5 * len(last) ** 0.5


def test_short_rules_agree_with_the_exact_ones_within_the_binomials_error() -> None:
    graph = make_graph(draw_quads(0, 4000, entities=12, relations=2, times=40))
    exact = {read(rule): rule for rule in mine_all(graph, TLogic(exact=True, max_length=1))}
    sampled = mine_all(graph, TLogic(max_length=1))
    assert {read(rule) for rule in sampled} == {*exact}
    assert any(rule.body_size < exact[read(rule)].body_size / 2 for rule in sampled)
    for rule in sampled:
        share = exact[read(rule)].confidence
        assert abs(rule.confidence - share) <= 4 * (share * (1 - share) / rule.body_size) ** 0.5 + 1e-6


def test_with_samples_enough_the_figures_are_the_exact_ones() -> None:
    graph = make_graph(draw_quads(3, 20))
    exact = mine_all(graph, TLogic(exact=True, walks=20))
    assert max(rule.body_size for rule in exact if len(rule.body) == 3) >= 10
    assert mine_all(graph, TLogic(samples=1500, walks=20)) == exact


def test_bodies_counted_in_small_slices_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(draw_quads(2, 20))
    whole = mine_all(graph, TLogic(exact=True, walks=20))
    monkeypatch.setattr("shared.rules.tlogic.AT_ONCE", 7)
    assert mine_all(graph, TLogic(exact=True, walks=20)) == whole


def test_a_bank_depends_on_the_seed_alone() -> None:
    graph = make_graph(draw_quads(5, 30))
    forth = {relation: mine(graph, relation, TLogic(walks=8)) for relation in graph.relations}
    mine(make_graph(draw_quads(6, 60)), "r0", TLogic(walks=8))
    back = {relation: mine(graph, relation, TLogic(walks=8)) for relation in reversed(graph.relations)}
    assert forth == back
    assert forth != {relation: mine(graph, relation, TLogic(seed=1, walks=8)) for relation in graph.relations}


def test_variables_name_the_entities_of_the_path() -> None:
    chain = make_graph([(0, 0, 1, 1), (2, 1, 1, 2), (2, 2, 3, 3), (0, 0, 3, 9)])
    assert "r0(0,2) & r1(3,2) & r2(3,1) => r0(0,1)" in [read(rule) for rule in mine_all(chain, TLogic(exact=True))]
    loops = make_graph([(0, 0, 0, 1), (0, 1, 0, 2)])
    (rule,) = mine(loops, "r1", TLogic(exact=True, max_length=1))
    assert (rule.head, rule.body) == (Atom("r1", 0, 0), (Atom("r0", 0, 0),))


def test_times_matter_by_their_differences_alone() -> None:
    quads = draw_quads(4, 50)
    rules = mine_all(make_graph(quads), TLogic(walks=8))
    assert rules == mine_all(make_graph([(s, r, o, t - 10**18) for s, r, o, t in quads]), TLogic(walks=8))
    far = {0: -(2**63), 1: -5, 2: 0, 3: 1, 4: 2**62, 5: 2**63 - 1}
    exact, walks = TLogic(exact=True, transition="uniform", walks=8), [(s, r, o, far[t]) for s, r, o, t in quads]
    assert mine_all(make_graph(quads), exact) == mine_all(make_graph(walks), exact)
    assert mine_all(make_graph(walks), TLogic(walks=8))


@pytest.mark.parametrize("quads", [[(0, 0, 1, 5)], [(0, 0, 1, 5), (0, 1, 1, 5), (1, 2, 0, 5)]])
@pytest.mark.parametrize("exact", [False, True])
def test_without_an_earlier_fact_there_is_no_rule(quads: list[Quad], exact: bool) -> None:
    assert mine(make_graph(quads), "r0", TLogic(exact=exact)) == ()


def test_limits_leave_rules_out() -> None:
    graph = make_graph(toy(8), VISIT_SIGN)
    assert mine(graph, "sign", TLogic(min_head_facts=6)) == ()
    assert len(mine(graph, "sign", TLogic(min_head_facts=5))) == 2
    assert {rule.confidence for rule in mine(graph, "visit", TLogic(min_confidence=0.2))} == {0.2}


def test_bad_graphs_are_refused_in_words() -> None:
    graph = make_graph(toy(8), VISIT_SIGN)
    with pytest.raises(ValueError, match="the graph has no times: mine"):
        mine(graph._replace(times=None), "visit", TLogic())
    with pytest.raises(ValueError, match="no facts"):
        mine(make_graph([], VISIT_SIGN), "visit", TLogic())
    with pytest.raises(ValueError, match="no relation 'meet'"):
        mine(graph, "meet", TLogic())


def test_the_sorted_edges_take_no_more_memory_than_is_estimated() -> None:
    graph = make_graph(draw_quads(9, 20_000, entities=500, times=100))
    tracemalloc.start()
    edges = Edges(graph)
    for ordered in (edges.by_subject, edges.by_pair, edges.by_relation):
        assert len(ordered.log_weights) == 2 * len(graph.triples)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < FACT * len(graph.triples)


# Facts in words.


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        ("Make_statement", "make statement"),
        ("/people/person/nationality", "people person nationality"),
        ("/film/film/release_date_s./film/film_regional/film_release_region",
         "film film release date s film film regional film release region"),
        ("isMarriedTo", "is married to"),
        ("Abduct,_hijack,_or_take_hostage", "abduct, hijack, or take hostage"),
        ("位于", "位于"),
        ("/", "/"),
    ],
)  # fmt: skip
def test_a_relation_without_a_phrase_is_called_by_its_name(relation: str, said: str) -> None:
    assert phrase(relation) == said


def test_declared_phrases_stand_as_they_are() -> None:
    both = Phrase(relation="r", phrase="is a Parent of", inverse="is a Child of")
    assert (phrase("r", both), inverse_phrase("r", both)) == ("is a Parent of", "is a Child of")
    assert inverse_phrase("r", Phrase(relation="r", phrase="is a Parent of")) == "inverse of is a Parent of"
    assert inverse_phrase("Make_statement") == "inverse of make statement"


def test_a_sentence_shows_names_with_blanks_and_its_time_first() -> None:
    assert sentence("Abdullah_Abdullah", "consult", "Ashraf_Ghani") == "Abdullah Abdullah consult Ashraf Ghani."
    assert sentence("A", "met", "B", "2014-09-20") == "Time 2014-09-20 A met B."


# Times of facts: dates and steps, and nothing else.


@given(st.dates())
def test_a_date_is_its_day_and_comes_back(date: object) -> None:
    unit, number = facts.parse(str(date))
    assert (unit, facts.format_time(number, unit)) == ("day", str(date))


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_a_whole_number_is_its_own_step(step: int) -> None:
    assert facts.parse(str(step)) == ("step", step)
    assert facts.format_time(step, "step") == str(step)


def test_days_after_one_another_are_steps_after_one_another() -> None:
    numbers = [facts.parse(day)[1] for day in ("2016-02-28", "2016-02-29", "2016-03-01")]
    assert [number - numbers[0] for number in numbers] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "2014-02-30", "2014-1-1", "20.09.2014", "2014-09-20T00:00:00", "1.5", "1e3", "9" * 19, "٣", "now"]
)
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        facts.parse(text)
