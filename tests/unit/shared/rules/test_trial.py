"""Held-out facts beside those of training."""

import pytest

from shared.rules.trial import make_trial
from tests.unit.shared.rules.plain_simple import Fact, graph_of

TRAIN: list[Fact] = [("ann", "visits", "bob", 1)]
HELD_OUT: list[Fact] = [("cid", "phones", "bob", 3), ("bob", "visits", "ann", 2)]


def test_both_graphs_number_the_names_of_training_first() -> None:
    trial = make_trial(graph_of(TRAIN), graph_of(HELD_OUT))
    assert (trial.known.entities, trial.known.relations) == (["ann", "bob", "cid"], ["visits", "phones"])
    assert (trial.unknown_entities, trial.unknown_relations) == (range(2, 3), range(1, 2))
    assert (trial.tested.triples.tolist(), trial.tested.times.tolist()) == ([[2, 1, 1], [1, 0, 0]], [3, 2])
    assert sorted(trial.known.triples.tolist()) == [[0, 0, 1], [1, 0, 0], [2, 1, 1]]


def test_a_limit_leaves_out_tests_and_no_knowledge() -> None:
    trial = make_trial(graph_of(TRAIN), graph_of(HELD_OUT), limit=1)
    assert (len(trial.tested.triples), len(trial.known.triples)) == (1, 3)


def test_a_held_out_fact_that_was_trained_on_is_known_once() -> None:
    trial = make_trial(graph_of(TRAIN), graph_of(TRAIN))
    assert (len(trial.tested.triples), len(trial.known.triples)) == (1, 1)


def test_facts_without_times_are_refused() -> None:
    with pytest.raises(ValueError, match="no times"):
        make_trial(graph_of(TRAIN), graph_of(HELD_OUT)._replace(times=None))
