"""`mathrag job compare`: show jobs side by side, with tests of their differences."""

from collections.abc import Iterator
from typing import Any

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json, print_table
from mathrag.cli.references import Baseline, Jobs, Measure
from mathrag.client import jobs
from mathrag.client.client import Client
from shared.pages.formatting import format_accuracy, format_interval, format_mean


def compare(references: Jobs, baseline: Baseline = None, measure: Measure = None, as_json: AsJson = False) -> None:
    """Compare jobs on the items that they have in common, with significance tests."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(jobs.compare(references, baseline, measure))
        if as_json:
            print_json(found)
        else:
            print_comparison(found)


def print_comparison(found: Any) -> None:
    """Print tables of the jobs, of the pairs, and of how the samples of each job ended."""
    extra = measure_heads(found["measure"])
    heads = ("NAME", "PIPELINE", "ITEMS", "ACCURACY (WILSON 95 %)", *extra, "BOOTSTRAP", "STD")
    print_table(heads, [_make_job_row(each, others=len(extra)) for each in found["jobs"]])
    typer.echo()
    letter = "d" if found["measure"] == "score" else "h"
    pairs = [_pair(each, letter) for each in found["pairs"]]
    print_table(("LEFT", "AGAINST", "LEFT ONLY", "RIGHT ONLY", "EFFECT", "VERDICT"), pairs)
    if any(each["endings"] for each in found["jobs"]):
        typer.echo()
        print_table(("ENDING", *(each["name"] for each in found["jobs"])), list_ending_rows(found["jobs"]))
    for pair in found["pairs"]:
        if pair["moved"]:
            typer.echo(f"\n{pair['left']} (rows) against {pair['right']} (columns): how the same samples ended")
            print_table(("ENDING", *list_ending_columns(pair["moved"])), move_rows(pair["moved"]))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def measure_heads(measure: str) -> tuple[str, ...]:
    """Return the extra column for a measure other than accuracy; accuracy always has its column."""
    return () if measure == "accuracy" else (f"{measure.upper()} (95 %)",)


def list_ending_rows(jobs: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending that occurs, with a column for each job, in the taxonomy's order."""
    most = max((each["endings"] for each in jobs), key=len)
    names = dict.fromkeys([*most, *(name for each in jobs for name in each["endings"])])
    for name in names:
        yield name, *(each["endings"].get(name, 0) for each in jobs)


def list_ending_columns(moved: Any) -> list[str]:
    """Return the endings that occur in the right job, in the taxonomy's order."""
    from shared.rag.provenance import Ending

    names = {name for row in moved.values() for name in row}
    return [each.value for each in Ending if each.value in names]


def move_rows(moved: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending in the left job; None where no sample moved to that column's ending."""
    for was, row in moved.items():
        yield was, *(row.get(now) for now in list_ending_columns(moved))


def format_deviation(repeats: Any) -> str:
    """Return the standard deviation between repeats in percentage points; "-" if there is one repeat."""
    return "-" if repeats["std"] is None else f"{100 * repeats['std']:.2f} of {len(repeats['accuracies'])} repeats"


def _make_job_row(found: Any, others: int) -> tuple[object, ...]:
    figures = (
        format_accuracy(found["accuracy"]),
        *[format_mean(found["measured"])] * others,
        found["bootstrap"] and format_interval(found["bootstrap"]),
        format_deviation(found["repeats"]),
    )
    return found["name"], found["pipeline"], found["items"], *figures


def _pair(found: Any, letter: str) -> tuple[object, ...]:
    """Return the row of a pair; `letter` names the effect size: Cohen's h or d."""
    effect = None if found["effect"] is None else f"{letter} = {found['effect']:+.2f}"
    return found["left"], found["right"], found["left_only"], found["right_only"], effect, found["words"]
