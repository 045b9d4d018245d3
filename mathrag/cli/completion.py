"""`mathrag completion`: what makes a shell complete commands, options and the names of jobs."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, show_callback

get_completion_inspect_parameters()  # registers the shells, else their questions are answered with the help


class Shell(StrEnum):
    """Shells that we have a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


Which = Annotated[Shell, typer.Argument(help="Such as: source <(mathrag completion bash)")]


def completion(context: typer.Context, shell: Which) -> None:
    """Print the completion script of a shell; put it where the shell reads it at its start."""
    show_callback(context, context.command.params[0], shell.value)
