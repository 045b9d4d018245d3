"""Fuse ranked lists: normalise scores, interleave, diversify and rerank."""

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, zip_longest
from operator import itemgetter
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeVar

from shared import canonical
from shared.calls import Call
from shared.params import FusionParams
from shared.rag.text import TermWeights, cosine, extract_terms

# Normalise the scores of a list, so that lists are comparable: min-max, z-score, sigmoid, rank, or raw (unchanged).
#
# Two questions that implementations answer differently (ranx gives 0 to every document of a constant list, seed
# document 003 gives 0.5, llama_index 1; AutoRAG divides by zero) have one answer for the first four:
#
# - *A document that a list misses* ranks behind all that it holds, so its value is the highest that it can have there:
# that of the last document, or the next rank. Never the mean, which z-scores call 0.
# - *A constant list* says only that its documents are better than those that it misses. They get what the better one of
# a list of two gets, and a missing one what the other gets.


class Normalised(NamedTuple):
    """The normalised scores of a list in order, and the value of any document that it misses."""

    found: list[float]
    missing: float


Normaliser = Callable[[Sequence[float]], Normalised]
"""Never lowers a document below one with a lower score. Raises ValueError for scores that are not finite."""


def min_max(scores: Sequence[float]) -> Normalised:
    """Map scores to (score - lowest) / (highest - lowest), in [0, 1]; a missing one to 0. A constant list becomes 1."""
    low, high = _bounds(scores)
    if low == high:
        return Normalised([1.0] * len(scores), 0.0)
    return Normalised([(score - low) / (high - low) for score in scores], 0.0)


def z_score(scores: Sequence[float]) -> Normalised:
    """Convert scores to standard deviations above the mean (the variance is divided by n); missing: the lowest of them.

    In a constant list each gets 1, and missing -1: the z-scores of a list that is half one score and half another.
    """
    low, high = _bounds(scores)
    if not scores:
        return Normalised([], -1.0)
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    if low == high or deviation == 0:
        return Normalised([1.0] * len(scores), -1.0)
    return Normalised([(score - mean) / deviation for score in scores], (low - mean) / deviation)


def sigmoid(scores: Sequence[float], slope: float = 1.0) -> Normalised:
    """Map scores to 1 / (1 + exp(-slope * z)), where z counts standard deviations from the mean (003).

    The result is relative to the list, whose middle always gets 0.5, however bad it is: set no threshold on it.
    """
    found, missing = z_score(scores)
    return Normalised([logistic(slope * z) for z in found], logistic(slope * missing))


def rank(scores: Sequence[float]) -> Normalised:
    """Map each score to 1 - (scores above it) / n: the best gets 1, equal ones the same; missing 0, the next rank."""
    _bounds(scores)
    above = {score: place for place, score in reversed(list(enumerate(sorted(scores, reverse=True))))}
    return Normalised([1 - above[score] / len(scores) for score in scores], 0.0)


def raw(scores: Sequence[float]) -> Normalised:
    """Keep the scores; a missing document gets 0, as in Elasticsearch's sum of `knn` and `match`, or the last score if
    that is lower.
    """
    low, _ = _bounds(scores)
    return Normalised(list(scores), min(0.0, low))


NORMALISERS: dict[Literal["min-max", "z-score", "sigmoid", "rank", "raw"], Normaliser] = {
    "min-max": min_max,
    "z-score": z_score,
    "sigmoid": sigmoid,
    "rank": rank,
    "raw": raw,
}


