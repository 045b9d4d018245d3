"""What is wrong with the configuration, in words that name key, place and fix."""

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

from shared.places import config_file
from shared.runtime.placement import problems
from shared.settings import Settings
from shared.suggestions import nearest

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
"""Variables that are no settings."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    key: str
    where: str
    """File and line, or variable."""
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {f'`{self.key}`: ' if self.key else ''}{self.message}"


def findings(refused: Exception) -> list[Finding]:
    """What an exception of `REFUSALS` says."""
    if isinstance(refused, ValidationError):
        return [_invalid(error["loc"], error["type"], error["msg"]) for error in refused.errors(include_url=False)]
    mark = getattr(refused, "problem_mark", None)
    place = "the environment" if isinstance(refused, SettingsError) else str(config_file())
    place = f"{config_file()}, line {mark.line + 1}, column {mark.column + 1}" if mark else place
    message = str(getattr(refused, "problem", None) or refused).partition("\n")[0]
    return [Finding(key="", where=place, message=message, fix="correct it")]


def misshapen() -> list[Finding]:
    """Whether the file holds anything but keys and values, which nothing that reads it expects."""
    node = _tree()
    if node is None or isinstance(node, yaml.MappingNode):
        return []
    place = f"{config_file()}, line {node.start_mark.line + 1}"
    return [
        Finding(key="", where=place, message="must hold keys and values", fix="cp mathrag.example.yaml mathrag.yaml")
    ]


def unplaced(settings: Settings) -> list[Finding]:
    """Models that no device can ever load."""
    return [
        Finding(
            key=f"models.{name}",
            where=where(["models", name]),
            message=message,
            fix="correct `footprint_mib` and `budget_mib`, or the model's `device`",
        )
        for name, message in problems(settings)
    ]


def misspelt(environment: Mapping[str, str]) -> list[Finding]:
    """Variables that look like ours and that nobody reads."""
    known = {*variables(Settings), *OTHERS}
    named = (name for name in sorted(environment) if name.startswith(PREFIX))
    return [
        Finding(key="", where=name, message="no such setting, so it changes nothing", fix=_nearest(name, known))
        for name in named
        if name.upper() not in known and not name.startswith(OPEN)
    ]


def variables(group: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    """Names of the variables of all settings."""
    for name, field in group.model_fields.items():
        yield f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from variables(field.annotation, f"{prefix}{name.upper()}__")


def _invalid(place: Sequence[str | int], kind: str, message: str) -> Finding:
    path = [str(part) for part in place]
    key = ".".join(path)
    if kind != "extra_forbidden":
        fix = f"mathrag config schema says what `{key}` may be" if key else "correct it"
        return Finding(key=key, where=where(path), message=message[:1].lower() + message[1:], fix=fix)
    known = {name.removeprefix(PREFIX).lower().replace("__", ".") for name in variables(Settings)}
    return Finding(key=key, where=where(path), message="there is no such setting", fix=_nearest(key, known))


def _nearest(name: str, known: set[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else "take it away; docs/operations.md lists all settings"


def where(path: Sequence[str]) -> str:
    """The variable that says it, else the line of the file; the environment wins over the file."""
    for depth in range(len(path), 0, -1):
        variable = PREFIX + "__".join(path[:depth]).upper()
        if variable in os.environ:
            return variable
    line = line_of(path)
    return f"{config_file()}, line {line}" if line else str(config_file())


def line_of(path: Sequence[str]) -> int | None:
    """The line of the file that holds this key, or as much of its path as is there."""
    node = _tree()
    line = None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def _child(node: yaml.Node | None, part: str) -> tuple[yaml.Node, yaml.Node] | None:
    """(where it begins, its value) of a key, or of the element with this number; None: it is not there."""
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)], node.value[int(part)]
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == part), None)


def _tree() -> yaml.Node | None:
    """The file as YAML reads it, with the places; None: there is nothing to read, or it is no YAML."""
    try:
        return yaml.compose(config_file().read_text("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
