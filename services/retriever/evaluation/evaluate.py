"""Evaluate a mode on one split, and compare others with it (`eval`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from services.retriever.evaluation import trec
from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.modes import NAMES, choose_mode
from services.retriever.evaluation.requests import Evaluate
from services.retriever.evaluation.searcher import CollectionSearcher, Run
from shared.errors import Invalid
from shared.rag import metrics
from shared.statistics import significance
from shared.statistics.significance import Difference

Measured = Mapping[str, Mapping[str, float]]
"""Maps a query to {measure: value}."""


def evaluate(request: Evaluate, collection: Collection, searcher: CollectionSearcher) -> dict[str, Any]:
    """Return the result of the evaluation; every measure is a key of its own.

    Raises:
        Invalid, NotFound, InvalidLine: what the request names is not there or cannot be used.
    """
    names = choose_measures(request)
    queries = collection.queries(request.split)
    runs = _make_runs(request, queries, searcher)
    if request.run is not None:
        trec.write(Path(request.run), runs[request.mode])
    measured = {name: metrics.measure_per_query(queries.judged, run, names) for name, run in runs.items()}
    mode = choose_mode(request.mode, request.params)
    return {
        "mode": mode.name,
        "split": request.split,
        "k": request.k,
        **count_queries(collection, queries),
        "unanswered": sum(not runs[mode.name].get(query) for query in queries.judged),
        **summarise(measured[mode.name], names),
        "against": _compare_modes(measured, mode.name, names),
        "fusion": msgspec.to_builtins(mode.fusion) if len(mode.kinds) > 1 else None,
        "indexes": {kind: searcher.recipe(kind) for kind in mode.kinds},
        "per_query": measured[mode.name],
    }


def choose_measures(request: Evaluate) -> list[str]:
    """Return the usual measures for which `k` documents suffice, and those that were asked for.

    Raises:
        Invalid: there is no such measure, or it looks at more documents.
    """
    k = request.k
    usual = ("nDCG@10", f"Recall@{k}", "MAP", "MRR@10", "nDCG@5", "Recall@10", "Precision@10", "F1@10")
    enough = [name for name in usual if (metrics.get_cutoff(name) or 0) <= k]
    return list(dict.fromkeys([*enough, *(require_depth(name, k) for name in request.metrics)]))


def require_depth(name: str, k: int) -> str:
    """Return the measure if it looks at no more than `k` documents.

    Raises:
        Invalid: they are not, or there is no such measure.
    """
    depth = metrics.get_cutoff(name) or 0
    if depth > k:
        raise Invalid(f"{name} looks at more than {k} documents", hint=f"--k {depth}")
    return name


def count_queries(collection: Collection, queries: Queries) -> dict[str, int]:
    """Count what was searched and asked, and what was left out."""
    return {
        "documents": len(collection.ids),
        "empty_documents": collection.skipped,
        "queries": len(queries.judged),
        "unjudged": queries.unjudged,
        "unasked": queries.unasked,
        "absent": queries.absent,
        "themselves": len(queries.themselves),
    }


def summarise(measured: Measured, names: Sequence[str]) -> dict[str, Any]:
    """Compute every measure's mean over the queries, and the confidence intervals."""
    means = {name: significance.estimate_mean([found[name] for found in measured.values()]) for name in names}
    intervals = {name: [mean.low, mean.high] for name, mean in means.items()}
    return {**{name: mean.value for name, mean in means.items()}, "intervals": intervals}


def compare_measures(measured: Measured, others: Mapping[str, Measured], name: str) -> dict[str, Difference | None]:
    """Test how far `measured` is above each of the others in one measure; the tests are corrected together."""
    left = [found[name] for found in measured.values()]
    tests = [significance.compare_paired(left, [found[name] for found in other.values()]) for other in others.values()]
    return dict(zip(others, significance.correct_family(tests), strict=True))


def _make_runs(request: Evaluate, queries: Queries, searcher: CollectionSearcher) -> dict[str, Run]:
    """Return the runs of the mode and of all that it is compared with; a name that is no mode names a file."""
    files = [name for name in request.against if name not in NAMES and Path(name).is_file()]
    modes = dict.fromkeys(name for name in (request.mode, *request.against) if name not in files)
    runs = searcher.runs([choose_mode(name, request.params) for name in modes], queries)
    runs |= {name: trec.read(Path(name), request.k) for name in files}
    return {name: runs[name] for name in dict.fromkeys((request.mode, *request.against))}


def _compare_modes(measured: Mapping[str, Measured], asked: str, names: Sequence[str]) -> list[dict[str, Any]]:
    others = {other: values for other, values in measured.items() if other != asked}
    tests = {name: compare_measures(measured[asked], others, name) for name in names}
    return [
        {"mode": other, **summarise(values, names), "differences": {name: tests[name][other] for name in names}}
        for other, values in others.items()
    ]
