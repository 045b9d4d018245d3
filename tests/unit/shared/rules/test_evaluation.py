"""Ranks and measures of link prediction."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from shared.rules.evaluation import Query, evaluate, mean_ranks, summarise
from shared.rules.graph import Graph


def graph(*facts: tuple[int, int, int, int]) -> Graph:
    """Facts of one relation among ten entities."""
    quads = np.array(facts).reshape(-1, 4)
    return Graph(quads[:, :3].astype(np.int32), quads[:, 3].astype(np.int64), list("abcdefghij"), ["r"])


def predict_nothing(query: Query) -> Mapping[int, float]:
    """No entity has a score."""
    return {}


def test_an_answer_ranks_by_its_score() -> None:
    """Second behind a better one; first alone."""

    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.5, 2: 0.7} if query.forward else {0: 0.1}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [2, 1]


def test_answers_of_equal_score_share_the_mean_of_their_places() -> None:
    """Places 2 to 5, whatever the order of the mapping."""

    def predict(query: Query) -> Mapping[int, float]:
        return {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.9}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [3.5, 3.5]


def test_entities_without_a_score_share_the_last_places() -> None:
    """Of ten entities two are scored: the others share places 3 to 10."""

    def predict(query: Query) -> Mapping[int, float]:
        return {8: 0.5, 9: 0.5}

    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), graph())) == [6.5, 6.5]


def test_an_unknown_answer_without_a_score_is_missed() -> None:
    """It counts 0 and is no hit, however few entities there are; with a score it ranks like any."""

    def predict(query: Query) -> Mapping[int, float]:
        return {0: 0.5} if not query.forward else {}

    ranks = list(mean_ranks(predict, graph((0, 0, 1, 5)), graph(), unknown=range(2)))
    assert ranks == [None, 1]
    result = summarise(Counter(ranks))
    assert (result.mrr.value, result.hits_10.value) == (0.5, 0.5)


def test_only_other_answers_at_the_same_time_are_removed() -> None:
    """What answers the query at another time stays a wrong answer (time-aware filter)."""

    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.1, 2: 0.9, 3: 0.8} if query.forward else {0: 1.0}

    known = graph((0, 0, 2, 5), (0, 0, 3, 4))
    assert list(mean_ranks(predict, graph((0, 0, 1, 5)), known)) == [2, 1]


def test_a_removed_entity_is_no_unscored_one_either() -> None:
    """Nine entities are left, and share places 1 to 9."""
    assert next(mean_ranks(predict_nothing, graph((0, 0, 1, 5)), graph((0, 0, 2, 5)))) == 5


def test_queries_are_asked_by_ascending_time_in_both_directions() -> None:
    """So a predictor may forget earlier windows; negative steps are steps."""
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
    """Ranks 1 and 4; progress is told after each."""

    def predict(query: Query) -> Mapping[int, float]:
        return {1: 0.9} if query.forward else {5: 0.9, 6: 0.8, 7: 0.7, 0: 0.6}

    done: list[int] = []
    result = evaluate(predict, graph((0, 0, 1, 5)), graph(), done.append)
    assert (result.queries, done) == (2, [1, 2])
    assert result.mrr.value == (1 + 1 / 4) / 2
    assert (result.mrr.low, result.mrr.high) == (0.25, 1)
    assert (result.hits_1.value, result.hits_3.value, result.hits_10.value) == (0.5, 0.5, 1)


def test_nothing_to_test_is_an_error() -> None:
    """A mean over nothing is no number."""
    with pytest.raises(ValueError, match="no fact is tested"):
        evaluate(predict_nothing, graph(), graph())


def test_a_static_graph_is_refused_in_words() -> None:
    """The message names what is missing."""
    with pytest.raises(ValueError, match="no times"):
        evaluate(predict_nothing, graph((0, 0, 1, 5))._replace(times=None), graph())
