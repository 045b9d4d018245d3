"""Held-out facts ranked by the rules of a bank, a portion at a time, by several processes."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mathrag.cli.held_out import Bank
from mathrag.client.errors import Failed
from shared.rules.evaluation import Predict, Query, Rank, mean_ranks
from shared.rules.graph import Graph, steps
from shared.rules.simple.prediction import Predictor as SimplePredictor
from shared.rules.tlogic.prediction import Predictor as TLogicPredictor
from shared.rules.trial import Trial

Integers = NDArray[np.int64]
PORTION = 20
"""Facts that a process ranks before it reports."""
PREDICTORS = {"tlogic": TLogicPredictor, "temporal-simple": SimplePredictor}


class Ranked(NamedTuple):
    """What became of the queries of a portion."""

    ranks: Counter[Rank]
    without_candidate: int
    """Queries for which no rule names an entity."""


class Ranker:
    """Ranks facts of a trial."""

    def __init__(self, predict: Predict, trial: Trial) -> None:
        self._predict = predict
        self._trial = trial

    def rank(self, places: Integers) -> Ranked:
        """Both queries of the tested facts of these places."""
        tested, empty = self._trial.tested, 0
        portion = tested._replace(triples=tested.triples[places], times=steps(tested)[places])

        def predict(query: Query) -> Mapping[int, float]:
            nonlocal empty
            scores = self._predict(query)
            empty += not scores
            return scores

        ranks = Counter(mean_ranks(predict, portion, self._trial.known, self._trial.unknown_entities))
        return Ranked(ranks, empty)


def rank(bank: Bank, trial: Trial, processes: int, watch: Callable[[int], None]) -> Ranked:
    """All tested facts; `watch` is told how many queries are done.

    Raises:
        Failed: the rules cannot be applied, or a process was killed.
    """
    try:
        ranker = Ranker(PREDICTORS[bank.miner](bank.rules, trial.known).predict, trial)
    except ValueError as error:
        raise Failed("invalid", f"the bank cannot be applied: {error}") from error
    total = Ranked(Counter(), 0)
    for found in _each(ranker, _portions(trial.tested), processes):
        total = Ranked(total.ranks + found.ranks, total.without_candidate + found.without_candidate)
        watch(total.ranks.total())
    return total


def _portions(tested: Graph) -> Sequence[Integers]:
    """The places of facts, those of neighbouring times together."""
    order = np.argsort(steps(tested), kind="stable")
    return [order[begin : begin + PORTION] for begin in range(0, len(order), PORTION)]


def _each(ranker: Ranker, portions: Sequence[Integers], processes: int) -> Iterator[Ranked]:
    if min(processes, len(portions)) == 1:
        yield from map(ranker.rank, portions)
        return
    pool = ProcessPoolExecutor(min(processes, len(portions)), initializer=_begin, initargs=(ranker,))
    try:
        yield from pool.map(_rank, portions)
    except BrokenProcessPool as error:
        hint = "fewer --processes take less memory"
        raise Failed("unavailable", "a process was killed, maybe for want of memory", hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


_rankers: list[Ranker] = []
"""Of this process."""


def _begin(ranker: Ranker) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which then ends its processes
    _rankers[:] = [ranker]


def _rank(places: Integers) -> Ranked:
    return _rankers[0].rank(places)
