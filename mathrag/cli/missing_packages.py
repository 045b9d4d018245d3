"""Stand-ins for commands whose packages are not installed: help and error name the command that installs them."""

from typing import Any

import typer
from rich.markup import escape
from typer.models import CommandInfo

from mathrag.cli.failures import report_errors
from shared.extras import install_command

ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def stand_in(name: str, help_line: str, missing: ModuleNotFoundError, extra: str, cls: type[Any]) -> CommandInfo:
    """Return a command that accepts every argument and fails with `missing` and the command that installs `extra`."""

    def end(ctx: typer.Context) -> None:
        with report_errors(as_json="--json" in ctx.args, extra=extra):
            raise missing

    command = escape(install_command(extra))
    text = f"{help_line}\n\nPackages that it needs are not installed. To install them: {command}"
    return CommandInfo(name=name, callback=end, help=text, cls=cls, context_settings=ANYTHING)
