"""Format figures as text, in the same way for the terminal and for pages."""

from collections.abc import Mapping
from typing import Any

from mathrag.messages import format_count

SMALL = 0.0001
"""Smallest p-value that is printed as a number."""
NOT_FOUND = ("missing", "unbalanced", "only_reasoning")
"""Kinds of extraction that found no final answer. A refusal is not one of them, because it has no answer."""
ANOTHER_GRADER = "Choose another grader; an import can also give the final answers themselves, as `answer`"
"""Advice if most answers have no final answer."""


def format_accuracy(figure: Any) -> str:
    """Return text such as "61.0 % (56.7 to 65.2), 305 of 500"."""
    if figure["value"] is None:
        return "nothing was graded"
    return f"{format_share(figure)}, {format_counted(figure)}"


def format_counted(figure: Any) -> str:
    """Return the counts of an accuracy: "305 of 500", or "mean of 40 items, 80 answers" if items have several."""
    items, answers = figure.get("items", figure["graded"]), figure["graded"]  # older servers do not count items
    if items == answers:
        return f"{figure['correct']} of {answers}"
    return f"mean of {format_count(items, 'item')}, {format_count(answers, 'answer')}"


def format_share(figure: Any) -> str:
    """Return text such as "61.0 % (56.7 to 65.2)"."""
    return f"{100 * figure['value']:.1f} % ({format_interval(figure)})"


def format_headline(report: Any) -> str:
    """Return the headline of a job's report, such as "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    found, failed = report["accuracy"], report["request_counts"]["failed"]
    unreadable = explain_missing_answers(report.get("extraction", {}), found)
    sentence = unreadable or ("Nothing was graded" if found["value"] is None else format_right(found))
    troubles = f"; {failed} failed" if failed else ""
    return f"{sentence}{troubles}. {ANOTHER_GRADER}." if unreadable else f"{sentence}{troubles}"


def format_right(figure: Any, when: str = "") -> str:
    """Return text such as "61.0 % right (56.7 to 65.2), 305 of 500", with `when` (such as " so far") after "right"."""
    return format_accuracy(figure).replace(" %", f" % right{when}", 1)


def explain_missing_answers(extraction: Mapping[str, int], accuracy: Any) -> str | None:
    """Explain that an accuracy means little if more than half of the answers have no final answer; otherwise None.

    Args:
        extraction: number of answers by the way in which their final answer was found, as in a report.
        accuracy: the job's accuracy.
    """
    missing = sum(extraction.get(kind, 0) for kind in NOT_FOUND)
    answers = missing + extraction.get("ok", 0) + extraction.get("empty", 0)
    if accuracy["value"] is None or 2 * missing <= answers:
        return None
    how_much = "nothing" if missing == answers else "little"
    return (
        f"In {missing} of {answers} answers no final answer could be found, so {100 * accuracy['value']:.1f} % says"
        f" {how_much} about the system"
    )


def format_mean(mean: Any) -> str:
    """Return text such as "61.0 % (56.7 to 65.2), 500 items"."""
    if mean["value"] is None:
        return "not measured"
    between = "" if mean["low"] is None else f" ({format_interval(mean)})"
    return f"{100 * mean['value']:.1f} %{between}, {format_count(mean['n'], 'item')}"


def format_interval(found: Any) -> str:
    """Return an interval in per cent, such as "56.6 to 65.2"."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"


def format_counts(counts: dict[str, int]) -> str:
    """Return text such as "judge 40, generate 100", without counts of 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def describe_difference(test: Any) -> str:
    """Describe a difference between two systems, such as "+0.01 (-0.01 to +0.03), p = 0.2800: not separable ..."."""
    if test is None:
        return "too few queries to compare"
    known = test["low"] is not None
    interval = (
        f"{test['low']:+.4f} to {test['high']:+.4f}" if known else "equal on every query, so there is no interval"
    )
    verdict = "separable" if test["separable"] else f"not separable on {test['n']} queries"
    p = f"p = {test['adjusted']:.4f}" if test["adjusted"] >= SMALL else f"p < {SMALL}"
    return f"{test['value']:+.4f} ({interval}), {p}: {verdict}"


def format_figure(value: float | None) -> str:
    """Format a value with four decimals; return "-" for None."""
    return "-" if value is None else f"{value:.4f}"


def take_last_line(text: str | None) -> str | None:
    """Return the last line of a traceback, which names the error; `--json` shows all of it."""
    return text.strip().splitlines()[-1] if text else text


def format_duration(seconds: float) -> str:
    """Return text such as "8 s", "4 min" or "2.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_round_short(seconds / size)} {unit}"
    return f"{_round_short(seconds)} s"


def format_duration_range(low: float, high: float) -> str:
    """Return text such as "2 to 4 min"; if the units differ, both bounds have one."""
    one, other = format_duration(low), format_duration(high)
    if one == other:
        return f"about {one}"
    value, _, unit = one.partition(" ")
    return f"{value} to {other}" if other.endswith(f" {unit}") else f"{one} to {other}"


def _round_short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
