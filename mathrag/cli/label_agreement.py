"""Print the result of `mathrag label agreement` for a person."""

from typing import Any

import typer

from mathrag.cli.output import print_table
from mathrag.client.request import Json

LEVELS = ("nominal", "ordinal", "interval")


def print_agreement(found: Json, system: str) -> None:
    """Print the summary, the coefficients with intervals, the confusion matrix and the largest disagreements."""
    typer.echo(found["words"])
    counts = f"labels {found['labels']}, abstentions {found['abstentions']}, ties {found['ties']}"
    typer.echo(f"  labelled {found['labelled']} of {found['tasks']} tasks: {counts}\n")
    print_table(
        ("LABELS OF", f"AS THE {system.upper()}", "KAPPA", "WEIGHTED KAPPA"),
        map(_make_agreement_row, _list_labellers(found)),
    )
    typer.echo()
    raters = (("labellers", found["people"]), (f"labellers and {system}", found["with_system"]))
    print_table(("ALPHA AMONG", *map(str.upper, LEVELS)), [(who, *_format_alphas(alphas)) for who, alphas in raters])
    _print_notes(found)
    if found["majority"]["compared"]:
        typer.echo(f"\nlabels of the majority (rows) and what the {system} said (columns):")
        _print_confusion(found["scale"], found["majority"]["confusion"])
    if found["disagreements"]:
        typer.echo()
        print_table(
            ("TASK", "ITEM", "REPEAT", "LABEL", system.upper()), map(_make_disagreement_row, found["disagreements"])
        )


def _list_labellers(found: Json) -> list[Json]:
    return [{**found["majority"], "labeller": "the majority"}, *found["labellers"]]


def _make_agreement_row(found: Json) -> tuple[object, ...]:
    same = f"{found['same']} of {found['compared']}"
    return found["labeller"], same, _format_coefficient(found["kappa"]), _format_coefficient(found["weighted_kappa"])


def _format_alphas(alphas: Json) -> list[str]:
    return [_format_coefficient(alphas[level]) for level in LEVELS]


def _format_coefficient(found: Json) -> str:
    if found["value"] is None:
        return "-"
    span = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['value']:.2f}{span}"


def _print_notes(found: Json) -> None:
    """Print why a coefficient could not be computed, each reason once."""
    for note in dict.fromkeys(each["note"] for each in (found["majority"], found["people"], found["with_system"])):
        if note is not None:
            typer.echo(f"  {note}")


def _print_confusion(scale: list[Any], confusion: list[list[int]]) -> None:
    rows = [(label, *counts) for label, counts in zip(scale, confusion, strict=True)]
    print_table(("LABEL", *map(str, scale)), rows)


def _make_disagreement_row(found: Json) -> tuple[object, ...]:
    return found["number"], found["item"], found["repeat"], found["label"], found["system"]
