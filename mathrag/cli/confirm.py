"""Asks a person for confirmation before something is deleted."""

import sys
from typing import Annotated

import typer

from mathrag.cli.failures import Exit
from mathrag.client.errors import Failed

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, as_json: bool) -> None:
    """Ask `question` on the terminal, and return if the answer is yes.

    Raises:
        Failed: there is no terminal to ask on, or `as_json` is set.
        typer.Exit: the answer is no.
    """
    if as_json or not sys.stdin.isatty():
        raise Failed(
            "usage",
            "confirmation is needed, and nobody can be asked",
            hint="add --yes; --dry-run shows what it would do",
        )
    if not typer.confirm(question):
        raise typer.Exit(Exit.FINDING)
