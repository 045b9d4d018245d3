"""Write the results of `mathrag reproduce`: a page, its figures, and the reports behind them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.cli.output import print_table
from mathrag.client import experiments, jobs
from mathrag.client.client import Client
from mathrag.reproduction.drawings import draw_figures
from mathrag.reproduction.page import FIGURES, Results, list_differences, list_terminal_rows, write_page
from mathrag.reproduction.preset import Preset
from mathrag.reproduction.problems import Problems
from shared.errors import NotInstalled
from shared.pages.figures.figure import Figure, write_figure

REPORT = "report.json"
HEAD = ("", "ACCURACY", "95 % OVER QUESTIONS", "STD", "S A QUESTION", "LOADS", "PAPER")


def report(client: Client, name: str, preset: Preset, asked: Problems, ended: Sequence[Any], folder: Path) -> None:
    """Write report.md, report.json and figures/ into `folder`, and print the table."""
    results = gather_results(client, ended)
    figures = _draw_figures(results, folder / FIGURES)
    (folder / "report.md").write_text(write_page(name, preset, asked, results, figures), "utf-8")
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    print_table(HEAD, list_terminal_rows(results.lines))
    for difference in list_differences(results):
        typer.echo(f"  {difference}")
    typer.echo(f"\n  next: read {folder / 'report.md'}")


def gather_results(client: Client, ended: Sequence[Any]) -> Results:
    """Fetch the reports of the experiments; the second one, if any, is the grid of weights."""
    first, *rest = ended
    report = client.send(experiments.report(first["name"]))
    return Results(
        experiment=report,
        jobs={cell["variant"]: client.send(jobs.report(cell["job"])) for cell in first["grid"]},
        comparison=report["comparisons"]["pooled"] if report["comparisons"] else {"pairs": [], "notes": []},
        heatmap=client.send(experiments.report(rest[0]["name"])) if rest else None,
    )


def _draw_figures(results: Results, folder: Path) -> list[Figure]:
    """Draw and write the figures; return none if the extra that draws them is not installed."""
    try:
        figures = list(draw_figures(results))
        for each in figures:
            write_figure(each, folder)
    except NotInstalled as missing:
        typer.echo(f"  note: no figures: {missing.message}; {missing.hint}", err=True)
        return []
    return figures
