"""`mathrag config`: what may be set, whether what is set is right, and what holds now.

Settings are read when services start. The configuration is changed while they run: parameters that jobs get which do
not name them.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from mathrag.cli import config_findings, config_paths
from mathrag.cli.command_groups import ApiCommand, Mutation
from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.parameters import parameters
from mathrag.client import configuration
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE
from shared.places import config_file
from shared.redaction import redacted
from shared.settings import REPOSITORY, Settings, load

config = typer.Typer()
QUICK_S = 5.0
"""What holds in files is shown, whether a server answers or not."""

File = Annotated[Path | None, typer.Argument(help="[default: MATHRAG_CONFIG, else mathrag.yaml]")]


@config.command("schema")
def print_schema(as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False) -> None:
    """The JSON schema of mathrag.yaml, for editors; the repository has it as config-schema.json."""
    with reported(as_json=as_json):
        typer.echo(schema())


def schema() -> str:
    """As it is committed."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode().replace(f"{REPOSITORY}/", "")


@config.command()
def validate(file: File = None, as_json: AsJson = False) -> None:
    """Check the file and the environment; exits with 4 when something is wrong, and says where."""
    with reported(as_json=as_json):
        found = check(file)
        if as_json:
            print_json({"valid": not found, "findings": found})
        else:
            print_findings(found)
        if found:
            raise typer.Exit(Exit.INVALID)


def check(file: Path | None = None) -> list[config_findings.Finding]:
    """What is wrong with `file` and the environment.

    Raises:
        Failed: there is no such file.
    """
    if file is not None:
        if not file.is_file():
            raise Failed("not_found", f"no file {file}", hint="mathrag config schema says what it may hold")
        os.environ["MATHRAG_CONFIG"] = str(file)
    found = config_paths.missing_file() or config_findings.misshapen()
    try:
        if not found:
            settings = load()
            found = [*config_findings.unplaced(settings), *config_paths.missing(settings)]
    except config_findings.REFUSALS as refused:
        found = config_findings.findings(refused)
    said = {finding.where for finding in found}
    return [*found, *(each for each in config_findings.misspelt(os.environ) if each.where not in said)]


def print_findings(found: list[config_findings.Finding]) -> None:
    """One line each, and its fix."""
    for finding in found:
        typer.echo(str(finding))
        typer.echo(f"  fix: {finding.fix}")
    if not found:
        said = config_file()
        typer.echo(f"The settings are valid: {said if said.is_file() else 'defaults'} and the environment.")


@config.command(cls=ApiCommand)
def show(as_json: AsJson = False) -> None:
    """The settings that hold, from all sources, secrets masked; and the configuration, where a server answers."""
    with reported(as_json=as_json):
        effective = masked(load().model_dump(mode="json"))
        running, why = _running()
        if as_json:
            print_json({**effective, "configuration": running})
            return
        typer.echo(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True).rstrip())
        if running is None:
            typer.echo(f"# configuration: {why}")
        else:
            typer.echo(yaml.safe_dump({"configuration": running}, sort_keys=False, allow_unicode=True).rstrip())


def _running() -> tuple[Any, str]:
    """The configuration of the server, or why it is not known."""
    try:
        with Client(patience_s=QUICK_S) as client:
            return client.send(configuration.get()), ""
    except Failed as failed:
        return None, failed.message


@config.command("set", cls=Mutation)
def change(
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="As --set of a job; null: the default.")],
    as_json: AsJson = False,
) -> None:
    """Give parameters another default from the next job, search and chat on; nothing has to be restarted."""
    with reported(as_json=as_json), Client() as client:
        changed = client.send(configuration.change(parameters(values, "config set")))
        if as_json:
            print_json(changed)
        else:
            typer.echo(f"configuration is at version {changed['version']}")
            typer.echo("  next: mathrag config history")


@config.command(cls=ApiCommand)
def history(limit: Annotated[int, typer.Option(help="How many, newest first.")] = 20, as_json: AsJson = False) -> None:
    """Every version of the configuration: who, when, and what it holds."""
    with reported(as_json=as_json), Client() as client:
        found = list(islice(client.all(configuration.history(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            table(("VERSION", "WHEN", "WHO", "PARAMETERS"), map(_version, found))
        else:
            typer.echo("Nobody has changed anything yet: mathrag config set --help")


def _version(found: Any) -> tuple[object, ...]:
    held = " ".join(f"{name}={said}" for name, said in _flat(found["params"]))
    return found["version"], found["changed_at"], found["changed_by"], held or None


def _flat(params: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Parameters by the names that `set` takes."""
    for name, value in params.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, msgspec.json.encode(value).decode()


def masked(value: Any) -> Any:
    """`value` without passwords in addresses."""
    match value:
        case dict():
            return {name: masked(each) for name, each in value.items()}
        case list():
            return [masked(each) for each in value]
        case str():
            return redacted(value)
    return value