def logistic(logit: float) -> float:
    """Compute 1 / (1 + exp(-logit)), the probability of a logit, without overflow for any finite number."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1 + odds)


def _bounds(scores: Sequence[float]) -> tuple[float, float]:
    for score in scores:
        canonical.require_finite(score, "score")
    return min(scores, default=0.0), max(scores, default=0.0)


# Fuse ranked lists by reciprocal ranks or by the weighted sum of normalised scores.

Ranked = Sequence[tuple[str, float]]
"""Document hashes and their scores, best first."""


def fuse(
    lists: Sequence[Ranked], weights: Sequence[float], params: FusionParams, rrf_k: int
) -> list[tuple[str, float]]:
    """Fuse `lists` as a job's parameters say; `weights` is separate because a pipeline may have its own lists.

    Raises:
        ValueError: as `rrf` and `weighted_sum` do.
    """
    if params.method == "rrf":
        return rrf([[document for document, _ in ranked] for ranked in lists], k=rrf_k, weights=weights)
    normaliser = NORMALISERS[params.normaliser]
    return weighted_sum(lists, weights, partial(sigmoid, slope=params.slope) if normaliser is sigmoid else normaliser)


def rrf(lists: Sequence[Sequence[str]], k: int = 60, weights: Sequence[float] | None = None) -> list[tuple[str, float]]:
    """Fuse ranked lists of document hashes: score = sum of w / (k + rank) over the lists that hold the document.

    Ranks count from 1 (Cormack et al. 2009, k = 60). A document that a list repeats counts once, at its best rank.
    w is the list's weight divided by the largest one, so that equal weights are the plain sum to the last bit. A list
    of weight 0 is as if it were not there.
    Returns (hash, score) by falling score; ties are broken by hash, so the order never depends on the lists' order.

    Raises:
        ValueError: for a negative `k`, with which 1 / (k + rank) may not exist, and for weights that are not one a
            list, negative, not finite, or all 0.
    """
    if k < 0:
        raise ValueError(f"`k` must not be negative, but is {k}")
    weights = _check([1.0] * len(lists) if weights is None else weights, lists)
    heaviest = max(weights, default=1.0)
    return _add_up(
        {document: weight / heaviest / (k + rank) for document, rank in find_best_ranks(ranked).items()}
        for ranked, weight in zip(lists, weights, strict=True)
        if weight
    )


def weighted_sum(
    lists: Sequence[Ranked], weights: Sequence[float], normaliser: Normaliser = min_max
) -> list[tuple[str, float]]:
    """Fuse by score: the sum of weight * normalised score over *all* lists; a list gives its `missing` value to others.

    An empty list has found nothing to compare with, and adds nothing to any document; neither does one of weight 0. A
    document that a list repeats counts once, at its first place. Returns (hash, score) by falling score; ties are
    broken by hash.

    Raises:
        ValueError: for scores that are not finite, and for weights as `rrf` does.
    """
    weights = _check(weights, lists)
    # Of a document that is there twice, `dict` keeps the first place, which comes last here.
    listed = [
        (dict(reversed(ranked)), weight) for ranked, weight in zip(lists, weights, strict=True) if ranked and weight
    ]
    documents = {document for scores, _ in listed for document in scores}
    parts = []
    for scores, weight in listed:
        found, missing = normaliser(list(scores.values()))
        values = dict(zip(scores, found, strict=True))
        parts.append({document: weight * values.get(document, missing) for document in documents})
    return _add_up(parts)


def find_best_ranks(ranked: Sequence[str]) -> dict[str, int]:
    """Return the best rank (from 1) of every document in a ranked list."""
    ranks: dict[str, int] = {}
    for rank, document in enumerate(ranked, start=1):
        ranks.setdefault(document, rank)
    return ranks


def _add_up(parts: Iterable[Mapping[str, float]]) -> list[tuple[str, float]]:
    by_document: defaultdict[str, list[float]] = defaultdict(list)
    for added in parts:
        for document, value in added.items():
            by_document[document].append(value)
    # fsum is exact, so that adding in another order cannot break a tie.
    fused = [(document, math.fsum(values)) for document, values in by_document.items()]
    fused.sort(key=itemgetter(0))
    fused.sort(key=itemgetter(1), reverse=True)  # stable, so equal scores keep the order of their hashes
    return fused


def _check(weights: Sequence[float], lists: Sequence[object]) -> list[float]:
    if len(weights) != len(lists):
        raise ValueError(f"{len(lists)} lists need one weight each, but got {len(weights)}")
    for weight in weights:
        if canonical.require_finite(weight, "weight") < 0:
            raise ValueError(f"a weight must not be negative, but one is {weight}")
    if weights and not any(weights):
        raise ValueError("at least one list needs a weight above 0")
    return list(weights)


# Rerank by reasoning quality and, with little weight, by retrieval rank (MathRAG-Gate paper, 5.3: 0.9 and 0.1).


class RerankedCandidate(NamedTuple):
    """A candidate in its final place."""

    document: str
    rank: int
    """Its rank, from 1."""
    fused: float
    """RRF score as it came in."""
    quality: float | None
    score: float | None
    """rrf_weight * normalised RRF + quality_weight * quality; None without a quality."""


def rerank(
    fused: Sequence[tuple[str, float]],
    quality: Mapping[str, float | None],
    *,
    rrf_weight: float = 0.1,
    quality_weight: float = 0.9,
) -> list[RerankedCandidate]:
    """Order candidates by rrf_weight * normalised RRF + quality_weight * quality, highest first.

    RRF is min-max normalised over all the candidates given. Those without a quality (None, or absent from `quality`)
    come last, in RRF order: a missing rating is not a bad one, but nothing puts it before a known one either.
    Ties are broken by hash.
    """
    scored = []
    for (document, rrf), relevance in zip(fused, min_max([score for _, score in fused]).found, strict=True):
        known = quality.get(document)
        score = None if known is None else rrf_weight * relevance + quality_weight * known
        scored.append(RerankedCandidate(document=document, rank=0, fused=rrf, quality=known, score=score))
    scored.sort(
        key=lambda each: (each.score is None, -(each.fused if each.score is None else each.score), each.document)
    )
    return [entry._replace(rank=rank) for rank, entry in enumerate(scored, start=1)]


def measure_diversity(texts: Sequence[str]) -> float:
    """Return 1 - the mean TF-IDF cosine of all pairs, in [0, 1]; weights are computed over these texts.

    Copies of one text have 0, texts without a common term 1; fewer than two have 0, for one text is not diverse.
    """
    found = [extract_terms(text) for text in texts]
    weights = TermWeights(found)
    vectors = [weights.vector(each) for each in found]
    pairs = [cosine(left, right) for left, right in combinations(vectors, 2)]
    return 1 - fmean(pairs) if pairs else 0.0


T = TypeVar("T")


def interleave(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """Return the first item of every list, then the second, and so on."""
    end = object()
    for row in zip_longest(*lists, fillvalue=end):
        yield from (each for each in row if each is not end)  # type: ignore[misc]


def keep_first_of_each(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the first item of every key, in order."""
    first: dict[Hashable, T] = {}
    for each in items:
        first.setdefault(key(each), each)
    return list(first.values())


Part = Generator[Sequence[Call], Any, T]
"""Yields calls, is sent their replies in order, and returns a result."""


def run_in_step(parts: Sequence[Part[T]]) -> Part[list[T]]:
    """Run all parts in as many steps as the longest needs, and return their results in order.

    Each step yields the calls of all parts together.
    """
    results: dict[int, T] = {}
    waiting = {place: _advance(part, None, place, results) for place, part in enumerate(parts)}
    while waiting := {place: calls for place, calls in waiting.items() if place not in results}:
        replies = iter((yield [call for calls in waiting.values() for call in calls]))
        answers = {place: [next(replies) for _ in calls] for place, calls in waiting.items()}
        waiting = {place: _advance(parts[place], given, place, results) for place, given in answers.items()}
    return [results[place] for place in range(len(parts))]


def _advance(part: Part[T], replies: Any, place: int, results: dict[int, T]) -> Sequence[Call]:
    """Return the calls that the part waits for; if it has ended, store its result in `results`."""
    try:
        return part.send(replies)
    except StopIteration as ended:
        results[place] = ended.value
        return ()
