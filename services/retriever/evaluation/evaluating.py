"""`eval`: how good a mode is on one split, and whether others differ from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from services.retriever.evaluation import trec
from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.modes import NAMES, mode
from services.retriever.evaluation.requests import Evaluate
from services.retriever.evaluation.searching import Run, Searcher
from shared.errors import Invalid
from shared.rag import metrics
from shared.statistics import significance
from shared.statistics.significance import Difference

Measured = Mapping[str, Mapping[str, float]]
"""Query -> {measure: value}."""


def evaluate(request: Evaluate, collection: Collection, searcher: Searcher) -> dict[str, Any]:
    """The result: every measure is a key of its own.

    Raises:
        Invalid, NotFound, InvalidLine: what the request names is not there or cannot be used.
    """
    names = measures(request)
    queries = collection.queries(request.split)
    runs = _runs(request, queries, searcher)
    if request.run is not None:
        trec.write(Path(request.run), runs[request.mode])
    measured = {name: metrics.per_query(queries.judged, run, names) for name, run in runs.items()}
    asked = mode(request.mode, request.params)
    return {
        "mode": asked.name,
        "split": request.split,
        "k": request.k,
        **counts(collection, queries),
        "unanswered": sum(not runs[asked.name].get(query) for query in queries.judged),
        **figures(measured[asked.name], names),
        "against": _against(measured, asked.name, names),
        "fusion": msgspec.to_builtins(asked.fusion) if len(asked.kinds) > 1 else None,
        "indexes": {kind: searcher.recipe(kind) for kind in asked.kinds},
        "per_query": measured[asked.name],
    }


def measures(request: Evaluate) -> list[str]:
    """The usual ones that `k` documents suffice for, and those that were asked for.

    Raises:
        Invalid: there is no such measure, or it looks at more documents.
    """
    k = request.k
    usual = ("nDCG@10", f"Recall@{k}", "MAP", "MRR@10", "nDCG@5", "Recall@10", "Precision@10", "F1@10")
    enough = [name for name in usual if (metrics.cutoff(name) or 0) <= k]
    return list(dict.fromkeys([*enough, *(sighted(name, k) for name in request.metrics)]))


def sighted(name: str, k: int) -> str:
    """The measure, if `k` documents are as far as it looks.

    Raises:
        Invalid: they are not, or there is no such measure.
    """
    depth = metrics.cutoff(name) or 0
    if depth > k:
        raise Invalid(f"{name} looks at more than {k} documents", hint=f"--k {depth}")
    return name


def counts(collection: Collection, queries: Queries) -> dict[str, int]:
    """What was searched and asked, and what was left out."""
    return {
        "documents": len(collection.ids),
        "empty_documents": collection.skipped,
        "queries": len(queries.judged),
        "unjudged": queries.unjudged,
        "unasked": queries.unasked,
        "absent": queries.absent,
        "themselves": len(queries.themselves),
    }


def figures(measured: Measured, names: Sequence[str]) -> dict[str, Any]:
    """Every measure's mean over the queries, and beside them their intervals."""
    means = {name: significance.mean([found[name] for found in measured.values()]) for name in names}
    intervals = {name: [mean.low, mean.high] for name, mean in means.items()}
    return {**{name: mean.value for name, mean in means.items()}, "intervals": intervals}


def differences(measured: Measured, others: Mapping[str, Measured], name: str) -> dict[str, Difference | None]:
    """Other -> how far `measured` is above it in one measure, tested together with the rest of them."""
    left = [found[name] for found in measured.values()]
    tests = [significance.paired(left, [found[name] for found in other.values()]) for other in others.values()]
    return dict(zip(others, significance.together(tests), strict=True))


def _runs(request: Evaluate, queries: Queries, searcher: Searcher) -> dict[str, Run]:
    """Those of the mode and of all that it is held against; a name that is no mode is that of a file."""
    files = [name for name in request.against if name not in NAMES and Path(name).is_file()]
    modes = dict.fromkeys(name for name in (request.mode, *request.against) if name not in files)
    runs = searcher.runs([mode(name, request.params) for name in modes], queries)
    runs |= {name: trec.read(Path(name), request.k) for name in files}
    return {name: runs[name] for name in dict.fromkeys((request.mode, *request.against))}


def _against(measured: Mapping[str, Measured], asked: str, names: Sequence[str]) -> list[dict[str, Any]]:
    others = {other: values for other, values in measured.items() if other != asked}
    tests = {name: differences(measured[asked], others, name) for name in names}
    return [
        {"mode": other, **figures(values, names), "differences": {name: tests[name][other] for name in names}}
        for other, values in others.items()
    ]
