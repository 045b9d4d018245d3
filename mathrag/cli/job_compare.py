"""`mathrag job compare`: jobs side by side, and which of them differ."""

from collections.abc import Iterator
from typing import Any

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import Baseline, Jobs
from mathrag.client import jobs
from mathrag.client.client import Client
from shared.pages.words import accuracy, interval


def compare(references: Jobs, baseline: Baseline = None, as_json: AsJson = False) -> None:
    """Which jobs differ on the items that they have in common, and how sure that is."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.compare(references, baseline))
        if as_json:
            print_json(found)
        else:
            print_comparison(found)


def print_comparison(found: Any) -> None:
    """Jobs, pairs, and how the samples of each job ended."""
    table(("NAME", "PIPELINE", "ITEMS", "ACCURACY (WILSON 95 %)", "BOOTSTRAP", "STD"), map(_job, found["jobs"]))
    typer.echo()
    table(("LEFT", "AGAINST", "LEFT ONLY", "RIGHT ONLY", "EFFECT", "VERDICT"), map(_pair, found["pairs"]))
    if any(each["endings"] for each in found["jobs"]):
        typer.echo()
        table(("ENDING", *(each["name"] for each in found["jobs"])), endings(found["jobs"]))
    for pair in found["pairs"]:
        if pair["moved"]:
            typer.echo(f"\n{pair['left']} (rows) against {pair['right']} (columns): how the same samples ended")
            table(("ENDING", *columns(pair["moved"])), moves(pair["moved"]))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


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


def _job(found: Any) -> tuple[object, ...]:
    figures = (
        accuracy(found["accuracy"]),
        found["bootstrap"] and interval(found["bootstrap"]),
        deviation(found["repeats"]),
    )
    return found["name"], found["pipeline"], found["items"], *figures


def _pair(found: Any) -> tuple[object, ...]:
    effect = None if found["effect"] is None else f"h = {found['effect']:+.2f}"
    return found["left"], found["right"], found["left_only"], found["right_only"], effect, found["words"]
