"""Whether a person agrees."""

import sys
from typing import Annotated

import typer

from mathrag.cli.failures import Exit
from mathrag.client.errors import Failed

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, as_json: bool) -> None:
    """Return if a person at the terminal says yes.

    Raises:
        Failed: there is none.
        typer.Exit: the answer is no.
    """
    if as_json or not sys.stdin.isatty():
        raise Failed("usage", "nobody is there to confirm", hint="add --yes, or --dry-run to look first")
    if not typer.confirm(question):
        raise typer.Exit(Exit.FINDING)
