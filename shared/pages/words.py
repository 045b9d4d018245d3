"""Figures in words, the same on a terminal and on a page."""

from typing import Any

SMALL = 0.0001
"""Of a p-value that is not told from 0."""


def accuracy(figure: Any) -> str:
    """Such as "61.0 % (56.7 to 65.2), 305 of 500"."""
    if figure["value"] is None:
        return "nothing was graded"
    return f"{share(figure)}, {figure['correct']} of {figure['graded']}"


def share(figure: Any) -> str:
    """Such as "61.0 % (56.7 to 65.2)"."""
    return f"{100 * figure['value']:.1f} % ({interval(figure)})"


def finding(report: Any) -> str:
    """The headline of a job's report, such as "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    found, failed = report["accuracy"], report["request_counts"]["failed"]
    said = accuracy(found).replace(" %", " % right", 1) if found["value"] is not None else "Nothing was graded"
    return f"{said}; {failed} failed" if failed else said


def measured(mean: Any) -> str:
    """Such as "61.0 % (56.7 to 65.2), 500 items"."""
    if mean["value"] is None:
        return "not measured"
    between = "" if mean["low"] is None else f" ({interval(mean)})"
    return f"{100 * mean['value']:.1f} %{between}, {mean['n']} items"


def interval(found: Any) -> str:
    """In per cent, such as "56.6 to 65.2"."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"


def counted(counts: dict[str, int]) -> str:
    """Such as "judge 40, generate 100"; nothing where all are 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def verdict(test: Any) -> str:
    """A difference between two systems in words, such as "+0.01 (-0.01 to +0.03), p = 0.2800: not separable ..."."""
    if test is None:
        return "too few queries to compare"
    known = test["low"] is not None
    interval = f"{test['low']:+.4f} to {test['high']:+.4f}" if known else "the same on every query, so no interval"
    said = "separable" if test["separable"] else f"not separable on {test['n']} queries"
    p = f"p = {test['adjusted']:.4f}" if test["adjusted"] >= SMALL else f"p < {SMALL}"
    return f"{test['value']:+.4f} ({interval}), {p}: {said}"


def figure(value: float | None) -> str:
    """Four digits."""
    return "-" if value is None else f"{value:.4f}"


def last_line(text: str | None) -> str | None:
    """Where a traceback says what happened; --json has all of it."""
    return text.strip().splitlines()[-1] if text else text


def duration(seconds: float) -> str:
    """Such as "8 s", "4 min" or "2.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds)} s"


def seconds_between(low: float, high: float) -> str:
    """Such as "2 to 4 min"; both bounds where their units differ."""
    one, other = duration(low), duration(high)
    if one == other:
        return f"about {one}"
    value, _, unit = one.partition(" ")
    return f"{value} to {other}" if other.endswith(f" {unit}") else f"{one} to {other}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
