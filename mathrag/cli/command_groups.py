"""How commands are grouped: by noun; a bare noun lists what there is; what calls the API can show it instead."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from mathrag.client.dry_run import DryRun, PrintCurl

BARE = ("list", "status", "show")
"""What a noun by itself means: the first of these that it has."""


def _asking(print_curl: PrintCurl = False) -> None:
    """Options of every command that calls the API."""


def _changing(print_curl: PrintCurl = False, dry_run: DryRun = False) -> None:
    """Options of a command that changes something."""


def _options(of: Callable[..., None]) -> list[Any]:
    """The parameters that typer makes of the function's."""
    alone = typer.Typer(add_completion=False)
    alone.command()(of)
    return list(get_command(alone).params)


class ApiCommand(TyperCommand):
    """A command that calls the API."""

    options: Callable[..., None] = staticmethod(_asking)

    def __init__(self, *arguments: Any, params: Any = None, **named: Any) -> None:
        super().__init__(*arguments, params=[*(params or ()), *_options(self.options)], **named)


class Mutation(ApiCommand):
    """A command that changes something."""

    options = staticmethod(_changing)


class LocalCommand(TyperCommand):
    """A command that reaches the database itself; no request to show."""


class Noun(TyperGroup):
    """A group whose bare name is its list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`mathrag job --state running` is `mathrag job list --state running`."""
        bare = next((name for name in BARE if name in self.commands), None)
        options_first = not args or (args[0].startswith("-") and args[0] != "--help")
        if bare and options_first and not ctx.resilient_parsing:
            args = [bare, *args]
        return super().parse_args(ctx, args)


def add(app: typer.Typer, noun: typer.Typer, name: str) -> None:
    """Register a noun whose commands call the API."""
    for command in noun.registered_commands:
        if command.cls in (None, TyperCommand):
            command.cls = ApiCommand
    app.add_typer(noun, name=name, cls=Noun)
