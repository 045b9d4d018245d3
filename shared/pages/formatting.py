"""Format figures in words, the same on a terminal and on a page."""

from typing import Any

SMALL = 0.0001
"""The smallest p-value that is printed as it is."""


def format_accuracy(figure: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2), 305 of 500"."""
    if figure["value"] is None:
        return "nothing was graded"
    return f"{format_share(figure)}, {figure['correct']} of {figure['graded']}"


def format_share(figure: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2)"."""
    return f"{100 * figure['value']:.1f} % ({format_interval(figure)})"


def format_headline(report: Any) -> str:
    """Return the headline of a job's report, such as "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    found, failed = report["accuracy"], report["request_counts"]["failed"]
    sentence = (
        format_accuracy(found).replace(" %", " % right", 1) if found["value"] is not None else "Nothing was graded"
    )
    return f"{sentence}; {failed} failed" if failed else sentence


def format_mean(mean: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2), 500 items"."""
    if mean["value"] is None:
        return "not measured"
    between = "" if mean["low"] is None else f" ({format_interval(mean)})"
    return f"{100 * mean['value']:.1f} %{between}, {mean['n']} items"


def format_interval(found: Any) -> str:
    """Return an interval in per cent, such as "56.6 to 65.2"."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"


def format_counts(counts: dict[str, int]) -> str:
    """Return for example "judge 40, generate 100", without the counts that are 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def describe_difference(test: Any) -> str:
    """Describe a difference between two systems, such as "+0.01 (-0.01 to +0.03), p = 0.2800: not separable ..."."""
    if test is None:
        return "too few queries to compare"
    known = test["low"] is not None
    interval = f"{test['low']:+.4f} to {test['high']:+.4f}" if known else "the same on every query, so no interval"
    verdict = "separable" if test["separable"] else f"not separable on {test['n']} queries"
    p = f"p = {test['adjusted']:.4f}" if test["adjusted"] >= SMALL else f"p < {SMALL}"
    return f"{test['value']:+.4f} ({interval}), {p}: {verdict}"


def format_figure(value: float | None) -> str:
    """Format a value with four decimals; "-" stands for None."""
    return "-" if value is None else f"{value:.4f}"


def take_last_line(text: str | None) -> str | None:
    """Return the last line of a traceback, which names the error; `--json` shows all of it."""
    return text.strip().splitlines()[-1] if text else text


def format_duration(seconds: float) -> str:
    """Return for example "8 s", "4 min" or "2.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_round_short(seconds / size)} {unit}"
    return f"{_round_short(seconds)} s"


def format_duration_range(low: float, high: float) -> str:
    """Return for example "2 to 4 min"; both bounds have their unit where the units differ."""
    one, other = format_duration(low), format_duration(high)
    if one == other:
        return f"about {one}"
    value, _, unit = one.partition(" ")
    return f"{value} to {other}" if other.endswith(f" {unit}") else f"{one} to {other}"


def _round_short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
