"""`mathrag job check`: test the figures of a job against limits, for CI pipelines."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import typer

from mathrag.cli.output import print_table, split_pairs
from mathrag.client.errors import Failed
from mathrag.formatting import take_last_line
from mathrag.messages import format_count, make_hint

ROUNDING = 1e-9
"""Floating-point error that a condition tolerates: 0.1 + 0.2 must reach 0.3."""


class Figure(NamedTuple):
    """A figure of a report, with its 95 % interval if it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, and the figure that it was tested on."""

    condition: str
    """Words of the condition, such as "accuracy at least"."""
    holds: bool
    tested: float | None
    """Number that is compared with the limit: the value, or an end of its interval. None if nothing was measured; the
    condition then fails."""
    value: float | None
    low: float | None
    """The 95 % interval; None for a count, which has none."""
    high: float | None
    limit: float


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check, as `--json` prints it."""

    job: str
    id: str
    holds: bool
    reason: str | None
    """Reason why the job has no figures to test; None if it completed."""
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...]


def list_figures(report: Any) -> dict[str, Figure]:
    """Return the figures of this job's report that a condition can name."""
    found = {"accuracy": _read_figure(report["accuracy"])}
    if report["strict"]["graded"]:
        found["strict"] = _read_figure(report["strict"])
    if report["score"]:
        found["score"] = _read_figure(report["score"]["mean"])
    found |= {name: _read_figure(share) for name, share in report["answer_at"].items()}
    found |= {name: _read_figure(score["mean"]) for name, score in report.get("metrics", {}).items()}
    if report["retrieval"]:
        means = {**report["retrieval"]["final"], "Recall@context": report["retrieval"]["context"]}
        found |= {name: _read_figure(mean) for name, mean in means.items()}
    counts = {
        name: report[name] for name in ("truncated", "refused", "unscored", "model_loads", "model_calls", "seconds")
    }
    counts["failures"] = sum(report["failures"].values()) + sum(report["grading_failures"].values())
    counts["cost"] = report["cost"] and report["cost"]["all"]
    return found | {name: Figure(value) for name, value in counts.items() if value is not None}


def _read_figure(found: Mapping[str, Any]) -> Figure:
    return Figure(found["value"], *((found["low"], found["high"]) if found["value"] is not None else ()))


def require_finite(text: str) -> float:
    """Return the number in a text; raise ValueError if the text is not a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def parse_limits(pairs: list[str] | None, option: str) -> dict[str, float]:
    """Return the limits of `--min` or `--max` by the names of their figures.

    Raises:
        Failed: a pair is not a name and a number.
    """
    limits = {}
    for name, text in split_pairs(pairs, option).items():
        try:
            limits[name] = require_finite(text)
        except ValueError as error:
            message = f"{option} {name}={text}: {text!r} is not a number"
            raise Failed("usage", message, hint=f"write for example {option} accuracy=0.8") from error
    return limits


def evaluate_limits(
    figures: Mapping[str, Figure], minimums: Mapping[str, float], maximums: Mapping[str, float], *, confident: bool
) -> Iterator[Condition]:
    """Test figures against limits; `confident` tests the worse end of an interval in place of the value.

    Raises:
        Failed: the job has no such figure.
    """
    for limits, words, sign in ((minimums, "at least", 1), (maximums, "at most", -1)):
        for name, limit in limits.items():
            if name not in figures:
                message = f"the job has no figure {name!r}; its figures: {', '.join(figures)}"
                raise Failed("invalid", message, hint=make_hint(name, figures, "mathrag job report JOB"))
            figure = figures[name]
            end, at = (figure.low, "lower") if sign > 0 else (figure.high, "upper")
            if confident and end is not None:
                yield _make_condition(f"{name}, {at} end of the interval {words}", figure, end, limit, sign)
            else:
                yield _make_condition(f"{name} {words}", figure, figure.value, limit, sign)


def evaluate_difference(comparison: Any, margin: float) -> Condition:
    """Test that the first job of a comparison loses at most `margin`, a share, against its baseline.

    The lower end of the difference's interval is tested: otherwise a job with few questions would always pass.
    """
    (pair,) = comparison["pairs"]
    difference = pair["difference"] or {"value": None}
    figure = _read_figure(difference)
    of = f"{comparison['measure']} minus that of {pair['right']} on {format_count(pair['items'], 'question')}"
    return _make_condition(f"{of}, lower end of the interval at least", figure, figure.low, -margin, 1)


def _make_condition(words: str, figure: Figure, tested: float | None, limit: float, sign: int) -> Condition:
    holds = tested is not None and sign * (tested - limit) >= -ROUNDING
    return Condition(
        condition=words, holds=holds, tested=tested, value=figure.value, low=figure.low, high=figure.high, limit=limit
    )


def describe_failed_job(job: Any) -> str:
    """Return why a job that has ended did not complete."""
    return (
        f"job {job['name']} did not complete ({job['state']}): {take_last_line(job['reason']) or 'no reason was given'}"
    )


def print_check(check: CheckResult) -> None:
    """Print one line for each condition, the notes and the result."""
    if check.conditions:
        print_table(("RESULT", "VALUE", "95 % INTERVAL", "LIMIT", "CONDITION"), [
            (
                "ok" if each.holds else "failed", _format(each.value),
                None if each.low is None else f"{_format(each.low)} to {_format(each.high)}",
                _format(each.limit), each.condition,
            )
            for each in check.conditions
        ])  # fmt: skip
    for note in check.notes:
        typer.echo(f"  note: {note}")
    if check.reason:
        typer.echo(f"check failed: {check.reason}")
        return
    missed = [
        f"{each.condition} {_format(each.limit)}, but it is {_format(each.tested) or 'not measured'}"
        for each in check.conditions
        if not each.holds
    ]
    typer.echo(f"check failed: {'; '.join(missed)}" if missed else f"check passed: job {check.job}")


def _format(value: float | None) -> str | None:
    return value if value is None else f"{value:.6g}"
