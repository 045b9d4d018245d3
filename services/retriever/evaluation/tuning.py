"""`tune`: a parameter of fusion, chosen on some queries and measured on others."""

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
from services.retriever.evaluation.searching import Searcher
from shared.errors import Invalid
from shared.rag import metrics
from shared.statistics import significance

STEPS = 20
SHARES = tuple(step / STEPS for step in range(STEPS + 1))
"""Of the dense list: 0, 0.05 ... 1."""
CONSTANTS = tuple(range(4, 81, 4))
"""Of reciprocal ranks: AutoRAG's range."""
GRIDS: dict[str, tuple[float, ...]] = {"dense": SHARES, "rrf_k": CONSTANTS}
RESAMPLES = 2000
DEVELOPMENT = "dev"
"""The split that is chosen on unless another one is named."""


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """Queries to choose on, and queries to measure on; they share none."""

    development: Queries
    held_out: Queries
    how: str
    """Where they come from, in words."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the parameter on the development queries."""

    at: float
    value: float
    separable: bool
    """Whether the best one is better in a paired test."""


def tune(request: Tune, collection: Collection, searcher: Searcher) -> dict[str, Any]:
    """The result: the curve, the choice with its plateau and interval, and what it is worth on other queries.

    Raises:
        Invalid, InvalidLine: the mode has no weights, the measure looks too far, there are too few queries, or a file
            cannot be used.
    """
    base, metric, grid = _tunable(request), sighted(request.metric, request.k), GRIDS[request.over]
    halves = split(request, collection)
    values = _values(request, base, halves.development, searcher)
    curve = points(grid, values)
    chosen = grid[int(values.mean(axis=1).argmax())]
    tuned = _at(base, request.over, chosen)
    return {
        "mode": base.name,
        "over": request.over,
        "metric": metric,
        "k": request.k,
        "development": {"from": halves.how, **counts(collection, halves.development)},
        "chosen": chosen,
        "interval": interval(grid, values, request.seed),
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
        Invalid: there is no such split, or one of them would hold fewer than two queries.
    """
    held_out = collection.queries(request.held_out)
    named = request.split or (DEVELOPMENT if DEVELOPMENT in collection.splits() else request.held_out)
    if named != request.held_out:
        found = collection.queries(named)
        development = found.only(set(found.judged) - set(held_out.judged))
        how = f"{named}.tsv"
    else:
        names = sorted(held_out.judged)
        random.Random(request.seed).shuffle(names)  # noqa: S311 - which half, not a secret
        half = set(names[: len(names) // 2])
        development, held_out = held_out.only(half), held_out.only(set(names) - half)
        how = f"half of {named}.tsv, seed {request.seed}"
    if min(len(development.judged), len(held_out.judged)) < 2:
        raise Invalid(f"`{request.held_out}` has too few queries to choose on some and to measure on others")
    return Halves(development=development, held_out=held_out, how=how)


def points(grid: Sequence[float], values: NDArray[np.float64]) -> list[Point]:
    """The curve, from values [len(grid), queries]."""
    best = int(values.mean(axis=1).argmax())
    return [
        Point(at=at, value=float(found.mean()), separable=_worse(found, values[best]))
        for at, found in zip(grid, values, strict=True)
    ]


def plateau(curve: Sequence[Point], chosen: float) -> list[float]:
    """From where to where around the choice nothing is separable from it."""
    low = high = next(place for place, point in enumerate(curve) if point.at == chosen)
    while low > 0 and not curve[low - 1].separable:
        low -= 1
    while high < len(curve) - 1 and not curve[high + 1].separable:
        high += 1
    return [curve[low].at, curve[high].at]


def interval(grid: Sequence[float], values: NDArray[np.float64], seed: int) -> list[float]:
    """Between which values 95 % of the choices lie, had other queries of the kind been asked (bootstrap of queries)."""
    queries = values.shape[1]
    draws = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES)
    choices = np.asarray(grid)[(values @ draws.T).argmax(axis=0)]
    tail = 100 * significance.LEVEL / 2
    low, high = np.percentile(choices, [tail, 100 - tail], method="nearest")
    return [float(low), float(high)]


def settings(tuned: Mode) -> str:
    """What to add to `mathrag job submit`."""
    fusion = tuned.fusion
    chosen = {
        "fusion.method": fusion.method,
        "fusion.normaliser": fusion.normaliser,
        "fusion.dense": fusion.dense,
        "fusion.sparse": fusion.sparse,
        "rrf_k": tuned.rrf_k,
    }
    del chosen["fusion.normaliser" if fusion.method == "rrf" else "rrf_k"]
    return " ".join(f"--set {name}={value}" for name, value in chosen.items())


def _tunable(request: Tune) -> Mode:
    base = mode(request.mode, request.params)
    if len(base.kinds) < 2 or base.reranks or base.enhances:
        raise Invalid(f"`{base.name}` has nothing to tune", hint="tune hybrid, weighted, weighted-z-score ...")
    if request.over == "rrf_k" and base.fusion.method != "rrf":
        raise Invalid(f"`{base.name}` has no constant of reciprocal ranks", hint="--mode hybrid --over rrf_k")
    return base


def _at(base: Mode, over: str, value: float) -> Mode:
    return base.sharing(value) if over == "dense" else msgspec.structs.replace(base, rrf_k=int(value))


def _values(request: Tune, base: Mode, queries: Queries, searcher: Searcher) -> NDArray[np.float64]:
    """Of the measure [values of the parameter, queries]."""
    lists = searcher.lists(base.kinds, queries)
    modes = (_at(base, request.over, value) for value in GRIDS[request.over])
    measured = (metrics.per_query(queries.judged, searcher.ranked(each, lists), [request.metric]) for each in modes)
    return np.array([[found[request.metric] for found in each.values()] for each in measured])


def _worse(found: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    tested = significance.paired(best.tolist(), found.tolist())
    return tested is not None and tested.p < significance.LEVEL


def _held_out(request: Tune, tuned: Mode, base: Mode, queries: Queries, searcher: Searcher) -> dict[str, Any]:
    """The choice on queries that it was not made on, against what needs no choice."""
    name = request.metric
    modes = {"tuned": tuned, "untuned": base, **{kind: mode(kind, request.params) for kind in ("dense", "sparse")}}
    lists = searcher.lists(base.kinds, queries)
    measured = {
        label: metrics.per_query(queries.judged, searcher.ranked(each, lists), [name]) for label, each in modes.items()
    }
    chosen = measured.pop("tuned")
    tests = differences(chosen, measured, name)
    return {
        **figures(chosen, [name]),
        "against": [
            {"mode": other, **figures(values, [name]), "difference": tests[other]} for other, values in measured.items()
        ],
    }
