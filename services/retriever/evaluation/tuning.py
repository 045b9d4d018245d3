"""`tune`: how much the dense list should weigh, chosen on some queries and measured on others."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.evaluating import counts, differences, figures, sighted
from services.retriever.evaluation.modes import Mode, mode
from services.retriever.evaluation.requests import Tune
from services.retriever.evaluation.searching import Run, Searcher, ranked
from shared.errors import Invalid
from shared.rag import metrics, significance

STEPS = 20
SHARES = tuple(step / STEPS for step in range(STEPS + 1))
"""Of the dense list: 0, 0.05 ... 1."""
RESAMPLES = 2000


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """Queries to choose on, and queries to measure on; they share none."""

    development: Queries
    held_out: Queries
    how: str
    """Where they come from, in words."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One share on the development queries."""

    dense: float
    value: float
    separable: bool
    """Whether the best share is better in a paired test."""


def tune(request: Tune, collection: Collection, searcher: Searcher) -> dict[str, Any]:
    """The result: the curve, the choice with its plateau and interval, and what it is worth on other queries.

    Raises:
        Invalid, InvalidLine: the mode has no weights, the measure looks too far, there are too few queries, or a file
            cannot be used.
    """
    base, metric = _weighing(request), sighted(request.metric, request.k)
    halves = split(request, collection)
    values = _grid(request, base, halves.development, searcher)
    chosen = SHARES[int(values.mean(axis=1).argmax())]
    curve = points(values)
    tuned = base.sharing(chosen)
    return {
        "mode": base.name,
        "metric": metric,
        "k": request.k,
        "development": {"from": halves.how, **counts(collection, halves.development)},
        "dense": chosen,
        "interval": interval(values, request.seed),
        "plateau": plateau(curve, chosen),
        "curve": curve,
        "set": settings(tuned),
        "held_out": {
            "from": f"{request.held_out}.tsv",
            **counts(collection, halves.held_out),
            **_held_out(request, tuned, base, halves.held_out, searcher),
        },
    }


def split(request: Tune, collection: Collection) -> Halves:
    """Development and held-out queries; a query of both splits belongs to the latter.

    Raises:
        Invalid: one of them would hold fewer than two queries.
    """
    held_out = collection.queries(request.held_out)
    if request.split in collection.splits() and request.split != request.held_out:
        found = collection.queries(request.split)
        development = found.only(set(found.judged) - set(held_out.judged))
        how = f"{request.split}.tsv"
    else:
        names = sorted(held_out.judged)
        random.Random(request.seed).shuffle(names)  # noqa: S311 - which half, not a secret
        half = set(names[: len(names) // 2])
        development, held_out = held_out.only(half), held_out.only(set(names) - half)
        how = f"half of {request.held_out}.tsv, seed {request.seed}"
    if min(len(development.judged), len(held_out.judged)) < 2:
        raise Invalid(f"`{request.held_out}` has too few queries to choose on some and to measure on others")
    return Halves(development=development, held_out=held_out, how=how)


def points(values: NDArray[np.float64]) -> list[Point]:
    """The curve over `SHARES`, from values [shares, queries]."""
    best = int(values.mean(axis=1).argmax())
    return [
        Point(dense=share, value=float(found.mean()), separable=_worse(found, values[best]))
        for share, found in zip(SHARES, values, strict=True)
    ]


def plateau(curve: Sequence[Point], chosen: float) -> list[float]:
    """From where to where around the choice nothing is separable from it."""
    at = next(place for place, point in enumerate(curve) if point.dense == chosen)
    low, high = at, at
    while low > 0 and not curve[low - 1].separable:
        low -= 1
    while high < len(curve) - 1 and not curve[high + 1].separable:
        high += 1
    return [curve[low].dense, curve[high].dense]


def interval(values: NDArray[np.float64], seed: int) -> list[float]:
    """Between which shares 95 % of the choices lie, had other queries of the kind been asked (bootstrap of queries)."""
    queries = values.shape[1]
    draws = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES)
    choices = np.asarray(SHARES)[(values @ draws.T).argmax(axis=0)]
    tail = 100 * significance.LEVEL / 2
    low, high = np.percentile(choices, [tail, 100 - tail], method="nearest")
    return [float(low), float(high)]


def settings(tuned: Mode) -> str:
    """What to add to `mathrag job submit`."""
    fusion = tuned.fusion
    chosen = {"method": fusion.method, "normaliser": fusion.normaliser, "dense": fusion.dense, "sparse": fusion.sparse}
    if fusion.method == "rrf":
        del chosen["normaliser"]
    return " ".join(f"--set fusion.{name}={value}" for name, value in chosen.items())


def _weighing(request: Tune) -> Mode:
    base = mode(request.mode, request.params)
    if len(base.kinds) < 2 or base.reranks:
        raise Invalid(f"`{base.name}` has no weights to tune", hint="tune hybrid, weighted, weighted-z-score ...")
    return base


def _grid(request: Tune, base: Mode, queries: Queries, searcher: Searcher) -> NDArray[np.float64]:
    """Values [shares, queries]."""
    lists = searcher.lists(base.kinds, queries)
    runs = (ranked(base.sharing(share), lists, queries, request.k) for share in SHARES)
    return np.array([_values(request, queries, each) for each in runs])


def _values(request: Tune, queries: Queries, run: Run) -> list[float]:
    measured = metrics.per_query(queries.judged, run, [request.metric])
    return [found[request.metric] for found in measured.values()]


def _worse(found: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    tested = significance.paired(best.tolist(), found.tolist())
    return tested is not None and tested.p < significance.LEVEL


def _held_out(request: Tune, tuned: Mode, base: Mode, queries: Queries, searcher: Searcher) -> dict[str, Any]:
    """The choice on queries that it was not made on, against what needs no choice."""
    name = request.metric
    named = {"tuned": tuned, "equal weights": base.sharing(0.5)}
    plain = {kind: mode(kind, request.params) for kind in ("dense", "sparse")}
    lists = searcher.lists(base.kinds, queries)
    measured = {
        label: metrics.per_query(queries.judged, ranked(each, lists, queries, request.k), [name])
        for label, each in (named | plain).items()
    }
    (_, chosen), *others = measured.items()
    tests = differences(chosen, dict(others), name)
    return {
        **figures(chosen, [name]),
        "against": [{"mode": other, **figures(values, [name]), "difference": tests[other]} for other, values in others],
    }
