"""Rank held-out facts by the rules of a bank, in portions, with several processes."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mathrag.cli.held_out import TemporalBank
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


class RankedQueries(NamedTuple):
    """The ranks of a portion's queries."""

    ranks: Counter[Rank]
    without_candidate: int
    """Queries for which no rule names an entity."""


class Ranker:
    """Ranks the tested facts of a trial with one predictor."""

    def __init__(self, predict: Predict, trial: Trial) -> None:
        self._predict = predict
        self._trial = trial

    def rank(self, places: Integers) -> RankedQueries:
        """Rank the subject query and the object query of the tested facts at these positions."""
        tested, empty = self._trial.tested, 0
        portion = tested._replace(triples=tested.triples[places], times=steps(tested)[places])

        def predict(query: Query) -> Mapping[int, float]:
            nonlocal empty
            scores = self._predict(query)
            empty += not scores
            return scores

        ranks = Counter(mean_ranks(predict, portion, self._trial.known, self._trial.unknown_entities))
        return RankedQueries(ranks, empty)


def rank(bank: TemporalBank, trial: Trial, processes: int, watch: Callable[[int], None]) -> RankedQueries:
    """Rank all tested facts; `watch` is called with the number of ranked queries.

    Raises:
        Failed: the rules cannot be applied, or a process was killed.
    """
    try:
        ranker = Ranker(PREDICTORS[bank.miner](bank.rules, trial.known).predict, trial)
    except ValueError as error:
        raise Failed("invalid", f"the bank cannot be applied: {error}") from error
    total = RankedQueries(Counter(), 0)
    for found in _rank_portions(ranker, _split_portions(trial.tested), processes):
        total = RankedQueries(total.ranks + found.ranks, total.without_candidate + found.without_candidate)
        watch(total.ranks.total())
    return total


def _split_portions(tested: Graph) -> Sequence[Integers]:
    """Return the positions of facts in portions, sorted by time, so that a portion shares its history."""
    order = np.argsort(steps(tested), kind="stable")
    return [order[begin : begin + PORTION] for begin in range(0, len(order), PORTION)]


def _rank_portions(ranker: Ranker, portions: Sequence[Integers], processes: int) -> Iterator[RankedQueries]:
    if min(processes, len(portions)) == 1:
        yield from map(ranker.rank, portions)
        return
    pool = ProcessPoolExecutor(min(processes, len(portions)), initializer=_begin, initargs=(ranker,))
    try:
        yield from pool.map(_rank, portions)
    except BrokenProcessPool as error:
        hint = "use fewer --processes, which need less memory"
        raise Failed("unavailable", "a process was killed, possibly because memory ran out", hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


_rankers: list[Ranker] = []
"""The ranker of this worker process, if any."""


def _begin(ranker: Ranker) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles Ctrl-C and ends its processes
    _rankers[:] = [ranker]


def _rank(places: Integers) -> RankedQueries:
    return _rankers[0].rank(places)
