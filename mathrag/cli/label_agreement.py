"""How `mathrag label agreement` is written for people."""

from typing import Any

import typer

from mathrag.cli.output import table
from mathrag.client.request import Json

LEVELS = ("nominal", "ordinal", "interval")


def print_agreement(found: Json, system: str) -> None:
    """The sentence, coefficients with intervals, the confusion, and what differs most."""
    typer.echo(found["words"])
    given = f"labels {found['labels']}, abstentions {found['abstentions']}, ties {found['ties']}"
    typer.echo(f"  labelled {found['labelled']} of {found['tasks']} tasks: {given}\n")
    table(("LABELS OF", f"AS THE {system.upper()}", "KAPPA", "WEIGHTED KAPPA"), map(_held, _all(found)))
    typer.echo()
    raters = (("labellers", found["people"]), (f"labellers and {system}", found["with_system"]))
    table(("ALPHA AMONG", *map(str.upper, LEVELS)), [(who, *_alphas(alphas)) for who, alphas in raters])
    _print_notes(found)
    if found["majority"]["compared"]:
        typer.echo(f"\nlabels of the majority (rows) and what the {system} said (columns):")
        _print_confusion(found["scale"], found["majority"]["confusion"])
    if found["disagreements"]:
        typer.echo()
        table(("TASK", "ITEM", "REPEAT", "LABEL", system.upper()), map(_disagreement, found["disagreements"]))


def _all(found: Json) -> list[Json]:
    return [{**found["majority"], "labeller": "the majority"}, *found["labellers"]]


def _held(held: Json) -> tuple[object, ...]:
    same = f"{held['same']} of {held['compared']}"
    return held["labeller"], same, _coefficient(held["kappa"]), _coefficient(held["weighted_kappa"])


def _alphas(alphas: Json) -> list[str]:
    return [_coefficient(alphas[level]) for level in LEVELS]


def _coefficient(found: Json) -> str:
    if found["value"] is None:
        return "-"
    span = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['value']:.2f}{span}"


def _print_notes(found: Json) -> None:
    """Why there is no figure, each reason once."""
    for note in dict.fromkeys(each["note"] for each in (found["majority"], found["people"], found["with_system"])):
        if note is not None:
            typer.echo(f"  {note}")


def _print_confusion(scale: list[Any], confusion: list[list[int]]) -> None:
    rows = [(label, *counts) for label, counts in zip(scale, confusion, strict=True)]
    table(("LABEL", *map(str, scale)), rows)


def _disagreement(found: Json) -> tuple[object, ...]:
    return found["number"], found["item"], found["repeat"], found["label"], found["system"]
