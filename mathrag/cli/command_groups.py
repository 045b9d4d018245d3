"""How commands are grouped and loaded: by noun; a bare noun lists what there is; what calls the API can show it."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_from_info, get_command_name
from typer.models import CommandInfo

from mathrag.cli.ready_values import ReadyParameters

BARE = ("list", "status", "show")
"""What a noun by itself means: the first of these that it has."""
COMPLETES = "_MATHRAG_COMPLETE"
"""Set by a shell that asks what may come next."""
UNUSED_BY_HELP = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""What typer's help imports and never calls here: with their parsers and highlighters, 40 % of the time of a help."""


def _curl(value: bool) -> None:
    from mathrag.client.dry_run import SendMode, send_mode

    # Asked of every command before `--dry-run`, so that one command's answer is never the next one's.
    send_mode.set(SendMode.CURL if value else SendMode.SEND)


def _dry(value: bool) -> None:
    from mathrag.client.dry_run import SendMode, send_mode

    if value:
        send_mode.set(SendMode.DRY)


PrintCurl = Annotated[
    bool,
    typer.Option(
        "--print-curl", callback=_curl, is_eager=True, expose_value=False, help="Print it for curl; send nothing."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", callback=_dry, expose_value=False, help="Print the request; send nothing.")
]


def _asking(print_curl: PrintCurl = False) -> None:
    """Options of every command that calls the API."""


def _changing(print_curl: PrintCurl = False, dry_run: DryRun = False) -> None:
    """Options of a command that changes something."""


@cache
def _options(of: Callable[..., None]) -> list[Any]:
    """The parameters that typer makes of the function's."""
    alone = typer.Typer(add_completion=False)
    alone.command()(of)
    return list(get_command(alone).params)


class PlainCommand(ReadyParameters, TyperCommand):
    """A command that does its work here."""


class ApiCommand(PlainCommand):
    """A command that calls the API."""

    options: Callable[..., None] = staticmethod(_asking)

    def __init__(self, *arguments: Any, params: Any = None, **named: Any) -> None:
        super().__init__(*arguments, params=[*(params or ()), *_options(self.options)], **named)


class Mutation(ApiCommand):
    """A command that changes something."""

    options = staticmethod(_changing)


class LocalCommand(PlainCommand):
    """A command that reaches the database itself; no request to show."""


class Noun(ReadyParameters, TyperGroup):
    """A group whose bare name is its list; a command is built when it is asked for."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; None: there is none."""
        found: Any = super().get_command(ctx, cmd_name)
        if isinstance(found, CommandInfo):
            self.commands[cmd_name] = _build(found)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`mathrag job --state running` is `mathrag job list --state running`."""
        bare = next((name for name in BARE if name in self.commands), None)
        options_first = not args or (args[0].startswith("-") and args[0] != "--help")
        if bare and options_first and not ctx.resilient_parsing:
            args = [bare, *args]
        return super().parse_args(ctx, args)


class Entry(NamedTuple):
    """A command or noun of `mathrag`, known without importing it."""

    name: str
    module: str
    help: str
    """Its first line in the list of commands; the whole help of a noun."""
    cls: type[Any] = ApiCommand
    """Of every command of a noun that does not say it itself."""

    def listed(self) -> TyperCommand:
        """What stands for it in the list of commands."""
        return PlainCommand(name=self.name, help=self.help)

    def loaded(self) -> Any:
        """The command itself."""
        found = getattr(import_module(f"mathrag.cli.{self.module}"), self.name)
        if not isinstance(found, typer.Typer):
            return _build(CommandInfo(name=self.name, callback=found, cls=self.cls))
        commands: dict[str, Any] = {}
        for command in found.registered_commands:
            if command.cls in (None, TyperCommand):
                command.cls = self.cls
            commands[command.name or get_command_name(getattr(command.callback, "__name__", ""))] = command
        bare_is_help = bool(found.info.no_args_is_help)
        return Noun(name=self.name, commands=commands, help=self.help, no_args_is_help=bare_is_help)


def _build(command: CommandInfo) -> Any:
    return get_command_from_info(command, pretty_exceptions_short=True, rich_markup_mode="rich")


class Commands(ReadyParameters, TyperGroup):
    """Lists commands without importing them; imports the one that is asked for."""

    entries: tuple[Entry, ...] = ()

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "commands": {entry.name: entry.listed() for entry in self.entries}})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that is called, loaded."""
        name, found, rest = super().resolve_command(ctx, args)
        loaded = next((entry.loaded() for entry in self.entries if entry.name == name), found)
        return name, loaded, rest

    def main(self, args: Sequence[str] | None = None, *arguments: Any, **named: Any) -> Any:
        """Run the command line."""
        if COMPLETES in os.environ:
            import_module("mathrag.cli.completion")  # knows the shells
        words = sys.argv[1:] if args is None else args
        if "--help" in words or not words:
            _import_help()
        return super().main(args, *arguments, **named)


def _import_help() -> None:
    """Import what draws help, with empty stand-ins for `UNUSED_BY_HELP`; later imports of those find the real ones."""
    stand_ins = {name: ModuleType(name) for name in UNUSED_BY_HELP if name not in sys.modules}
    for name, module in stand_ins.items():
        setattr(module, UNUSED_BY_HELP[name], object)
    sys.modules.update(stand_ins)
    try:
        import_module("typer.rich_utils")
    finally:
        for name in stand_ins:
            del sys.modules[name]
