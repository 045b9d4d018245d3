"""The paper's table from the jobs' reports: a line for each variant, with the paper's figures next to ours."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mathrag.reproduction import paper

RECALL = "Recall@5"
MODELS = ("judge", "rerank", "write", "generate")
"""Stages whose calls a model answers."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share from 0 to 1 with its 95 % interval."""

    value: float | None
    low: float
    high: float


class VariantLine(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the figures of one variant as the table shows them."""

    variant: str
    job: str
    items: int
    graded: int
    """Answers with a verdict, over all repeats."""
    failed: int
    """Samples without an answer, which no accuracy counts."""
    accuracy: Share
    """Accuracy over items with Wilson's interval."""
    bootstrap: Share | None
    """Accuracy over items with a percentile bootstrap interval."""
    strict: Share
    """Accuracy by the strict grader, which is closest to the paper's exact match."""
    std: float | None
    """Standard deviation over repeats (ddof 1); None for one repeat."""
    recall: float | None
    """Recall of the five best documents; None if the problems name no relevant documents."""
    latency_s: float | None
    """Device seconds per answer, as if no reply had been reused from other jobs and no model loaded."""
    loads: int
    """Model loads for the calls that this variant made."""
    made: int
    reused: int
    """Model calls that were answered by replies of other jobs."""
    duplicates: int
    """Near-duplicates of questions that searches removed."""
    paper: paper.PaperRow | None


def make_line(variant: str, report: Mapping[str, Any]) -> VariantLine:
    """Build the line of a variant from its job's report."""
    counts, repeats = report["request_counts"], report["repeats"]
    items = counts["total"] // report["settings"]["repeats"]
    return VariantLine(
        variant=variant,
        job=report["id"],
        items=items,
        graded=report["accuracy"]["graded"],
        failed=counts["failed"],
        accuracy=_share(report["accuracy"]),
        bootstrap=_share(report["bootstrap"]) if report["bootstrap"] else None,
        strict=_share(report["strict"]),
        std=repeats["std"],
        recall=_find_recall(report),
        latency_s=_compute_latency(report, items),
        loads=report["model_loads"],
        made=sum(report["calls_made"].get(role, 0) for role in MODELS),
        reused=sum(report["calls_reused"].get(role, 0) for role in MODELS),
        duplicates=report["duplicates_dropped"],
        paper=paper.ROWS.get(variant),
    )


def _share(figure: Mapping[str, Any]) -> Share:
    return Share(value=figure["value"], low=figure["low"], high=figure["high"])


def _find_recall(report: Mapping[str, Any]) -> float | None:
    """Return the recall of the context; None unless it holds five documents and relevance is known."""
    found = report["retrieval"]
    if found is None or report["settings"]["params"]["context_size"] != 5:
        return None
    value: float | None = found["context"]["value"]
    return value


def _compute_latency(report: Mapping[str, Any], items: int) -> float | None:
    """Return device seconds per answer, summed over the stages; None if no stage was timed.

    A stage counts one answer per question, or one per repeat if every repeat drew its own reply.
    """
    stages = report["stages"]
    timed = [role for role in MODELS if role in stages and stages[role]["device_s"] is not None]
    if not timed or not items:
        return None
    return sum(float(stages[role]["device_s"]) / _count_answers(role, report, items) for role in timed)


def _count_answers(role: str, report: Mapping[str, Any], items: int) -> int:
    most = items * int(report["settings"]["repeats"])
    drawn = report["settings"]["drawn"] or ()
    if role in drawn:
        return most
    if role == "generate" and drawn:
        # Greedy answers are shared between repeats unless new ratings changed the context.
        stage = report["stages"][role]
        return min(most, max(items, int(stage["made"]) + int(stage["reused"])))
    return items


HEAD = (
    "", "accuracy, mean ± std over repeats", "95 % over questions (Wilson; bootstrap)", "strict grader", RECALL,
    "device s a question", "model loads", "model calls made, reused", "failed", "paper: accuracy", "paper: Recall@5",
    "paper: s",
)  # fmt: skip


def make_table(lines: Sequence[VariantLine]) -> str:
    """Return the table as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_make_cells, lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _make_cells(each: VariantLine) -> tuple[str, ...]:
    theirs = each.paper
    bootstrap = f"; {_format_interval(each.bootstrap)}" if each.bootstrap else ""
    return (
        each.variant,
        format_spread(each.accuracy.value, each.std),
        f"{_format_interval(each.accuracy)}{bootstrap}",
        format_percent(each.strict.value),
        format_percent(each.recall),
        "-" if each.latency_s is None else f"{each.latency_s:.3g}",
        str(each.loads),
        f"{each.made:,}, {each.reused:,}",
        str(each.failed),
        format_spread(theirs.accuracy, theirs.std) if theirs else "-",
        format_percent(theirs.recall) if theirs else "-",
        f"{theirs.latency_s:.2f}" if theirs else "-",
    )


def format_spread(mean: float | None, std: float | None) -> str:
    """Format mean and standard deviation as percentages, such as "86.80 ± 1.10 %"; "-" without a mean."""
    if mean is None:
        return "-"
    return f"{100 * mean:.2f} %" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f} %"


def format_percent(value: float | None) -> str:
    """Format a share as a percentage, such as "86.0 %"; "-" for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def _format_interval(share: Share) -> str:
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"
