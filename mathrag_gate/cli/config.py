"""`mathrag config`: check settings, show them, and change the configuration while the services run.

Services read the settings when they start. The configuration can be changed while they run: it has the defaults for
parameters that a job does not set.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from mathrag.cli.api import list_and_print
from mathrag.cli.command_groups import ApiCommand, Mutation
from mathrag.cli.output import AsJson, Exit, flatten_parameters, parse_parameters, print_json, report_errors
from mathrag.client import service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json
from mathrag.messages import redact
from mathrag.places import config_file
from mathrag_gate.cli.config_findings import (
    REFUSALS,
    ConfigFinding,
    explain,
    find_missing,
    find_missing_file,
    find_unknown_variables,
    find_unplaced_models,
    find_wrong_shape,
)
from shared.settings import REPOSITORY, Settings, load

config = typer.Typer()
QUICK_S = 5.0
"""Longest wait for the server in seconds; if it does not answer, the command shows only the settings in files."""


@config.command("schema")
def print_schema(as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False) -> None:
    """Print the JSON schema of mathrag.yaml, for editors; also in the repository as config-schema.json."""
    with report_errors(as_json=as_json):
        typer.echo(schema())


def schema() -> str:
    """Return the JSON schema of the settings, the content of config-schema.json."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode().replace(f"{REPOSITORY}/", "")


@config.command()
def validate(
    file: Annotated[
        Path | None, typer.Argument(help="Settings file (default: MATHRAG_CONFIG, or mathrag.yaml).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings file and the environment, and print each problem; exits with 4 if there is one."""
    with report_errors(as_json=as_json):
        found = check(file)
        print_json({"valid": not found, "findings": found}) if as_json else print_findings(found)
        if found:
            raise typer.Exit(Exit.INVALID)


def check(file: Path | None = None) -> list[ConfigFinding]:
    """Return the problems of `file` and the environment; empty if both are valid.

    Raises:
        Failed: the file does not exist.
    """
    if file is not None:
        if not file.is_file():
            raise Failed(
                "not_found",
                f"settings file {file} does not exist",
                hint="correct the path; mathrag config schema prints the schema",
            )
        os.environ["MATHRAG_CONFIG"] = str(file)
    found = find_missing_file() or find_wrong_shape()
    try:
        if not found:
            settings = load()
            found = [*find_unplaced_models(settings), *find_missing(settings)]
    except REFUSALS as refused:
        found = explain(refused)
    reported = {finding.where for finding in found}
    return [*found, *(each for each in find_unknown_variables(os.environ) if each.where not in reported)]


def print_findings(found: list[ConfigFinding]) -> None:
    """Print one line for each finding and one line for its fix."""
    for finding in found:
        typer.echo(str(finding))
        typer.echo(f"  fix: {finding.fix}")
    if not found:
        path = config_file()
        typer.echo(f"The settings are valid: {path if path.is_file() else 'defaults'} and the environment.")


@config.command(cls=ApiCommand)
def show(as_json: AsJson = False) -> None:
    """Show the effective settings with secrets masked, and the server's configuration if it answers."""
    with report_errors(as_json=as_json):
        for absent in find_missing_file():
            raise Failed("not_found", str(absent), hint=absent.fix)
        effective = mask_passwords(load().model_dump(mode="json"))
        try:
            with Client(timeout_s=QUICK_S) as client:
                running, why = client.send(service.configuration()), ""
        except Failed as failed:
            running, why = None, failed.message
        if as_json:
            print_json({**effective, "configuration": running})
            return
        typer.echo(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True).rstrip())
        if running is None:
            typer.echo(f"# configuration: {why}")
        else:
            typer.echo(yaml.safe_dump({"configuration": running}, sort_keys=False, allow_unicode=True).rstrip())


@config.command("set", cls=Mutation)
def change(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE", help="Parameter and value, as for --set; the value null restores the default."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change the defaults of parameters for later jobs, searches and chats; no restart is needed."""
    with report_errors(as_json=as_json), Client() as client:
        changed = client.send(service.change_configuration(parse_parameters(values, "config set")))
        if as_json:
            print_json(changed)
        else:
            typer.echo(f"configuration is at version {changed['version']}\n  next: mathrag config history")


@config.command(cls=ApiCommand)
def history(
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 20, as_json: AsJson = False
) -> None:
    """List the versions of the configuration, newest first: time, author and parameters."""

    def make_row(found: Json) -> tuple[object, ...]:
        text = " ".join(flatten_parameters(found["params"]))
        return found["version"], found["changed_at"], found["changed_by"], text or None

    list_and_print(
        service.list_configurations(), ("VERSION", "WHEN", "WHO", "PARAMETERS"), make_row, as_json,
        limit=limit, nothing="No parameter was changed yet: mathrag config set --help",
    )  # fmt: skip


def mask_passwords(value: Any) -> Any:
    """Return `value` with the passwords in its addresses masked, at any depth."""
    match value:
        case dict():
            return {name: mask_passwords(each) for name, each in value.items()}
        case list():
            return [mask_passwords(each) for each in value]
        case str():
            return redact(value)
    return value
