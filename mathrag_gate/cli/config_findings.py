"""Find problems of the configuration, each with its key, its place and a fix."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

from mathrag.messages import find_nearest, make_hint
from mathrag.places import config_file
from shared.runtime.placement import find_problems
from shared.settings import Settings

REFUSALS = (ValidationError, SettingsError, yaml.YAMLError)
"""Exceptions that loading the settings raises."""
PREFIX = "MATHRAG_"
CONFIG = f"{PREFIX}CONFIG"
RETRIEVAL_FILES = {"embeddings": ("static", "gguf"), "reranker": ("gguf",)}
"""Kinds that read a file at `path`, by the group of `retrieval`; sentence-transformers may take a name on the hub."""
OPEN = ("MATHRAG_MODELS__", "MATHRAG_ROLES__")
"""Settings whose keys the operator chooses."""
OTHERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        # read by `mathrag` and its child processes
        "URL", "API_KEY", "CONFIG", "SECRETS_DIR", "SERVER_KEY",
        # read by docker-compose.yml
        "TAG", "PUBLISH", "REVISION", "MODELS_DIR", "GUARD_MEMORY", "RETRIEVER_MEMORY", "OTLP_ENDPOINT",
    )
)  # fmt: skip
"""Environment variables with the prefix that are not settings."""


class ConfigFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the settings."""

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
        return list(_explain_invalid(refused))
    mark = getattr(refused, "problem_mark", None)
    place = "the environment" if isinstance(refused, SettingsError) else str(config_file())
    place = f"{config_file()}, line {mark.line + 1}, column {mark.column + 1}" if mark else place
    message = str(getattr(refused, "problem", None) or refused).partition("\n")[0]
    return [ConfigFinding(key="", where=place, message=message, fix="correct the value")]


def _explain_invalid(refused: ValidationError) -> Iterator[ConfigFinding]:
    for error in refused.errors(include_url=False):
        path = [str(part) for part in error["loc"]]
        key, message = ".".join(path), error["msg"]
        if error["type"] == "extra_forbidden":
            known = {name.removeprefix(PREFIX).lower().replace("__", ".") for name in list_variables(Settings)}
            yield _make_finding(path, "unknown setting", _suggest_nearest(key, known))
        else:
            fix = f"mathrag config schema prints the values that `{key}` may have" if key else "correct the value"
            yield _make_finding(path, message[:1].lower() + message[1:], fix)


def find_missing_file() -> list[ConfigFinding]:
    """Return a finding if MATHRAG_CONFIG names a missing file, because the defaults would apply silently."""
    if CONFIG not in os.environ or config_file().exists():
        return []
    message = f"the file `{config_file()}` does not exist, so the defaults would apply"
    fix = f"correct the path, unset {CONFIG}, or: cp mathrag.example.yaml {config_file()}"
    return [ConfigFinding(key="", where=CONFIG, message=message, fix=fix)]


def find_missing(settings: Settings) -> Iterator[ConfigFinding]:
    """Yield a finding for each role whose model is not configured, and for each missing model file."""
    for role, name in settings.roles.items():
        if name not in settings.models:
            listed = (
                f"the configured models are {', '.join(sorted(settings.models))}; `mathrag config show` prints them"
            )
            fix = make_hint(name, settings.models, listed)
            yield _make_finding(["roles", role], f"model {name!r} is not configured", fix)
    files = [
        (["models", name, "path"], model.path)
        for name, model in settings.models.items()
        if model.driver in ("process", "vllm-sleep")
    ]
    groups = ((group, getattr(settings.retrieval, group), kinds) for group, kinds in RETRIEVAL_FILES.items())
    files += [(["retrieval", group, "path"], found.path) for group, found, kinds in groups if found.kind in kinds]
    for path, file in files:
        if file is not None and not file.exists():
            message = f"the file or folder `{file}` does not exist (relative to {Path.cwd()})"
            yield _make_finding(
                path, message, f"correct the path, or put the model there; ls -l {file.parent} shows the folder"
            )


def find_wrong_shape() -> list[ConfigFinding]:
    """Return a finding if the settings file is not a mapping."""
    node = _parse_file()
    if node is None or isinstance(node, yaml.MappingNode):
        return []
    place = f"{config_file()}, line {node.start_mark.line + 1}"
    message, fix = "must be a mapping of keys to values", "cp mathrag.example.yaml mathrag.yaml"
    return [ConfigFinding(key="", where=place, message=message, fix=fix)]


def find_unplaced_models(settings: Settings) -> list[ConfigFinding]:
    """Return a finding for each model that is too large for every device that it may use."""
    fix = "correct `footprint_mib` and `budget_mib`, or the model's `device`"
    return [_make_finding(["models", name], message, fix) for name, message in find_problems(settings)]


def find_unknown_variables(environment: Mapping[str, str]) -> list[ConfigFinding]:
    """Return a finding for each environment variable with the prefix that is unknown."""
    known = {*list_variables(Settings), *OTHERS}
    message = "unknown setting, so the variable has no effect"
    names = (name for name in sorted(environment) if name.startswith(PREFIX))
    return [
        ConfigFinding(key="", where=name, message=message, fix=_suggest_nearest(name, known))
        for name in names
        if name.upper() not in known and not name.startswith(OPEN)
    ]


def list_variables(group: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    """Yield the environment variable of every setting, including nested groups."""
    for name, field in group.model_fields.items():
        yield f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from list_variables(field.annotation, f"{prefix}{name.upper()}__")


def _make_finding(path: Sequence[str], message: str, fix: str) -> ConfigFinding:
    return ConfigFinding(key=".".join(path), where=locate(path), message=message, fix=fix)


def _suggest_nearest(name: str, known: set[str]) -> str:
    near = find_nearest(name, known)
    return f"did you mean {near}?" if near else "remove it; docs/reference/settings.md lists all settings"


def locate(path: Sequence[str]) -> str:
    """Return the environment variable that sets the key, or the file and line; the environment has precedence."""
    for depth in range(len(path), 0, -1):
        variable = PREFIX + "__".join(path[:depth]).upper()
        if variable in os.environ:
            return variable
    # Use the line of the key, or of its deepest parent in the file.
    node, line = _parse_file(), None
    for part in path:
        found = _find_child(node, part)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return f"{config_file()}, line {line}" if line else str(config_file())


def _find_child(node: yaml.Node | None, part: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of a key and of its value (for a list, twice the element); None if the key is missing."""
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)], node.value[int(part)]
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == part), None)


def _parse_file() -> yaml.Node | None:
    """Return the file's YAML nodes with their lines; None if the file cannot be read or is not YAML."""
    try:
        return yaml.compose(config_file().read_text("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
