"""`mathrag config`: check settings, show them, and change the configuration while the services run."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from mathrag.cli.command_groups import ApiCommand, Mutation
from mathrag.cli.config_findings import (
    REFUSALS,
    ConfigFinding,
    explain,
    find_unknown_variables,
    find_unplaced_models,
    find_wrong_shape,
    locate,
)
from mathrag.cli.output import AsJson, Exit, parse_parameters, print_json, print_table, report_errors
from mathrag.client import service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE
from shared.messages import make_hint, redact
from shared.places import config_file
from shared.settings import REPOSITORY, Settings, load

# Files and models that a configuration names but that do not exist.

VARIABLE = "MATHRAG_CONFIG"
RETRIEVAL_FILES = {"embeddings": ("static", "gguf"), "reranker": ("gguf",)}
"""Kinds of a group of `retrieval` that read their `path`; sentence-transformers may take a name on the hub."""


def find_missing_file() -> list[ConfigFinding]:
    """Return a finding if MATHRAG_CONFIG names a missing file: the defaults would apply without a word."""
    if VARIABLE not in os.environ or config_file().exists():
        return []
    message = f"there is no file `{config_file()}`, so the defaults would apply"
    fix = f"correct the path, unset {VARIABLE}, or: cp mathrag.example.yaml {config_file()}"
    return [ConfigFinding(key="", where=VARIABLE, message=message, fix=fix)]


def find_missing(settings: Settings) -> Iterator[ConfigFinding]:
    """Yield a finding for each role whose model is not configured, and for each missing model file."""
    for role, name in settings.roles.items():
        if name not in settings.models:
            listed = f"the models are {', '.join(sorted(settings.models))}; `mathrag config show` prints them"
            fix = make_hint(name, settings.models, listed)
            place = ["roles", role]
            yield ConfigFinding(
                key=".".join(place), where=locate(place), message=f"there is no model {name!r}", fix=fix
            )
    for place, path in _list_model_files(settings):
        if not path.exists():
            message = f"there is no file or folder `{path}` (looked for from {Path.cwd()})"
            fix = "correct the path, or put the model there: ls -l " + str(path.parent)
            yield ConfigFinding(key=".".join(place), where=locate(place), message=message, fix=fix)


def _list_model_files(settings: Settings) -> Iterator[tuple[list[str], Path]]:
    """Yield the keys and the path of every file that a service would read."""
    for name, model in settings.models.items():
        if model.driver in ("process", "vllm-sleep") and model.path is not None:
            yield ["models", name, "path"], model.path
    for group, kinds in RETRIEVAL_FILES.items():
        found = getattr(settings.retrieval, group)
        if found.kind in kinds and found.path is not None:
            yield ["retrieval", group, "path"], found.path


# `mathrag config`: check and show settings, and change the configuration.
#
# Settings are read when services start. The configuration can be changed while they run: it holds the defaults of
# parameters that a job does not set.

config = typer.Typer()
QUICK_S = 5.0
"""Longest wait for the server: the settings in files are shown even when none answers."""

File = Annotated[Path | None, typer.Argument(help="Settings file (default: MATHRAG_CONFIG, else mathrag.yaml).")]


@config.command("schema")
def print_schema(as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False) -> None:
    """Print the JSON schema of mathrag.yaml, for editors; also in the repository as config-schema.json."""
    with report_errors(as_json=as_json):
        typer.echo(schema())


def schema() -> str:
    """Return the JSON schema of the settings, as config-schema.json in the repository holds it."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode().replace(f"{REPOSITORY}/", "")


@config.command()
def validate(file: File = None, as_json: AsJson = False) -> None:
    """Check the settings file and the environment, and print each problem; exits with 4 if there is one."""
    with report_errors(as_json=as_json):
        found = check(file)
        if as_json:
            print_json({"valid": not found, "findings": found})
        else:
            print_findings(found)
        if found:
            raise typer.Exit(Exit.INVALID)


def check(file: Path | None = None) -> list[ConfigFinding]:
    """Return what is wrong with `file` and the environment; empty when both are valid.

    Raises:
        Failed: there is no such file.
    """
    if file is not None:
        if not file.is_file():
            raise Failed("not_found", f"there is no file {file}", hint="mathrag config schema prints its schema")
        os.environ["MATHRAG_CONFIG"] = str(file)
    found = find_missing_file() or find_wrong_shape()
    try:
        if not found:
            settings = load()
            found = [*find_unplaced_models(settings), *find_missing(settings)]
    except REFUSALS as refused:
        found = explain(refused)
    reported = {finding.where for finding in found}
    return [
        *found,
        *(each for each in find_unknown_variables(os.environ) if each.where not in reported),
    ]


def print_findings(found: list[ConfigFinding]) -> None:
    """Print one line for each finding and one for its fix."""
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
            metavar="NAME=VALUE...", help="Parameter and value, as in --set of a job; null restores the default."
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
            typer.echo(f"configuration is at version {changed['version']}")
            typer.echo("  next: mathrag config history")


@config.command(cls=ApiCommand)
def history(
    limit: Annotated[int, typer.Option(help="Number of versions to list.")] = 20, as_json: AsJson = False
) -> None:
    """List the versions of the configuration, newest first: time, author and parameters."""
    with report_errors(as_json=as_json), Client() as client:
        found = list(islice(client.all(service.list_configurations(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            print_table(("VERSION", "WHEN", "WHO", "PARAMETERS"), map(_make_version_row, found))
        else:
            typer.echo("No parameter has been changed yet: see mathrag config set --help")


def _make_version_row(found: Any) -> tuple[object, ...]:
    text = " ".join(f"{name}={value}" for name, value in _flatten(found["params"]))
    return found["version"], found["changed_at"], found["changed_by"], text or None


def _flatten(params: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each parameter with the name that `set` takes, such as gate.tau, and its value as JSON."""
    for name, value in params.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, msgspec.json.encode(value).decode()


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
