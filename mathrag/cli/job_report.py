"""Print a job's report for a person."""

from typing import Any

import typer

from mathrag.cli.output import print_facts, print_table
from shared.pages.formatting import format_accuracy
from shared.pages.lines import GRADERS, build_lines


def print_report(found: Any) -> None:
    """Print the report in about twenty lines."""
    took = f" after {found['seconds']:.1f} s" if found["seconds"] is not None else ""
    typer.echo(f"{found['name']}: {found['settings']['pipeline']}, {found['state']}{took}")
    print_facts(build_lines(found))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")
    if found["differing"]:
        typer.echo()
        print_differing(found["differing"], found["disagreements"], found["grader"])
    for title, group in (("LEVEL", found["by_level"]), ("SUBJECT", found["by_subject"])):
        if group:
            typer.echo()
            print_table((title, "ACCURACY"), [(name, format_accuracy(figure)) for name, figure in group.items()])


def print_differing(rows: Any, count: int, grader: str) -> None:
    """Print the answers that the graders judge differently, one per line."""
    head = ("INDEX", "REPEAT", "ANSWER", "GOLD", GRADERS.get(grader, grader).upper(), "STRICT")
    words = {True: "correct", False: "wrong"}
    fields = ("index", "repeat", "answer", "gold")
    verdicts = ("math_verify", "strict")
    print_table(head, [(*(row[each] for each in fields), *(words[row[each]] for each in verdicts)) for row in rows])
    if count > len(rows):
        typer.echo(f"{count - len(rows)} more: mathrag sample list JOB --differing")
