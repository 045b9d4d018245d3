"""Fuse ranked lists by reciprocal ranks or by the weighted sum of normalised scores."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shared import canonical
from shared.params import FusionParams
from shared.rag.normalise import NORMALISERS, Normaliser, min_max

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
    return weighted_sum(lists, weights, NORMALISERS[params.normaliser])


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
        raise ValueError(f"`k` must not be negative, not {k}")
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

    What a missing document and a constant list get: `shared.rag.normalise`. An empty list has found nothing to compare
    with, and adds nothing to anybody; neither does one of weight 0. A document that a list repeats counts once, at its
    first place. Returns (hash, score) by falling score; ties are broken by hash.

    Raises:
        ValueError: for scores that are not finite, and for weights as `rrf` does.
    """
    weights = _check(weights, lists)
    listed = [
        (_keep_first_scores(ranked), weight) for ranked, weight in zip(lists, weights, strict=True) if ranked and weight
    ]
    documents = {document for scores, _ in listed for document in scores}
    return _add_up(_parts(scores, weight, normaliser, documents) for scores, weight in listed)


def find_best_ranks(ranked: Sequence[str]) -> dict[str, int]:
    """Return the best rank (from 1) of every document in a ranked list."""
    ranks: dict[str, int] = {}
    for rank, document in enumerate(ranked, start=1):
        ranks.setdefault(document, rank)
    return ranks


def _parts(scores: Mapping[str, float], weight: float, normaliser: Normaliser, documents: set[str]) -> dict[str, float]:
    """Return what one list adds to the score of every document."""
    found, missing = normaliser(list(scores.values()))
    values = dict(zip(scores, found, strict=True))
    return {document: weight * values.get(document, missing) for document in documents}


def _add_up(parts: Iterable[Mapping[str, float]]) -> list[tuple[str, float]]:
    by_document: defaultdict[str, list[float]] = defaultdict(list)
    for added in parts:
        for document, value in added.items():
            by_document[document].append(value)
    # fsum is exact, so that adding in another order cannot break a tie.
    fused = [(document, math.fsum(values)) for document, values in by_document.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def _keep_first_scores(ranked: Ranked) -> dict[str, float]:
    scores: dict[str, float] = {}
    for document, score in ranked:
        scores.setdefault(document, score)
    return scores


def _check(weights: Sequence[float], lists: Sequence[object]) -> list[float]:
    if len(weights) != len(lists):
        raise ValueError(f"{len(lists)} lists need as many weights, not {len(weights)}")
    for weight in weights:
        if canonical.require_finite(weight, "weight") < 0:
            raise ValueError(f"a weight must not be negative, not {weight}")
    if weights and not any(weights):
        raise ValueError("at least one list needs a weight above 0")
    return list(weights)
