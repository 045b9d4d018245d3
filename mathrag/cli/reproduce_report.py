"""What `mathrag reproduce` leaves behind: a page, its figures, and all that they were made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.cli.output import table
from mathrag.client import experiments, jobs
from mathrag.client.client import Client
from mathrag.reproduction.drawings import drawn
from mathrag.reproduction.page import FIGURES, Results, differences, page, terminal
from mathrag.reproduction.preset import Preset
from mathrag.reproduction.problems import Problems
from shared.errors import Unavailable
from shared.pages.figures.figure import Figure, write

REPORT = "report.json"
HEAD = ("", "ACCURACY", "95 % OVER QUESTIONS", "STD", "S A QUESTION", "LOADS", "PAPER")


def report(client: Client, name: str, preset: Preset, asked: Problems, ended: Sequence[Any], folder: Path) -> None:
    """Write report.md, report.json and figures/ into `folder`, and show the table."""
    results = gathered(client, ended)
    figures = _drawn(results, folder / FIGURES)
    (folder / "report.md").write_text(page(name, preset, asked, results, figures), "utf-8")
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    table(HEAD, terminal(results.lines))
    for said in differences(results):
        typer.echo(f"  {said}")
    typer.echo(f"\n  next: read {folder / 'report.md'}")


def gathered(client: Client, ended: Sequence[Any]) -> Results:
    """What the service says of the experiments; the second one is the grid of weights."""
    first, *rest = ended
    said = client.send(experiments.report(first["name"]))
    return Results(
        experiment=said,
        jobs={cell["variant"]: client.send(jobs.report(cell["job"])) for cell in first["grid"]},
        comparison=said["comparisons"]["pooled"] if said["comparisons"] else {"pairs": [], "notes": []},
        heatmap=client.send(experiments.report(rest[0]["name"])) if rest else None,
    )


def _drawn(results: Results, folder: Path) -> list[Figure]:
    """Written, too; none without the extra that draws them."""
    try:
        figures = list(drawn(results))
        for each in figures:
            write(each, folder)
    except Unavailable as missing:
        typer.echo(f"  note: no figures: {missing.message}; {missing.hint}", err=True)
        return []
    return figures
