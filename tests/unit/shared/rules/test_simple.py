"""Simple temporal rules: each type by hand, and all against their definitions."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from shared.contracts.mining import TemporalSimple
from shared.contracts.rules import Atom, Rule
from shared.rules.graph import Graph
from shared.rules.miners import memory_bytes
from shared.rules.simple import history, mine
from shared.rules.simple.memory import PROCESS
from tests.unit.shared.rules.plain_simple import Fact, graph_of, lines

VISITS: list[Fact] = [
    ("ann", "phones", "bob", 1),
    ("ann", "visits", "bob", 2),
    ("ann", "phones", "cid", 3),
    ("ann", "visits", "bob", 4),
    ("bob", "visits", "ann", 4),
]


def mined(facts: list[Fact], relation: str, mining: TemporalSimple | None = None) -> dict[tuple[str, Atom, Atom], Rule]:
    found = mine(graph_of(facts), relation, mining or TemporalSimple(unseen_negatives=0))
    rules = {(rule.kind, rule.head, rule.body[0]): rule for rule in found}
    assert len(rules) == len(found)
    return rules


def figures(rule: Rule) -> tuple[int, int, float]:
    return rule.support, rule.body_size, rule.confidence


def test_a_link_leads_to_another_between_the_same_two() -> None:
    rule = mined(VISITS, "visits")["pair", Atom("visits", 0, 1), Atom("phones", 0, 1)]
    assert figures(rule) == (2, 3, 0.666667)


def test_recurrence_is_a_link_that_leads_to_itself() -> None:
    rule = mined(VISITS, "visits")["pair", Atom("visits", 0, 1), Atom("visits", 0, 1)]
    assert figures(rule) == (1, 1, 1.0)
    assert rule.curve == (0, 1, 0, 0, 0, 0, 50)


def test_a_link_leads_back() -> None:
    rules = mined(VISITS, "visits")
    assert figures(rules["pair", Atom("visits", 0, 1), Atom("phones", 1, 0)]) == (1, 1, 1.0)
    assert figures(rules["pair", Atom("visits", 0, 1), Atom("visits", 1, 0)]) == (1, 1, 1.0)


def test_subjects_are_predicted_by_turned_heads() -> None:
    rule = mined(VISITS, "visits")["pair", Atom("visits", 1, 0), Atom("phones", 1, 0)]
    assert figures(rule) == (2, 2, 1.0)


def test_a_body_beyond_the_window_does_not_count() -> None:
    rule = mined(VISITS, "visits", TemporalSimple(window=1))["pair", Atom("visits", 0, 1), Atom("phones", 0, 1)]
    assert figures(rule) == (1, 2, 0.5)


def test_facts_of_the_same_step_lead_to_nothing() -> None:
    rules = mined([fact for fact in VISITS if fact[3] == 4], "visits")
    assert {kind for kind, *_ in rules} == {"frequent entity", "frequent partner"}


def test_who_was_linked_to_one_entity_is_linked_to_another() -> None:
    facts = [(who, "joins", "club", 1) for who in ("ann", "bob", "cid", "dan")]
    facts += [(who, "goes to", "fair", 2) for who in ("ann", "bob", "cid", "eve")]
    facts += [("ann", "goes to", "zoo", 2), ("dan", "goes to", "zoo", 3)]
    rules = mined(facts, "goes to")
    forward = rules["constants", Atom("goes to", 0, "fair"), Atom("joins", 0, "club")]
    assert figures(forward) == (3, 4, 0.75)  # ann, bob and cid at step 2, dan at step 3
    backward = rules["constants", Atom("goes to", 1, "fair"), Atom("joins", 1, "club")]
    assert figures(backward) == (3, 4, 0.75)  # the four members at step 2, the only one about the fair
    assert ("constants", Atom("goes to", 0, "zoo"), Atom("joins", 0, "club")) not in rules


def test_frequent_entities_count_a_tenth() -> None:
    rule = mined(VISITS, "visits")["frequent entity", Atom("visits", 0, "bob"), Atom("visits", 2, 3)]
    assert (figures(rule), rule.curve) == ((2, 3, 0.666667), (0.015385,))


def test_a_frequent_subject_is_predicted_by_the_same_body() -> None:
    rule = mined(VISITS, "visits")["frequent entity", Atom("visits", "ann", 0), Atom("visits", 2, 3)]
    assert (figures(rule), rule.curve) == ((2, 3, 0.666667), (0.015385,))


def test_frequent_partners_are_counted_by_entity_and_direction() -> None:
    rules = mined(VISITS, "visits")
    objects = rules["frequent partner", Atom("visits", "ann", "bob"), Atom("visits", "ann", 2)]
    subjects = rules["frequent partner", Atom("visits", "ann", "bob"), Atom("visits", 2, "bob")]
    assert (figures(objects), objects.curve) == ((2, 2, 1.0), (0.166667,))
    assert figures(subjects) == (2, 2, 1.0)


def test_a_rule_must_be_right_often_enough() -> None:
    rules = mined(VISITS, "visits", TemporalSimple(min_support=2, min_entities=1))
    assert {rule.support for rule in rules.values()} == {2}


def test_a_small_relation_can_be_left_out() -> None:
    assert mine(graph_of(VISITS), "visits", TemporalSimple(min_head_facts=4)) == ()
    assert mine(graph_of(VISITS), "visits", TemporalSimple(min_head_facts=3))


@pytest.mark.parametrize("seed", range(25))
def test_all_figures_are_those_of_the_definitions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(history, "ROWS", int(rng.choice([1, 7, 1000])))
    facts = random_facts(rng)
    window, min_entities = int(rng.choice([1, 3, 100])), int(rng.integers(1, 4))
    for relation in sorted({r for _, r, _, _ in facts}):
        mining = TemporalSimple(window=window, min_entities=min_entities)
        found = [(r.kind, r.head, r.body[0], r.support, r.body_size) for r in mine(graph_of(facts), relation, mining)]
        expected = list(lines(facts, relation, window, min_entities))
        assert sorted(map(str, found)) == sorted(map(str, expected))


def random_facts(rng: np.random.Generator) -> list[Fact]:
    times = np.unique(rng.choice([-3, 0, 1, 2, 3, 4, 7, 60], 8)).tolist()
    pool = [(s, r, o, t) for s in "abcde" for r in "pqr" for o in "abcde" for t in times]
    return [pool[place] for place in rng.choice(len(pool), rng.integers(1, 31), replace=False)]


def test_rules_do_not_depend_on_the_size_of_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    quads = enumerate(product("abc", "pq", "abc", range(5)))
    graph = graph_of([quad for place, quad in quads if place * place % 7 < 3])
    whole = mine(graph, "p", TemporalSimple(min_entities=1))
    monkeypatch.setattr(history, "ROWS", 2)
    assert mine(graph, "p", TemporalSimple(min_entities=1)) == whole


def test_huge_steps_and_gaps_make_no_difference() -> None:
    moved = [(s, r, o, t + 10**18) for s, r, o, t in VISITS]
    assert mined(moved, "visits") == mined(VISITS, "visits")
    both = mined([*VISITS, *moved], "visits")
    assert figures(both["pair", Atom("visits", 0, 1), Atom("phones", 0, 1)]) == (4, 6, 0.666667)


def test_an_entity_with_many_facts_is_counted_exactly() -> None:
    steps = np.arange(2_000)
    triples = np.column_stack([np.zeros_like(steps), np.zeros_like(steps), steps + 1]).astype(np.int32)
    graph = Graph(triples, steps.astype(np.int64), [f"e{n}" for n in range(2_001)], ["meets"])
    (hub,) = mine(graph, "meets", TemporalSimple(min_support=2))
    assert (hub.head, figures(hub)) == (Atom("meets", "e0", 0), (2_000, 2_000, 1.0))
    partners = [rule for rule in mine(graph, "meets", TemporalSimple()) if rule.body[0] == Atom("meets", "e0", 2)]
    assert {figures(rule) for rule in partners} == {(1, 2_000, 0.0005)}
    assert len(partners) == 2_000


def test_facts_that_differ_in_time_alone_are_examples_of_their_own() -> None:
    rule = mined([("ann", "visits", "bob", step) for step in range(4)], "visits")[
        "pair", Atom("visits", 0, 1), Atom("visits", 0, 1)
    ]
    assert figures(rule) == (3, 3, 1.0)


def test_one_fact_has_frequencies_alone() -> None:
    rules = mined([("ann", "visits", "bob", 1)], "visits")
    assert [kind for kind, *_ in rules] == ["frequent entity", "frequent partner"] * 2


def test_mining_takes_less_memory_than_estimated() -> None:
    rng = np.random.default_rng(0)
    triples = np.column_stack([rng.integers(0, 60, 2000), rng.integers(0, 5, 2000), rng.integers(0, 60, 2000)])
    names = [f"e{n}" for n in range(60)]
    graph = Graph(triples.astype(np.int32), np.arange(2000) // 20, names, list("pqrst"))
    tracemalloc.start()
    mine(graph, "p", TemporalSimple())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < peak < memory_bytes(2000, 60, 5, TemporalSimple()) - PROCESS


def test_a_graph_without_times_is_refused() -> None:
    graph = graph_of(VISITS)._replace(times=None)
    with pytest.raises(ValueError, match="the graph has no times"):
        mine(graph, "visits", TemporalSimple())


def test_a_relation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no relation 'hugs'"):
        mine(graph_of(VISITS), "hugs", TemporalSimple())
