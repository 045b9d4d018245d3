"""Simple temporal rules applied to questions."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.contracts.mining import TemporalSimple
from shared.contracts.rules import Atom, Rule
from shared.rules.evaluation import Query
from shared.rules.simple import mine
from shared.rules.simple.prediction import Predictor, combine
from tests.unit.shared.rules.plain_simple import Fact, graph_of

FACTS: list[Fact] = [
    ("ann", "visits", "bob", 1),
    ("ann", "visits", "cid", 3),
    ("dan", "visits", "cid", 3),
    ("ann", "phones", "dan", 5),
]
HALVING = (1.0, 0.8, 0.0, 0.0, 0.0, 0.0, 10.0)
"""0.8 at distance 1, halved at each further step."""


def rule(kind: str, head: Atom, body: Atom, curve: Sequence[float]) -> Rule:
    return Rule(head=head, body=(body,), support=1, body_size=1, confidence=1, kind=kind, curve=tuple(curve))


def answers(rules: Sequence[Rule], entity: str, relation: str, time: int, *, forward: bool = True) -> dict[str, float]:
    graph = graph_of(FACTS)
    query = Query(graph.entities.index(entity), graph.relations.index(relation), forward, time)
    scores = Predictor(rules, graph).predict(query)
    return {graph.entities[entity]: round(score, 9) for entity, score in scores.items()}


def test_a_pair_is_predicted_by_how_recently_it_was_linked() -> None:
    again = rule("pair", Atom("visits", 0, 1), Atom("visits", 0, 1), HALVING)
    assert answers([again], "ann", "visits", 4) == {"bob": 0.2, "cid": 0.8}


def test_only_facts_before_the_question_count() -> None:
    again = rule("pair", Atom("visits", 0, 1), Atom("visits", 0, 1), HALVING)
    assert answers([again], "ann", "visits", 3) == {"bob": 0.4}
    assert answers([again], "ann", "visits", 1) == {}


def test_frequency_counts_the_steps_of_the_window() -> None:
    often = rule("pair", Atom("visits", 0, 1), Atom("visits", 0, 1), (0, 0.5, 0, 0.6, 0, 1, 2))
    assert answers([often], "ann", "visits", 4) == {"bob": 0.5, "cid": 0.8}


def test_a_rule_speaks_for_its_own_direction_alone() -> None:
    back = rule("pair", Atom("visits", 1, 0), Atom("visits", 1, 0), HALVING)
    assert answers([back], "ann", "visits", 4) == {}
    assert answers([back], "cid", "visits", 4, forward=False) == {"ann": 0.8, "dan": 0.8}


def test_constants_are_predicted_from_the_entity_asked_about() -> None:
    forward = rule("constants", Atom("visits", 0, "dan"), Atom("visits", 0, "bob"), HALVING)
    assert answers([forward], "ann", "visits", 3) == {"dan": 0.4}
    assert answers([forward], "dan", "visits", 3) == {}


def test_entities_are_predicted_from_a_constant_asked_about() -> None:
    backward = rule("constants", Atom("phones", 1, "dan"), Atom("visits", 1, "cid"), HALVING)
    assert answers([backward], "dan", "phones", 5, forward=False) == {"ann": 0.4, "dan": 0.4}
    assert answers([backward], "bob", "phones", 5, forward=False) == {}


def test_frequencies_hold_at_any_time() -> None:
    rules = [
        rule("frequent entity", Atom("visits", 0, "cid"), Atom("visits", 2, 3), [0.05]),
        rule("frequent partner", Atom("visits", "ann", "bob"), Atom("visits", "ann", 2), [0.2]),
    ]
    assert answers(rules, "ann", "visits", 0) == {"cid": 0.05, "bob": 0.2}
    assert answers(rules, "dan", "visits", 0) == {"cid": 0.05}
    assert answers(rules, "bob", "visits", 0, forward=False) == {}


def test_partners_of_a_loop_keep_their_direction() -> None:
    subject = rule("frequent partner", Atom("visits", "ann", "ann"), Atom("visits", 2, "ann"), [0.2])
    assert answers([subject], "ann", "visits", 9, forward=False) == {"ann": 0.2}
    assert answers([subject], "ann", "visits", 9) == {}


def test_rules_for_an_entity_are_combined() -> None:
    entities, confidences = np.array([3, 5, 3]), np.array([0.25, 0.1, 0.5])
    assert combine(entities, confidences) == {3: pytest.approx(0.6), 5: pytest.approx(0.1)}


def test_ten_rules_count_at_most() -> None:
    ten = combine(np.zeros(10, np.int64), np.full(10, 0.3))
    assert combine(np.zeros(11, np.int64), np.full(11, 0.3)) == ten


def test_an_entity_that_no_rule_trusts_is_left_out() -> None:
    assert combine(np.array([1, 2]), np.array([0.0, 0.0])) == {}


def test_rules_that_name_what_the_graph_lacks_predict_nothing() -> None:
    rules = [
        rule("pair", Atom("hugs", 0, 1), Atom("visits", 0, 1), HALVING),
        rule("pair", Atom("visits", 0, 1), Atom("hugs", 0, 1), HALVING),
        rule("constants", Atom("visits", 0, "eve"), Atom("visits", 0, "bob"), HALVING),
        rule("constants", Atom("visits", 0, "bob"), Atom("visits", 0, "eve"), HALVING),
        rule("constants", Atom("hugs", 0, "bob"), Atom("visits", 0, "bob"), HALVING),
        rule("frequent entity", Atom("visits", 0, "eve"), Atom("visits", 2, 3), [0.5]),
        rule("frequent partner", Atom("visits", "eve", "bob"), Atom("visits", "eve", 2), [0.5]),
        rule("frequent partner", Atom("hugs", "ann", "bob"), Atom("hugs", "ann", 2), [0.5]),
    ]
    assert answers(rules, "ann", "visits", 9) == {}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"body": ()}, "has one atom"),
        ({"curve": (0.1, 0.2)}, "1 or 7 coefficients"),
        ({"kind": "constants", "head": Atom("visits", "ann", "bob")}, "has a variable in its head"),
    ],
)
def test_a_rule_of_another_shape_is_refused(changed: dict[str, Any], said: str) -> None:
    pair = rule("pair", Atom("visits", 0, 1), Atom("visits", 0, 1), HALVING)
    with pytest.raises(ValueError, match=said):
        answers([msgspec.structs.replace(pair, **changed)], "ann", "visits", 9)


def test_a_rule_of_another_miner_is_refused() -> None:
    with pytest.raises(ValueError, match="kind '' is not of temporal-simple"):
        Predictor([rule("", Atom("visits", 0, 1), Atom("visits", 0, 1), [])], graph_of(FACTS))


def test_a_graph_without_times_is_refused() -> None:
    with pytest.raises(ValueError, match="the graph has no times"):
        Predictor([], graph_of(FACTS)._replace(times=None))


def test_mined_rules_foresee_what_recurs() -> None:
    facts = [("ann", "visits", "bob", 7 * week) for week in range(1, 5)] + [("ann", "visits", "cid", 9)]
    graph = graph_of(facts)
    predictor = Predictor(mine(graph, "visits", TemporalSimple()), graph)
    scores = predictor.predict(Query(0, 0, forward=True, time=35))
    assert scores[graph.entities.index("bob")] > scores[graph.entities.index("cid")] > 0
