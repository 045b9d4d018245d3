"""`mathrag completion`: the script by which a shell completes commands, options and names of jobs."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, show_callback

get_completion_inspect_parameters()  # registers the shells, else their questions are answered with the help


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


Which = Annotated[
    Shell, typer.Argument(help="Name of the shell; to load its script: source <(mathrag completion bash)")
]


def completion(context: typer.Context, shell: Which) -> None:
    """Print the completion script for a shell, to load in the shell's start-up file."""
    show_callback(context, context.command.params[0], shell.value)
