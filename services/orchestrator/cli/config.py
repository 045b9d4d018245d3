"""`mathrag config`: what may be set, whether what is set is right, and what holds now."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from services.orchestrator.cli import configuration
from services.orchestrator.cli.failures import Exit, Failed, reported
from services.orchestrator.cli.output import AsJson, print_json
from shared.settings import REPOSITORY, Settings, config_file, load
from shared.telemetry.redaction import redacted

config = typer.Typer(help="Settings: what may be set, what is wrong, what holds.")

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


def check(file: Path | None = None) -> list[configuration.Finding]:
    """What is wrong with `file` and the environment.

    Raises:
        Failed: there is no such file.
    """
    if file is not None:
        if not file.is_file():
            raise Failed("not_found", f"no file {file}", hint="mathrag config schema says what it may hold")
        os.environ["MATHRAG_CONFIG"] = str(file)
    found = configuration.misshapen()
    try:
        if not found:
            found = configuration.unplaced(load())
    except configuration.REFUSALS as refused:
        found = configuration.findings(refused)
    said = {finding.where for finding in found}
    return [*found, *(each for each in configuration.misspelt(os.environ) if each.where not in said)]


def print_findings(found: list[configuration.Finding]) -> None:
    """One line each, and its fix."""
    for finding in found:
        typer.echo(str(finding))
        typer.echo(f"  fix: {finding.fix}")
    if not found:
        said = config_file()
        typer.echo(f"The settings are valid: {said if said.is_file() else 'defaults'} and the environment.")


@config.command()
def show(as_json: AsJson = False) -> None:
    """The settings that hold, from all sources; secrets are masked."""
    with reported(as_json=as_json):
        effective = masked(load().model_dump(mode="json"))
        if as_json:
            print_json(effective)
        else:
            typer.echo(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True).rstrip())


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
