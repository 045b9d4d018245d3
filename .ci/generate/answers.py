"""`mathrag/client/answers.py`: a struct for everything that the API answers with, from its OpenAPI document.

The structs are lenient where servers of other releases differ: fields that are not known are ignored, a value of an
enumeration is any text, what may be null may be missing, and so may lists and mappings.
"""

import keyword
import subprocess
import sys
import textwrap
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
EXTENDED = 5
"""Least number of fields of a struct that others extend: fewer may be the same by accident."""


def answers() -> str:
    """Return the text of the module: structs by name, then those that extend another one."""
    document = build(Settings(database_url="unused")).openapi()
    schemas = document["components"]["schemas"]
    names = sorted(_find_answers(document["paths"], schemas))
    fields = {name: list(_fields(schemas[name])) for name in names if schemas[name].get("type") == "object"}
    bases = {name: _find_base(of, fields) for name, of in fields.items()}
    parts = []
    for name in sorted(names, key=lambda name: (bool(bases.get(name)), name)):
        said = schemas[name].get("description", name).partition("\n\n")[0].removesuffix(".").replace("\\", "\\\\")
        about = f'"""{said.replace(chr(10), chr(10) + "    ")}."""'
        if name in fields:
            base = bases[name]
            lines = zip(fields[name], schemas[name]["properties"].values(), strict=True)
            own = "".join(f"    {line}\n{_write_docstring(of)}" for line, of in [*lines][len(fields.get(base, ())) :])
            extended = base or "msgspec.Struct"
            parts.append(f"class {name}({extended}, frozen=True, kw_only=True):\n    {about}\n\n{own}")
        else:
            parts.append(f"{name} = {_kind(schemas[name])}\n{about}\n")
    parts.append(OPTIONS + "".join(f"    {name}: {kind}\n" for name, kind in _options(schemas["JobRequest"])))
    command = [sys.executable, "-m", "ruff", "format", "-"]
    text = "\n\n".join([HEAD, *parts])
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own


def _write_docstring(schema: Any) -> str:
    """Return the description of a field as the docstring below its declaration, wrapped and indented."""
    text = schema.get("description", "").replace("\\", "\\\\")
    return textwrap.fill(f'"""{text}"""', 116, initial_indent="    ", subsequent_indent="    ") + "\n" if text else ""


def _find_base(fields: list[str], structs: dict[str, list[str]]) -> str:
    """Return the struct with whose fields these begin, the smallest of several; "" if there is none."""
    found = [name for name, of in structs.items() if EXTENDED <= len(of) < len(fields) and fields[: len(of)] == of]
    return min(found, key=lambda name: len(structs[name]), default="")


def _options(request: Any) -> Iterator[tuple[str, str]]:
    """Yield name and type; clients take a corpus as an object, too, so it is none of them."""
    for name, schema in request["properties"].items():
        kind = _kind(schema)
        if name not in (*request["required"], "corpus") and kind.removesuffix(" | None") in SCALARS.values():
            yield name, f"Literal{schema['enum']}" if "enum" in schema else kind


def _find_answers(paths: Any, schemas: Any) -> set[str]:
    """Return the names of the schemas that answers consist of, but for pages of a list and the stream of events."""
    found: set[str] = set()
    todo = [
        name
        for operations in paths.values()
        for operation in operations.values()
        for status, response in operation["responses"].items()
        for media, content in response.get("content", {}).items()
        if status.startswith("2") and media != "text/event-stream"
        for name in _references(content["schema"])
    ]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += _references(schemas[name])
    return {name for name in found if "next_cursor" not in schemas[name].get("properties", {})}


def _references(schema: Any) -> Iterator[str]:
    """Yield the names that a schema refers to, in their order, but for those of tagged unions, as `_kind` shows."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict) and "discriminator" not in schema:
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(REF)
        for key, each in schema.items():
            if key != "default":
                yield from _references(each)


def _fields(schema: Any) -> Iterator[str]:
    """Yield the declaration of each field."""
    for name, of in schema.get("properties", {}).items():
        kind, required = _kind(of), name in schema.get("required", ())
        if not required and "|" not in kind and _default(kind, of, required=False) is None:
            kind += " | None"  # its default is an object, or none is told
        default = _default(kind, of, required=required)
        if keyword.iskeyword(name) or name == "self":
            given = "" if default is None else f", default={default}"
            yield f'{name}_: {kind} = msgspec.field(name="{name}"{given})'
        else:
            yield f"{name}: {kind}" + ("" if default is None else f" = {default}")


def _default(kind: str, schema: Any, *, required: bool) -> str | None:
    """Return what the field is where a server leaves it out; None: none may do so."""
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
    """Return the annotation for a schema."""
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
    """Return a union that msgspec can tell apart, else any JSON."""
    null = any(each.get("type") == "null" for each in choices)
    kinds = list(dict.fromkeys(_kind(each) for each in choices if each.get("type") != "null"))
    if len(kinds) > 1 and not set(kinds) <= {"int", "str", "bool"}:
        return "object"
    return " | ".join([*kinds, "None"] if null else kinds)
