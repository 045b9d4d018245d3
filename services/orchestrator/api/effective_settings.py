"""Serves `/v1/settings`: the settings that this process was started with, without secrets."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.params import describe_field, find_group
from shared.redaction import HIDDEN, redact
from shared.settings import Device, Model, Settings
from shared.shapes import Scope

router = APIRouter(prefix="/v1/settings", tags=["configuration"])

EXAMPLE: dict[str, Any] = {
    "name": "device.budget_mib", "value": 400, "default": 160, "changed": True,
    "meaning": "Sum of declared footprints that may be resident; 160 refuses the two shipped models together.",
}  # fmt: skip


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its value and default."""

    name: str
    """Key in mathrag.yaml, with levels joined by dots."""
    value: Any
    """Value in effect; `***` replaces a secret, and of a command only the program is shown because its arguments may
    hold one.
    """
    default: Any
    """Default value; null if there is none."""
    changed: bool
    """Whether the value differs from the default."""
    meaning: str


@route(router, "GET", "", Scope.OPERATE, "Get the settings", answers(list[Setting], [EXAMPLE]))
async def get(deps: RequestDeps) -> Response:
    """Returns the settings that the orchestrator was started with, from its environment, its secret files and
    mathrag.yaml. Secrets are masked. An edit of the file takes effect after a restart.
    """
    return json(list_settings(deps.settings))


def list_settings(settings: Settings) -> list[Setting]:
    """List every setting in the order of the file."""
    return list(_group(Settings, settings.model_dump(mode="json"), _dump_defaults(Settings), ""))


def _group(
    kind: type[BaseModel], values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str
) -> Iterator[Setting]:
    for name, field in kind.model_fields.items():
        yield from _list_settings(field, f"{prefix}{name}", values[name], defaults.get(name))


def _list_settings(field: FieldInfo, name: str, value: Any, default: Any) -> Iterator[Setting]:
    inner = find_group(field)
    if inner is not None and value is not None:
        yield from _group(inner, value, default or _dump_defaults(inner), f"{name}.")
    elif name == "models":
        for each, model in value.items():
            yield from _group(Model, model, _dump_defaults(Model), f"{name}.{each}.")
    elif name == "devices":
        for number, device in enumerate(value):
            yield from _group(Device, device, _dump_defaults(Device), f"{name}.{number}.")
    else:
        masked = _mask(name, value)
        yield Setting(name=name, value=masked, default=default, changed=value != default, meaning=describe_field(field))


def _dump_defaults(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults without regard to the environment; required fields are left out."""
    return kind.model_construct().model_dump(mode="json")


def _mask(name: str, value: Any) -> Any:
    """Mask passwords in addresses and everything that may hold a key."""
    if name.endswith(".command") and len(value) > 1:
        return [value[0], HIDDEN]
    if isinstance(value, list):
        return [_mask("", each) for each in value]
    return redact(value) if isinstance(value, str) else value
