"""`mathrag config`: check settings, show them, and change the configuration while the services run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

from mathrag.cli.command_groups import ApiCommand, Mutation
from mathrag.cli.output import AsJson, Exit, parse_parameters, print_json, print_table, report_errors
from mathrag.client import service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE
from shared import suggestions
from shared.places import config_file
from shared.redaction import redact
from shared.runtime.placement import find_problems
from shared.settings import REPOSITORY, Settings, load
from shared.suggestions import find_nearest

# Problems of the configuration, each with its key, place and fix.

REFUSALS = (ValidationError, SettingsError, yaml.YAMLError)
"""What loading the settings raises."""
PREFIX = "MATHRAG_"
OPEN = ("MATHRAG_MODELS__", "MATHRAG_ROLES__")
"""Settings whose keys are the operator's own."""
OTHERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        # read by `mathrag` itself, and by children
        "URL", "API_KEY", "CONFIG", "SECRETS_DIR", "SERVER_KEY",
        # read by docker-compose.yml
        "TAG", "PUBLISH", "REVISION", "MODELS_DIR", "GUARD_MEMORY", "RETRIEVER_MEMORY", "OTLP_ENDPOINT",
    )
)  # fmt: skip
"""Variables of ours that are not settings."""


class ConfigFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of the settings."""

    key: str
    where: str
    """File and line, or the environment variable."""
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {f'`{self.key}`: ' if self.key else ''}{self.message}"


def explain(refused: Exception) -> list[ConfigFinding]:
    """Return the problems that an exception of `REFUSALS` reports."""
    if isinstance(refused, ValidationError):
        return [_make_finding(error["loc"], error["type"], error["msg"]) for error in refused.errors(include_url=False)]
    mark = getattr(refused, "problem_mark", None)
    place = "the environment" if isinstance(refused, SettingsError) else str(config_file())
    place = f"{config_file()}, line {mark.line + 1}, column {mark.column + 1}" if mark else place
    message = str(getattr(refused, "problem", None) or refused).partition("\n")[0]
    return [ConfigFinding(key="", where=place, message=message, fix="correct the value there")]


def find_wrong_shape() -> list[ConfigFinding]:
    """Return a finding if the settings file is not a mapping, which its readers do not expect."""
    node = _parse_file()
    if node is None or isinstance(node, yaml.MappingNode):
        return []
    place = f"{config_file()}, line {node.start_mark.line + 1}"
    return [
        ConfigFinding(
            key="",
            where=place,
            message="must be a mapping of keys to values",
            fix="cp mathrag.example.yaml mathrag.yaml",
        )
    ]


def find_unplaced_models(settings: Settings) -> list[ConfigFinding]:
    """Return a finding for each model that is too large for every device that it may use."""
    return [
        ConfigFinding(
            key=f"models.{name}",
            where=locate(["models", name]),
            message=message,
            fix="correct `footprint_mib` and `budget_mib`, or the model's `device`",
        )
        for name, message in find_problems(settings)
    ]


def find_unknown_variables(environment: Mapping[str, str]) -> list[ConfigFinding]:
    """Return a finding for each variable with our prefix that no setting and no other reader has."""
    known = {*list_variables(Settings), *OTHERS}
    names = (name for name in sorted(environment) if name.startswith(PREFIX))
    return [
        ConfigFinding(
            key="",
            where=name,
            message="there is no such setting, so the variable has no effect",
            fix=_suggest_nearest(name, known),
        )
        for name in names
        if name.upper() not in known and not name.startswith(OPEN)
    ]


def list_variables(group: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    """Yield the environment variable of every setting, those of nested groups included."""
    for name, field in group.model_fields.items():
        yield f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from list_variables(field.annotation, f"{prefix}{name.upper()}__")


def _make_finding(place: Sequence[str | int], kind: str, message: str) -> ConfigFinding:
    path = [str(part) for part in place]
    key = ".".join(path)
    if kind != "extra_forbidden":
        fix = f"mathrag config schema prints the values that `{key}` may have" if key else "correct the value"
        return ConfigFinding(key=key, where=locate(path), message=message[:1].lower() + message[1:], fix=fix)
    known = {name.removeprefix(PREFIX).lower().replace("__", ".") for name in list_variables(Settings)}
    return ConfigFinding(
        key=key, where=locate(path), message="there is no such setting", fix=_suggest_nearest(key, known)
    )


def _suggest_nearest(name: str, known: set[str]) -> str:
    near = find_nearest(name, known)
    return f"did you mean {near}?" if near else "remove it; docs/reference/settings.md lists all settings"


def locate(path: Sequence[str]) -> str:
    """Return the environment variable that sets the key, else the file and line: the environment has precedence."""
    for depth in range(len(path), 0, -1):
        variable = PREFIX + "__".join(path[:depth]).upper()
        if variable in os.environ:
            return variable
    line = find_line(path)
    return f"{config_file()}, line {line}" if line else str(config_file())


def find_line(path: Sequence[str]) -> int | None:
    """Return the line of this key, or of its deepest parent in the file; None if the file has neither."""
    node = _parse_file()
    line = None
    for part in path:
        found = _find_child(node, part)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def _find_child(node: yaml.Node | None, part: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of a key and of its value (twice the element in a list); None if it is not there."""
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)], node.value[int(part)]
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == part), None)


def _parse_file() -> yaml.Node | None:
    """Return the file's YAML nodes, which know their lines; None if it cannot be read or is not YAML."""
    try:
        return yaml.compose(config_file().read_text("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


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
            fix = suggestions.make_hint(name, settings.models, listed)
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
        running, why = _fetch_configuration()
        if as_json:
            print_json({**effective, "configuration": running})
            return
        typer.echo(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True).rstrip())
        if running is None:
            typer.echo(f"# configuration: {why}")
        else:
            typer.echo(yaml.safe_dump({"configuration": running}, sort_keys=False, allow_unicode=True).rstrip())


def _fetch_configuration() -> tuple[Any, str]:
    """Return the server's configuration and "", or None and the reason why it is not known."""
    try:
        with Client(timeout_s=QUICK_S) as client:
            return client.send(service.configuration()), ""
    except Failed as failed:
        return None, failed.message


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
