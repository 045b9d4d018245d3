"""Group commands by noun and load them lazily; a bare noun lists; commands that call the API can print requests."""

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_from_info, get_command_name
from typer.models import CommandInfo

from mathrag.cli.ready_values import ReadyParameters
from mathrag.installation import CLIENT, SERVER, SERVER_PACKAGE

BARE = ("list", "status", "show")
"""Commands that a noun runs by default: the first of these that it has."""
COMPLETES = "_MATHRAG_COMPLETE"
"""Environment variable that a shell sets to ask for completions."""


def _curl(value: bool) -> None:
    from mathrag.client.dry_run import SendMode, send_mode

    # Runs for every command and before `--dry-run`, so that a mode never leaks from one command to the next.
    send_mode.set(SendMode.CURL if value else SendMode.SEND)


def _dry(value: bool) -> None:
    from mathrag.client.dry_run import SendMode, send_mode

    if value:
        send_mode.set(SendMode.DRY)


PRINT_CURL = typer.Option(
    "--print-curl", callback=_curl, is_eager=True, expose_value=False,
    help="Print the request as a curl command; send nothing.", rich_help_panel="Output",
)  # fmt: skip
DRY_RUN = typer.Option(
    "--dry-run", callback=_dry, expose_value=False, help="Print the request as JSON; send nothing.",
    rich_help_panel="Output",
)  # fmt: skip


@cache
def _make_options() -> list[Any]:
    """Return the parameters `--print-curl` and `--dry-run`; typer creates them from a signature."""

    def declare(print_curl: Annotated[bool, PRINT_CURL] = False, dry_run: Annotated[bool, DRY_RUN] = False) -> None:
        """Declare the options by the signature."""

    alone = typer.Typer(add_completion=False)
    alone.command()(declare)
    return list(get_command(alone).params)


class PlainCommand(ReadyParameters, TyperCommand):
    """A command that does not call the API, or that declares its own options for showing requests."""


class ApiCommand(PlainCommand):
    """A command that calls the API, or prints the request with `--print-curl`."""

    changes = False
    """The command changes something, so it has a dry run."""

    def __init__(self, *arguments: Any, params: Any = None, **named: Any) -> None:
        options = _make_options() if self.changes else _make_options()[:1]
        super().__init__(*arguments, params=[*(params or ()), *options], **named)


class Mutation(ApiCommand):
    """A command that changes something through the API, and has a dry run."""

    changes = True


class LocalCommand(PlainCommand):
    """A command that works on the database or the settings file itself, so it has no request to print."""


class Noun(ReadyParameters, TyperGroup):
    """A group that lists when called without a command, and builds a command only when it is used."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Build and return the command with this name; None if the group has no such command."""
        found: Any = super().get_command(ctx, cmd_name)
        if isinstance(found, CommandInfo):
            self.commands[cmd_name] = _build(found)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command: `mathrag job --state running` means `mathrag job list --state running`."""
        bare = next((name for name in BARE if name in self.commands), None)
        options_first = not args or (args[0].startswith("-") and args[0] != "--help")
        if bare and options_first and not ctx.resilient_parsing:
            args = [bare, *args]
        return super().parse_args(ctx, args)


class CommandEntry(NamedTuple):
    """A command or noun of `mathrag` that can be listed without importing its module."""

    name: str
    help: str
    """The command's line in the list of commands; the whole help of a noun."""
    cls: type[Any] = ApiCommand
    """Class of the command; for a noun, the default class of its commands."""
    needs: str = CLIENT
    """Requirement that installs the command: the client, or the server, with an extra if its module needs one."""
    module: str = ""
    """Module of `mathrag.cli` or `mathrag_gate.cli` that defines the command; "" if it has the command's name."""
    panel: str = ""
    """Heading under which the help of `mathrag` lists the command."""

    def make_list_entry(self) -> TyperCommand:
        """Return a stand-in with the name, help and heading, for the list of commands."""
        return PlainCommand(name=self.name, help=self.help, rich_help_panel=self.panel or None)

    def load(self) -> Any:
        """Import and return the command; if a package is missing, return a command that says what to install."""
        package = SERVER_PACKAGE if self.needs.startswith(SERVER) else CLIENT
        try:
            found = getattr(import_module(f"{package}.cli.{self.module or self.name}"), self.name)
        except ModuleNotFoundError as missing:
            from mathrag.cli.output import is_not_installed, make_stand_in

            if not is_not_installed(missing):
                raise
            return _build(make_stand_in(self.name, self.help, missing, self.needs, self.cls))
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
    """Lists commands without importing them, and imports the command that runs (click's lazy group).

    Click's documentation imports in `get_command`. The help calls `get_command` for every command that it lists, so
    this class imports in `resolve_command`, which runs only for the command that was called.
    """

    entries: tuple[CommandEntry, ...] = ()

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "commands": {entry.name: entry.make_list_entry() for entry in self.entries}})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the name, the imported command and the remaining arguments."""
        name, found, rest = super().resolve_command(ctx, args)
        loaded = next((entry.load() for entry in self.entries if entry.name == name), found)
        return name, loaded, rest

    def main(self, args: Sequence[str] | None = None, *arguments: Any, **named: Any) -> Any:
        """Run the command line; if a shell asks for completions, register the shells first."""
        if COMPLETES in os.environ:
            import_module("mathrag.cli.completion")  # registers the shells
        return super().main(args, *arguments, **named)
