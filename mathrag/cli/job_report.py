"""A job's report for a person."""

from typing import Any

import typer

from mathrag.cli.output import facts, table
from shared.pages.report_lines import GRADERS, lines
from shared.pages.words import accuracy


def print_report(found: Any) -> None:
    """All of it, in some twenty lines."""
    took = f" after {found['seconds']:.1f} s" if found["seconds"] is not None else ""
    typer.echo(f"{found['name']}: {found['settings']['pipeline']}, {found['state']}{took}")
    facts(lines(found))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")
    if found["differing"]:
        typer.echo()
        print_differing(found["differing"], found["disagreements"], found["grader"])
    for title, group in (("LEVEL", found["by_level"]), ("SUBJECT", found["by_subject"])):
        if group:
            typer.echo()
            table((title, "ACCURACY"), [(name, accuracy(figure)) for name, figure in group.items()])


def print_differing(rows: Any, count: int, grader: str) -> None:
    """The answers that the graders judge differently, one a line."""
    head = ("INDEX", "REPEAT", "ANSWER", "GOLD", GRADERS.get(grader, grader).upper(), "STRICT")
    said = {True: "correct", False: "wrong"}
    fields = ("index", "repeat", "answer", "gold")
    verdicts = ("math_verify", "strict")
    table(head, [(*(row[each] for each in fields), *(said[row[each]] for each in verdicts)) for row in rows])
    if count > len(rows):
        typer.echo(f"{count - len(rows)} more: mathrag sample list JOB --differing")
