"""`mathrag/client/answers.py`: a struct for everything that the API answers with, from its OpenAPI document.

The structs are lenient where servers of other releases differ: fields that are not known are ignored, a value of an
enumeration is any text, what may be null may be missing, and so may lists and mappings.
"""

import keyword
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from services.orchestrator.app import build
from shared.settings import Settings

HEAD = '''"""What the API answers with, as structs. Written by `make generate` from the OpenAPI document; do not edit.

Fields that this release does not know are ignored. Texts with a fixed set of values are `str`, as servers of later
releases may have more of them. `object` is JSON of any form.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec
'''
OPTIONS = '''class JobOptions(TypedDict, total=False):
    """Optional numbers and texts of a job's request; the server's defaults replace those that are left out."""

'''
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
REF = "#/components/schemas/"


def answers() -> str:
    """The text of the module."""
    document = build(Settings(database_url="unused")).openapi()
    schemas = document["components"]["schemas"]
    parts = [_declaration(name, schemas[name]) for name in sorted(_reached(document["paths"], schemas))]
    parts.append(OPTIONS + "".join(f"    {name}: {kind}\n" for name, kind in _options(schemas["JobRequest"])))
    return _formatted("\n\n".join([HEAD, *parts]))


def _options(request: Any) -> Iterator[tuple[str, str]]:
    """Clients take a corpus as an object, too, so it is none of them."""
    for name, schema in request["properties"].items():
        kind = _kind(schema)
        if name not in (*request["required"], "corpus") and kind.removesuffix(" | None") in SCALARS.values():
            yield name, f"Literal{schema['enum']}" if "enum" in schema else kind


def _reached(paths: Any, schemas: Any) -> set[str]:
    """Names of the schemas that answers consist of; pages of a list are the client's own `Page`."""
    found: set[str] = set()
    todo = [*_references([list(_answers_of(paths))])]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += _references(schemas[name])
    return {name for name in found if not name.startswith("Page_")}


def _answers_of(paths: Any) -> Iterator[Any]:
    for operations in paths.values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    yield [each["schema"] for each in response.get("content", {}).values()]


def _references(schema: Any) -> Iterator[str]:
    """Names in the order in which they stand there; those of tagged unions are left out, as `_kind` shows."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict) and "discriminator" not in schema:
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(REF)
        for key, each in schema.items():
            if key != "default":
                yield from _references(each)


def _declaration(name: str, schema: Any) -> str:
    if schema.get("type") != "object":
        return f'{name} = {_kind(schema)}\n"""{_described(name, schema)}"""\n'
    required = schema.get("required", ())
    lines = [_field(field, of, required=field in required) for field, of in schema.get("properties", {}).items()]
    head = f'class {name}(msgspec.Struct, frozen=True, kw_only=True):\n    """{_described(name, schema)}"""\n\n'
    return head + "".join(f"    {line}\n" for line in lines)


def _described(name: str, schema: Any) -> str:
    said: str = schema.get("description", name).partition("\n\n")[0].replace("\\", "\\\\").replace("\n", "\n    ")
    return said if said.endswith(".") else f"{said}."


def _field(name: str, schema: Any, *, required: bool) -> str:
    kind = _kind(schema)
    if not required and "|" not in kind and _default(kind, schema, required=False) is None:
        kind += " | None"  # its default is an object, or none is told
    default = _default(kind, schema, required=required)
    if keyword.iskeyword(name) or name == "self":
        given = "" if default is None else f", default={default}"
        return f'{name}_: {kind} = msgspec.field(name="{name}"{given})'
    return f"{name}: {kind}" + ("" if default is None else f" = {default}")


def _default(kind: str, schema: Any, *, required: bool) -> str | None:
    """What the field is where a server leaves it out; None: none may do so."""
    if kind.endswith("| None") or kind == "object":
        return "None"
    if kind.startswith("tuple[") and kind.endswith("...]"):
        return "()"
    if kind.startswith("dict["):
        return "{}"
    if required or not isinstance(schema.get("default"), str | int | float | bool):
        return None
    return repr(schema["default"])


def _kind(schema: Any) -> str:
    """The annotation for a schema."""
    if "$ref" in schema:
        return str(schema["$ref"].removeprefix(REF))
    if "discriminator" in schema:
        return "dict[str, object]"  # a kind of object that is not known must not fail
    if "anyOf" in schema:
        return _union(schema["anyOf"])
    if "enum" in schema:
        return SCALARS["integer" if isinstance(schema["enum"][0], int) else "string"]
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"tuple[{', '.join(_kind(each) for each in schema['prefixItems'])}]"
        case "array":
            return f"tuple[{_kind(schema['items'])}, ...]"
        case "object":
            inner = schema.get("additionalProperties")
            return f"dict[str, {_kind(inner) if isinstance(inner, dict) and inner else 'object'}]"
        case kind:
            return SCALARS.get(str(kind), "object")


def _union(choices: list[Any]) -> str:
    """A union that msgspec can tell apart, else any JSON."""
    null = any(each.get("type") == "null" for each in choices)
    kinds = list(dict.fromkeys(_kind(each) for each in choices if each.get("type") != "null"))
    if len(kinds) > 1 and not set(kinds) <= {"int", "str", "bool"}:
        return "object"
    return " | ".join([*kinds, "None"] if null else kinds)


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own
