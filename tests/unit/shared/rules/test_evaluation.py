"""Ranks and measures of link prediction."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from shared.rules.evaluation import Query, evaluate, mean_ranks, summarise
from shared.rules.graph import Graph


def graph(*facts: tuple[int, int, int, int]) -> Graph:
    quads = np.array(facts).reshape(-1, 4)
    return Graph(quads[:, :3].astype(np.int32), quads[:, 3].astype(np.int64), list("abcdefghij"), ["r"])


def predict_nothing(query: Query) -> Mapping[int, float]:
    return {}


def test_an_answer_ranks_by_its_score() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.5, 2: 0.7} if query.forward else {0: 0.1}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [2, 1]


def test_answers_of_equal_score_share_the_mean_of_their_places() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.9}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [3.5, 3.5]


def test_entities_without_a_score_share_the_last_places() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {8: 0.5, 9: 0.5}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [6.5, 6.5]


def test_an_unknown_answer_without_a_score_is_missed() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {0: 0.5} if not query.forward else {}

    ranks = list(mean_ranks(predict, graph((0, 0, 1, 5)), graph(), unknown=range(2)))
    assert ranks == [None, 1]
    result = summarise(Counter(ranks))
    assert (result.mrr.value, result.hits_10.value) == (0.5, 0.5)


def test_only_other_answers_at_the_same_time_are_removed() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.1, 2: 0.9, 3: 0.8} if query.forward else {0: 1.0}

    known = graph((0, 0, 2, 5), (0, 0, 3, 4))
    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), known)) == [2, 1]


def test_a_removed_entity_is_no_unscored_one_either() -> None:
    assert next(mean_ranks(predict_nothing, graph((0, 0, 1, 5)), graph((0, 0, 2, 5)))) == 5


def test_queries_are_asked_by_ascending_time_in_both_directions() -> None:
    asked: list[Query] = []

    def predict(query: Query) -> Mapping[int, float]:
        asked.append(query)
        return {}

    list(mean_ranks(predict, graph((0, 0, 1, 5), (2, 0, 3, -4)), graph()))
    assert asked == [
        Query(2, 0, forward=True, time=-4),
        Query(3, 0, forward=False, time=-4),
        Query(0, 0, forward=True, time=5),
        Query(1, 0, forward=False, time=5),
    ]


def test_measures_are_means_over_queries_with_intervals_around_them() -> None:
    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.9} if query.forward else {5: 0.9, 6: 0.8, 7: 0.7, 0: 0.6}

    done: list[int] = []
    result = evaluate(predict, graph((0, 0, 1, 5)), graph(), done.append)
    assert (result.queries, done) == (2, [1, 2])
    assert result.mrr.value == (1 + 1 / 4) / 2
    assert (result.mrr.low, result.mrr.high) == (0.25, 1)
    assert (result.hits_1.value, result.hits_3.value, result.hits_10.value) == (0.5, 0.5, 1)


def test_nothing_to_test_is_an_error() -> None:
    with pytest.raises(ValueError, match="no fact is tested"):
        evaluate(predict_nothing, graph(), graph())


def test_a_static_graph_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no times"):
        evaluate(predict_nothing, graph((0, 0, 1, 5))._replace(times=None), graph())
