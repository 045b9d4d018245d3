"""Link prediction: where a predictor ranks the entities that tested facts hold for."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph, steps
from shared.statistics.bootstrap import bootstrap
from shared.statistics.intervals import Interval, wilson


class Query(NamedTuple):
    """What is asked: `(entity, relation, ?)` forward, or `(?, relation, entity)`, at a time."""

    entity: int
    relation: int
    forward: bool
    time: int


Predict = Callable[[Query], Mapping[int, float]]
"""Scores of the entities that may answer; it must look only at facts before the query's time. An entity that is left
out ranks below all that are scored."""


Rank = Fraction | None
"""Where an answer ranks, from 1; None: it is missed, a reciprocal rank of 0 and no hit."""


class LinkPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """Filtered measures with 95 % intervals over queries: bootstrap for the MRR, Wilson's for the hits."""

    queries: int
    mrr: Interval
    """Mean reciprocal rank."""
    hits_1: Interval
    """Share of the queries whose answer ranks first."""
    hits_3: Interval
    hits_10: Interval


def evaluate(
    predict: Predict, tested: Graph, known: Graph, watch: Callable[[int], None] | None = None
) -> LinkPrediction:
    """Both directions of every tested fact; `known` holds the facts that may be true answers, beside the tested ones.

    Both graphs number the same entities and relations. `watch` is told after each query how many are done.

    Raises:
        ValueError: a graph has no times, or nothing is tested.
    """
    ranks: Counter[Rank] = Counter()
    for done, rank in enumerate(mean_ranks(predict, tested, known), start=1):
        ranks[rank] += 1
        if watch is not None:
            watch(done)
    if not ranks:
        raise ValueError("no fact is tested: give at least one fact to predict")
    return summarise(ranks)


def mean_ranks(predict: Predict, tested: Graph, known: Graph, unknown: Container[int] = ()) -> Iterator[Rank]:
    """The filtered rank of each query's answer, by ascending time, forward first.

    Other entities that answer the query at the same time are removed (time-aware filter). An answer whose score others
    have, too, gets the mean of the places that they share; so do all entities without a score, but for those that are
    `unknown`: such an answer is missed.
    """
    answers = _answers(tested, known)
    for query, answer in _queries(tested):
        scores = predict(query)
        is_missed = answer in unknown and answer not in scores
        yield None if is_missed else _rank(scores, answer, answers[query] - {answer}, len(known.entities))


def summarise(ranks: Mapping[Rank, int]) -> LinkPrediction:
    """The measures of so many queries at each rank."""
    queries = sum(ranks.values())
    mrr = bootstrap([{1 / rank if rank else Fraction(0): count for rank, count in ranks.items()}])
    assert mrr is not None, "there are queries"  # noqa: S101 - for mypy
    hits = {k: wilson(sum(count for rank, count in ranks.items() if rank and rank <= k), queries) for k in (1, 3, 10)}
    return LinkPrediction(queries=queries, mrr=mrr, hits_1=hits[1], hits_3=hits[3], hits_10=hits[10])


def _rank(scores: Mapping[int, float], answer: int, removed: set[int], entities: int) -> Fraction:
    kept = [score for entity, score in scores.items() if entity not in removed]
    if answer in scores:
        better, equal = sum(score > scores[answer] for score in kept), sum(score == scores[answer] for score in kept)
    else:
        better, equal = len(kept), entities - len(removed) - len(kept)
    return Fraction(2 * better + equal + 1, 2)


def _answers(tested: Graph, known: Graph) -> Mapping[Query, set[int]]:
    """All true answers of the tested queries; facts that answer none of them take no memory."""
    found: defaultdict[Query, set[int]] = defaultdict(set)
    for query, answer in _queries(tested):
        found[query].add(answer)
    for query, answer in _queries(_only_at(known, steps(tested))):
        if query in found:
            found[query].add(answer)
    return found


def _only_at(graph: Graph, times: NDArray[np.int64]) -> Graph:
    """The facts of these times."""
    kept = np.isin(steps(graph), times)
    return graph._replace(triples=graph.triples[kept], times=steps(graph)[kept])


def _queries(graph: Graph) -> Iterator[tuple[Query, int]]:
    """Both questions that each fact answers, and the answer."""
    times = steps(graph)
    for place in np.argsort(times, kind="stable").tolist():
        subject, relation, object_ = graph.triples[place].tolist()
        yield Query(subject, relation, forward=True, time=int(times[place])), object_
        yield Query(object_, relation, forward=False, time=int(times[place])), subject
