"""Rules of TLogic applied to queries, against the plain implementation and by hand."""

import math
import random
from statistics import mean, stdev

import pytest

from shared.contracts.mining import TLogic
from shared.contracts.rules import Atom, Rule
from shared.rules.evaluation import Predict, Query, mean_ranks
from shared.rules.tlogic import mine
from shared.rules.tlogic.prediction import Application, Predictor
from tests.unit.shared.rules.plain_tlogic import Plain, PlainRule
from tests.unit.shared.rules.temporal_graphs import draw_quads, make_graph, plain_rule

R0, R1 = "r0", "r1"
HEAD = Atom(R0, 0, 1)


def make_rule(confidence: float, *body: Atom, head: Atom = HEAD, size: int = 10) -> Rule:
    return Rule(head=head, body=body, support=1, body_size=size, confidence=confidence)


@pytest.mark.parametrize("window", [0, 2])
def test_scores_are_those_of_the_plain_implementation(window: int) -> None:
    quads = draw_quads(7, 60, entities=6, times=8)
    graph, plain = make_graph(quads), Plain(quads)
    rules = [rule for relation in graph.relations for rule in mine(graph, relation, TLogic(walks=15))]
    by_head: dict[int, list[PlainRule]] = {}
    for rule in sorted(rules, key=lambda rule: -rule.confidence):
        turned = plain_rule(rule, graph.relations)
        for head in {turned.head} if rule.head.subject != rule.head.object else {turned.head, ~turned.head}:
            by_head.setdefault(head, []).append(turned)
    predict = Predictor(rules, graph, Application(window=window)).predict
    for entity in range(6):
        for head in (0, 1, 2, ~0, ~1, ~2):
            query = Query(entity, max(head, ~head), forward=head >= 0, time=6)
            assert predict(query) == pytest.approx(plain.predict(by_head.get(head, []), entity, 6, window))


def test_a_score_joins_confidence_and_age_and_rules_by_a_noisy_or() -> None:
    graph = make_graph([(0, 1, 1, 2), (0, 1, 1, 6), (0, 2, 1, 9)])
    rules = [make_rule(0.4, Atom(R1, 0, 1)), make_rule(0.2, Atom("r2", 0, 1))]
    first, second = 0.2 + 0.5 * math.exp(-0.4), 0.1 + 0.5 * math.exp(-0.1)
    scores = Predictor(rules, graph).predict(Query(0, 0, forward=True, time=10))
    assert scores == pytest.approx({1: 1 - (1 - first) * (1 - second)})


@pytest.mark.parametrize(("window", "found"), [(0, {1, 2}), (3, {2}), (2, {2}), (1, set()), (2**62, {1, 2})])
def test_a_query_sees_only_what_is_earlier_and_within_the_window(window: int, found: set[int]) -> None:
    graph = make_graph([(0, 1, 1, -5), (0, 1, 2, -2), (0, 1, 3, 0)])
    predict = Predictor([make_rule(0.4, Atom(R1, 0, 1))], graph, Application(window=window)).predict
    assert {*predict(Query(0, 0, forward=True, time=0))} == found


def test_subjects_are_predicted_by_rules_of_the_inverse_head() -> None:
    graph = make_graph([(0, 1, 1, 1), (2, 1, 2, 1)])
    backward = make_rule(0.4, Atom(R1, 1, 0), head=Atom(R0, 1, 0))
    loop = make_rule(0.4, Atom(R1, 0, 0), head=Atom(R0, 0, 0))
    predict = Predictor([backward, loop], graph).predict
    assert {*predict(Query(1, 0, forward=False, time=2))} == {0}
    assert not predict(Query(0, 0, forward=True, time=2))
    assert {*predict(Query(2, 0, forward=True, time=2))} == {2}


def test_no_rule_is_applied_once_the_best_candidates_are_told_apart() -> None:
    graph = make_graph([(0, 1, 1, 1), (0, 2, 2, 1)])
    rules = [make_rule(0.2, Atom("r2", 0, 1)), make_rule(0.4, Atom(R1, 0, 1))]
    query = Query(0, 0, forward=True, time=2)
    assert {*Predictor(rules, graph, Application(top_k=1)).predict(query)} == {1}
    assert {*Predictor(rules, graph, Application(top_k=2)).predict(query)} == {1, 2}


def test_weak_rules_and_those_of_unknown_relations_are_left_out() -> None:
    graph = make_graph([(0, 1, 1, 1)])
    rules = [make_rule(0.009, Atom(R1, 0, 1)), make_rule(1, Atom(R1, 0, 1), size=1), make_rule(1, Atom("meet", 0, 1))]
    assert not Predictor(rules, graph).predict(Query(0, 0, forward=True, time=2))


def test_rules_that_are_no_paths_are_refused() -> None:
    for body in ((Atom(R1, 2, 1), Atom(R1, 0, 2)), (Atom(R1, 0, 2),), (Atom(R1, 0, "e5"),)):
        with pytest.raises(ValueError, match="a body of TLogic leads from"):
            Predictor([make_rule(0.5, *body)], make_graph([(0, 1, 1, 1)]))


def test_link_prediction_is_as_good_as_the_plain_implementations() -> None:
    quads = [quad for s, _, o, t in draw_quads(8, 60, entities=12, times=60) for quad in follow(s, o, t)]
    train, tested = [quad for quad in quads if quad[3] < 40], [quad for quad in quads if quad[3] >= 40]
    known, plain = make_graph(quads), Plain(quads)

    def measure(predict: Predict) -> float:
        ranks = [*mean_ranks(predict, make_graph(tested), known)]
        return float(sum(1 / rank for rank in ranks) / len(ranks))

    def measure_plain(seed: int) -> float:
        learnt = Plain(train).learn((0, ~0, 1, ~1), random.Random(seed), walks=20, samples=50)  # noqa: S311

        def predict(query: Query) -> dict[int, float]:
            return plain.predict(learnt[query.relation if query.forward else ~query.relation], query.entity, query.time)

        return measure(predict)

    plain_mrrs = [measure_plain(seed) for seed in range(5)]
    mining = TLogic(walks=20, samples=50)
    rules = [rule for relation in (R0, R1) for rule in mine(make_graph(train), relation, mining)]
    spread = 2.776 * stdev(plain_mrrs) * math.sqrt(1 + 1 / 5)
    assert abs(measure(Predictor(rules, known).predict) - mean(plain_mrrs)) <= spread


def follow(subject: int, object_: int, time: int) -> list[tuple[int, int, int, int]]:
    return [(subject, 0, object_, time), *([(subject, 1, object_, time + 1 + time % 2)] if time % 5 else [])]
