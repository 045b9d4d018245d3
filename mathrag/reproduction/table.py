"""The paper's table from the jobs' reports, a line for each variant, with the paper's own line beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mathrag.reproduction import paper

RECALL = "Recall@5"
MODELS = ("judge", "rerank", "write", "generate")
"""Stages that a model answers."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """With its 95 % interval, from 0 to 1."""

    value: float | None
    low: float
    high: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A variant."""

    variant: str
    job: str
    items: int
    graded: int
    """Answers with a verdict, of all repeats."""
    failed: int
    """Answers that there are none of; they are in no accuracy."""
    accuracy: Share
    """Over items, Wilson's interval."""
    bootstrap: Share | None
    """Over items, percentile bootstrap."""
    strict: Share
    """By the strict grader: the nearest to the paper's exact match."""
    mean: float | None
    std: float | None
    """Over repeats, ddof 1; None: there was one."""
    recall: float | None
    """Recall of the five best documents; None: the problems name no relevant documents."""
    latency_s: float | None
    """Of the device, by answer drawn: as if nothing of another job had been reused and no model been loaded."""
    loads: int
    """Model loads for the calls that this variant made."""
    made: int
    reused: int
    """Of the model calls."""
    duplicates: int
    """Near-duplicates of a question that searches left out."""
    paper: paper.Row | None


def line(variant: str, report: Mapping[str, Any]) -> Line:
    """Of a job's report."""
    counts, repeats = report["request_counts"], report["repeats"]
    items = counts["total"] // report["settings"]["repeats"]
    return Line(
        variant=variant,
        job=report["id"],
        items=items,
        graded=report["accuracy"]["graded"],
        failed=counts["failed"],
        accuracy=_share(report["accuracy"]),
        bootstrap=_share(report["bootstrap"]) if report["bootstrap"] else None,
        strict=_share(report["strict"]),
        mean=repeats["mean"],
        std=repeats["std"],
        recall=_recall(report),
        latency_s=_latency(report, items),
        loads=report["model_loads"],
        made=sum(report["calls_made"].get(role, 0) for role in MODELS),
        reused=sum(report["calls_reused"].get(role, 0) for role in MODELS),
        duplicates=report["duplicates_dropped"],
        paper=paper.ROWS.get(variant),
    )


def _share(figure: Mapping[str, Any]) -> Share:
    return Share(value=figure["value"], low=figure["low"], high=figure["high"])


def _recall(report: Mapping[str, Any]) -> float | None:
    """Of the context where that holds five documents; it is measured only where the problems say what is relevant."""
    found = report["retrieval"]
    if found is None or report["settings"]["params"]["context_size"] != 5:
        return None
    value: float | None = found["context"]["value"]
    return value


def _latency(report: Mapping[str, Any], items: int) -> float | None:
    """Seconds of each stage over the answers that it was done for: one a question, or one a repeat of it."""
    stages = report["stages"]
    timed = [role for role in MODELS if role in stages and stages[role]["device_s"] is not None]
    if not timed or not items:
        return None
    return sum(float(stages[role]["device_s"]) / _answers(role, report, items) for role in timed)


def _answers(role: str, report: Mapping[str, Any], items: int) -> int:
    most = items * int(report["settings"]["repeats"])
    drawn = report["settings"]["drawn"] or ()
    if role in drawn:
        return most
    if role == "generate" and drawn:
        # Greedy answers to contexts of which some changed, because the judge was asked anew.
        stage = report["stages"][role]
        return min(most, max(items, int(stage["made"]) + int(stage["reused"])))
    return items


HEAD = (
    "", "accuracy, mean ± std over repeats", "95 % over questions (Wilson; bootstrap)", "strict grader", RECALL,
    "device s a question", "model loads", "model calls made, reused", "failed", "paper: accuracy", "paper: Recall@5",
    "paper: s",
)  # fmt: skip


def table(lines: Sequence[Line]) -> str:
    """As Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_cells, lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(each: Line) -> tuple[str, ...]:
    theirs = each.paper
    bootstrap = f"; {_interval(each.bootstrap)}" if each.bootstrap else ""
    return (
        each.variant,
        spread(each.mean, each.std),
        f"{_interval(each.accuracy)}{bootstrap}",
        percent(each.strict.value),
        percent(each.recall),
        "-" if each.latency_s is None else f"{each.latency_s:.3g}",
        str(each.loads),
        f"{each.made:,}, {each.reused:,}",
        str(each.failed),
        spread(theirs.accuracy, theirs.std) if theirs else "-",
        percent(theirs.recall) if theirs else "-",
        f"{theirs.latency_s:.2f}" if theirs else "-",
    )


def spread(mean: float | None, std: float | None) -> str:
    """Such as "86.80 ± 1.10 %"."""
    if mean is None:
        return "-"
    return f"{100 * mean:.2f} %" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f} %"


def percent(value: float | None) -> str:
    """Such as "86.0 %"."""
    return "-" if value is None else f"{100 * value:.1f} %"


def _interval(share: Share) -> str:
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"
