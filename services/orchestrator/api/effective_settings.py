"""`/v1/settings`: the settings that this process was started with, without secrets."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.field_texts import meaning, section
from shared.device_settings import Device
from shared.model_settings import Model
from shared.redaction import HIDDEN, redacted
from shared.settings import Settings

router = APIRouter(prefix="/v1/settings", tags=["configuration"])

EXAMPLE: dict[str, Any] = {
    "name": "device.budget_mib", "value": 400, "default": 160, "changed": True,
    "meaning": "Sum of declared footprints that may be resident; 160 refuses the two shipped models together.",
}  # fmt: skip


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    name: str
    """Its key in mathrag.yaml, levels joined by dots."""
    value: Any
    """`***` in the place of a secret; of a command only the program, as its arguments may hold one."""
    default: Any
    """Null where there is none."""
    changed: bool
    """It is not the default."""
    meaning: str


@route(router, "GET", "", Scope.OPERATE, "Get the settings", answers(list[Setting], [EXAMPLE]))
async def get(deps: RequestDeps) -> Response:
    """As the orchestrator was started, from its environment, its secret files and mathrag.yaml; secrets are not shown.
    A change of the file holds after a restart.
    """
    return json(listed(deps.settings))


def listed(settings: Settings) -> list[Setting]:
    """Every setting, in the order of the file."""
    return list(_group(Settings, settings.model_dump(mode="json"), _defaults(Settings), ""))


def _group(
    kind: type[BaseModel], values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str
) -> Iterator[Setting]:
    for name, field in kind.model_fields.items():
        yield from _setting(field, f"{prefix}{name}", values[name], defaults.get(name))


def _setting(field: FieldInfo, name: str, value: Any, default: Any) -> Iterator[Setting]:
    inner = section(field)
    if inner is not None and value is not None:
        yield from _group(inner, value, default or _defaults(inner), f"{name}.")
    elif name == "models":
        for each, model in value.items():
            yield from _group(Model, model, _defaults(Model), f"{name}.{each}.")
    elif name == "devices":
        for number, device in enumerate(value):
            yield from _group(Device, device, _defaults(Device), f"{name}.{number}.")
    else:
        shown = _shown(name, value)
        yield Setting(name=name, value=shown, default=default, changed=value != default, meaning=meaning(field))


def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    """Whatever the environment says; a field that is needed has none."""
    return kind.model_construct().model_dump(mode="json")


def _shown(name: str, value: Any) -> Any:
    """Without passwords in addresses, and without what may hold a key."""
    if name.endswith(".command") and len(value) > 1:
        return [value[0], HIDDEN]
    if isinstance(value, list):
        return [_shown("", each) for each in value]
    return redacted(value) if isinstance(value, str) else value
