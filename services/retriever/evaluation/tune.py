"""Choose a parameter of fusion on some queries and measure the choice on others (`tune`)."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.evaluate import compare_measures, count_queries, require_depth, summarise
from services.retriever.evaluation.modes import Mode, choose_mode
from services.retriever.evaluation.requests import Tune
from services.retriever.evaluation.searcher import CollectionSearcher
from shared.errors import Invalid
from shared.rag import metrics
from shared.statistics import significance

STEPS = 20
SHARES = tuple(step / STEPS for step in range(STEPS + 1))
"""Weights of the dense list that are tried: 0, 0.05 ... 1."""
CONSTANTS = tuple(range(4, 81, 4))
"""Constants of reciprocal rank fusion that are tried, in AutoRAG's range."""
GRIDS: dict[str, tuple[float, ...]] = {"dense": SHARES, "rrf_k": CONSTANTS}
RESAMPLES = 2000
DEVELOPMENT = "dev"
"""The split on which the value is chosen unless the request names one."""


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """Queries on which the value is chosen, and queries on which it is measured; they are disjoint."""

    development: Queries
    held_out: Queries
    how: str
    """Where the development queries come from, in words."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the parameter, measured on the development queries."""

    at: float
    value: float
    separable: bool
    """Whether the best value is better in a paired test."""


def tune(request: Tune, collection: Collection, searcher: CollectionSearcher) -> dict[str, Any]:
    """Return the curve, the choice with its plateau and interval, and how the choice does on other queries.

    Raises:
        Invalid, InvalidLine: the mode has no weights, the measure looks too far, there are too few queries, or a file
            cannot be used.
    """
    base, metric, grid = _require_tunable_mode(request), require_depth(request.metric, request.k), GRIDS[request.over]
    halves = split_queries(request, collection)
    values = _measure_values(request, base, halves.development, searcher)
    curve = make_curve(grid, values)
    chosen = grid[int(values.mean(axis=1).argmax())]
    tuned = _set_value(base, request.over, chosen)
    return {
        "mode": base.name,
        "over": request.over,
        "metric": metric,
        "k": request.k,
        "development": {"from": halves.how, **count_queries(collection, halves.development)},
        "chosen": chosen,
        "interval": estimate_interval(grid, values, request.seed),
        "plateau": find_plateau(curve, chosen),
        "curve": curve,
        "set": format_settings(tuned),
        "held_out": {
            "from": f"{request.held_out}.tsv",
            **count_queries(collection, halves.held_out),
            **_measure_held_out(request, tuned, base, halves.held_out, searcher),
        },
    }


def split_queries(request: Tune, collection: Collection) -> Halves:
    """Split into development and held-out queries; a query of both splits is held out.

    Raises:
        Invalid: there is no such split, or one of them would hold fewer than two queries.
    """
    held_out = collection.queries(request.held_out)
    split = request.split or (DEVELOPMENT if DEVELOPMENT in collection.splits() else request.held_out)
    if split != request.held_out:
        found = collection.queries(split)
        development = found.only(set(found.judged) - set(held_out.judged))
        how = f"{split}.tsv"
    else:
        names = sorted(held_out.judged)
        random.Random(request.seed).shuffle(names)  # noqa: S311 - which half, not a secret
        half = set(names[: len(names) // 2])
        development, held_out = held_out.only(half), held_out.only(set(names) - half)
        how = f"half of {split}.tsv, seed {request.seed}"
    if min(len(development.judged), len(held_out.judged)) < 2:
        raise Invalid(
            f"`{request.held_out}` has too few queries: two are needed to choose on, and two others to measure on"
        )
    return Halves(development=development, held_out=held_out, how=how)


def make_curve(grid: Sequence[float], values: NDArray[np.float64]) -> list[CurvePoint]:
    """Make the curve from values [len(grid), queries]."""
    best = int(values.mean(axis=1).argmax())
    return [
        CurvePoint(at=at, value=float(found.mean()), separable=_is_worse(found, values[best]))
        for at, found in zip(grid, values, strict=True)
    ]


def find_plateau(curve: Sequence[CurvePoint], chosen: float) -> list[float]:
    """Return the first and last value around the choice between which no value is separable from it."""
    low = high = next(place for place, point in enumerate(curve) if point.at == chosen)
    while low > 0 and not curve[low - 1].separable:
        low -= 1
    while high < len(curve) - 1 and not curve[high + 1].separable:
        high += 1
    return [curve[low].at, curve[high].at]


def estimate_interval(grid: Sequence[float], values: NDArray[np.float64], seed: int) -> list[float]:
    """Estimate the range of 95 % of the choices on other queries of the kind, by a bootstrap over queries."""
    queries = values.shape[1]
    draws = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES)
    choices = np.asarray(grid)[(values @ draws.T).argmax(axis=0)]
    tail = 100 * significance.LEVEL / 2
    low, high = np.percentile(choices, [tail, 100 - tail], method="nearest")
    return [float(low), float(high)]


def format_settings(tuned: Mode) -> str:
    """Format the options that `mathrag job submit` needs for this mode."""
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


def _require_tunable_mode(request: Tune) -> Mode:
    base = choose_mode(request.mode, request.params)
    if len(base.kinds) < 2 or base.reranks or base.enhances:
        raise Invalid(f"mode `{base.name}` has no weights to tune", hint="tune hybrid, weighted, weighted-z-score ...")
    if request.over == "rrf_k" and base.fusion.method != "rrf":
        raise Invalid(f"mode `{base.name}` has no constant of reciprocal ranks", hint="use --mode hybrid --over rrf_k")
    return base


def _set_value(base: Mode, over: str, value: float) -> Mode:
    return base.with_dense_weight(value) if over == "dense" else msgspec.structs.replace(base, rrf_k=int(value))


def _measure_values(request: Tune, base: Mode, queries: Queries, searcher: CollectionSearcher) -> NDArray[np.float64]:
    """Measure each value of the parameter on each query: [values of the parameter, queries]."""
    lists = searcher.lists(base.kinds, queries)
    modes = (_set_value(base, request.over, value) for value in GRIDS[request.over])
    measured = (
        metrics.measure_per_query(queries.judged, searcher.rank(each, lists), [request.metric]) for each in modes
    )
    return np.array([[found[request.metric] for found in each.values()] for each in measured])


def _is_worse(found: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    tested = significance.compare_paired(best.tolist(), found.tolist())
    return tested is not None and tested.p < significance.LEVEL


def _measure_held_out(
    request: Tune, tuned: Mode, base: Mode, queries: Queries, searcher: CollectionSearcher
) -> dict[str, Any]:
    """Measure the choice on queries that it was not made on, and compare it with modes that need no choice."""
    name = request.metric
    modes = {
        "tuned": tuned,
        "untuned": base,
        **{kind: choose_mode(kind, request.params) for kind in ("dense", "sparse")},
    }
    lists = searcher.lists(base.kinds, queries)
    measured = {
        label: metrics.measure_per_query(queries.judged, searcher.rank(each, lists), [name])
        for label, each in modes.items()
    }
    chosen = measured.pop("tuned")
    tests = compare_measures(chosen, measured, name)
    return {
        **summarise(chosen, [name]),
        "against": [
            {"mode": other, **summarise(values, [name]), "difference": tests[other]}
            for other, values in measured.items()
        ],
    }
