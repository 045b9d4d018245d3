"""`mathrag job compare`: jobs side by side, and which of them differ."""

from collections.abc import Iterator
from typing import Any

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import Baseline, Jobs, Measure
from mathrag.client import jobs
from mathrag.client.client import Client
from shared.pages.words import accuracy, interval, measured


def compare(references: Jobs, baseline: Baseline = None, measure: Measure = None, as_json: AsJson = False) -> None:
    """Which jobs differ on the items that they have in common, and how sure that is."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.compare(references, baseline, measure))
        if as_json:
            print_json(found)
        else:
            print_comparison(found)


def print_comparison(found: Any) -> None:
    """Jobs, pairs, and how the samples of each job ended."""
    extra = measure_heads(found["measure"])
    heads = ("NAME", "PIPELINE", "ITEMS", "ACCURACY (WILSON 95 %)", *extra, "BOOTSTRAP", "STD")
    table(heads, [_job(each, others=len(extra)) for each in found["jobs"]])
    typer.echo()
    letter = "d" if found["measure"] == "score" else "h"
    pairs = [_pair(each, letter) for each in found["pairs"]]
    table(("LEFT", "AGAINST", "LEFT ONLY", "RIGHT ONLY", "EFFECT", "VERDICT"), pairs)
    if any(each["endings"] for each in found["jobs"]):
        typer.echo()
        table(("ENDING", *(each["name"] for each in found["jobs"])), endings(found["jobs"]))
    for pair in found["pairs"]:
        if pair["moved"]:
            typer.echo(f"\n{pair['left']} (rows) against {pair['right']} (columns): how the same samples ended")
            table(("ENDING", *columns(pair["moved"])), moves(pair["moved"]))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def measure_heads(measure: str) -> tuple[str, ...]:
    """The column for another measure than accuracy, which has one anyway."""
    return () if measure == "accuracy" else (f"{measure.upper()} (95 %)",)


def endings(jobs: Any) -> Iterator[tuple[object, ...]]:
    """A row for each ending that occurs, a column for each job; they come in one order everywhere."""
    most = max((each["endings"] for each in jobs), key=len)
    names = dict.fromkeys([*most, *(name for each in jobs for name in each["endings"])])
    for name in names:
        yield name, *(each["endings"].get(name, 0) for each in jobs)


def columns(moved: Any) -> list[str]:
    """Endings on the right that occur, in the one order."""
    from shared.rag.taxonomy import Ending

    names = {name for row in moved.values() for name in row}
    return [each.value for each in Ending if each.value in names]


def moves(moved: Any) -> Iterator[tuple[object, ...]]:
    """A row for each ending on the left; a dash where no sample went that way."""
    for was, row in moved.items():
        yield was, *(row.get(now) for now in columns(moved))


def deviation(repeats: Any) -> str:
    """Between repeats, in points."""
    return "-" if repeats["std"] is None else f"{100 * repeats['std']:.2f} of {len(repeats['accuracies'])} repeats"


def _job(found: Any, others: int) -> tuple[object, ...]:
    figures = (
        accuracy(found["accuracy"]),
        *[measured(found["measured"])] * others,
        found["bootstrap"] and interval(found["bootstrap"]),
        deviation(found["repeats"]),
    )
    return found["name"], found["pipeline"], found["items"], *figures


def _pair(found: Any, letter: str) -> tuple[object, ...]:
    """`letter` is Cohen's, of the effect."""
    effect = None if found["effect"] is None else f"{letter} = {found['effect']:+.2f}"
    return found["left"], found["right"], found["left_only"], found["right_only"], effect, found["words"]
