"""`mathrag completion`: print a script with which a shell completes commands, options and names of jobs."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, show_callback

get_completion_inspect_parameters()  # without it, a shell that asks for completions gets the help text


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


Which = Annotated[
    Shell, typer.Argument(help="Your shell. For bash, add this line to ~/.bashrc: source <(mathrag completion bash)")
]


def completion(context: typer.Context, shell: Which) -> None:
    """Print the completion script for your shell; add it to the shell's startup file."""
    show_callback(context, context.command.params[0], shell.value)
