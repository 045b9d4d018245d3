"""Pages about the API, from its OpenAPI document: one for each group of operations, and one of all schemas."""

import json
from collections.abc import Iterator
from typing import Any

from links import link_pages
from tables import table

from services.orchestrator.app import build
from shared.settings import Settings

JSON = dict[str, Any]
FOLDER = "reference/api"
SCHEMAS = f"{FOLDER}/schemas.md"
TITLES = {"gpus": "Devices", "catalog": "Models and pipelines", "rules": "Rule banks", "graphs": "Knowledge graphs"}
"""Titles of groups that are not called by their tag."""
ANY = {"object": "object", "array": "list", "string": "text", "integer": "integer", "number": "number"}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name below docs/ and the text of every page."""
    document = build(Settings()).openapi()
    groups: dict[str, list[tuple[str, str, JSON]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag, operations in groups.items():
        name = f"{FOLDER}/{tag}.md"
        title = f"API: {TITLES.get(tag, tag.capitalize())}"
        yield name, _write_page(title, [_write_operation(*each, name) for each in operations])
    schemas = sorted(document["components"]["schemas"].items())
    yield SCHEMAS, _write_page("Schemas", [_write_schema(*each) for each in schemas])


def _write_page(title: str, sections: list[str]) -> str:
    note = "*Written by `make generate` from the OpenAPI document; do not edit.*"
    return "\n\n".join([f"# {title}", note, *sections]) + "\n"


def _write_operation(method: str, path: str, operation: JSON, page: str) -> str:
    parts = [f"## {method} {path}", f"**{operation['summary']}.** {link_pages(_join_prose(operation), page)}".strip()]
    if parameters := operation.get("parameters"):
        rows = (
            (
                f"`{each['name']}`", each["in"], _name_kind(each["schema"], page), _show_default(each["schema"]),
                _explain(each, page),
            )
            for each in parameters
        )  # fmt: skip
        parts.append(table(("parameter", "in", "type", "default", "meaning"), rows, page))
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += _list_content("Body", media, content, page)
    for status, answer in operation["responses"].items():
        if status < "400":
            for media, content in answer.get("content", {}).items():
                parts += _list_content(f"Answer {status}", media, content, page)
    refusals = [f"[{status}](../errors.md)" for status in operation["responses"] if status >= "400"]
    parts.append(f"Refusals: {', '.join(refusals)}.")
    return "\n\n".join(parts)


def _list_content(said: str, media: str, content: JSON, page: str) -> Iterator[str]:
    kind = _name_kind(content.get("schema", {}), page)
    yield f"{said}: `{media}`" + (f", {kind}" if kind else "")
    if "example" in content and media.endswith("json"):
        example = content["example"]
        shown = example if isinstance(example, str) else json.dumps(example, indent=1, ensure_ascii=False)
        yield f"```json\n{shown.rstrip()}\n```"


def _write_schema(name: str, schema: JSON) -> str:
    parts = [f"## {name}", *filter(None, [link_pages(_join_prose(schema), SCHEMAS)])]
    needed = schema.get("required", ())
    rows = [
        (
            f"`{field}`",
            _name_kind(each, SCHEMAS),
            "required" if field in needed else _show_default(each),
            _explain(each, SCHEMAS),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    parts.append(
        table(("field", "type", "default", "meaning"), iter(rows), SCHEMAS) if rows else _name_kind(schema, SCHEMAS)
    )
    return "\n\n".join(parts)


def _join_prose(of: JSON) -> str:
    paragraphs = (of.get("description") or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _explain(of: JSON, page: str) -> str:
    return link_pages(" ".join((of.get("description") or "").split()), page)


def _show_default(schema: JSON) -> str:
    return f"`{json.dumps(schema['default'], ensure_ascii=False)}`" if schema.get("default") is not None else "none"


def _name_kind(schema: JSON, page: str) -> str:
    """Return the type of a value in words, with its bounds; a schema of the document is a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name.rpartition('__')[2]}]({'' if page == SCHEMAS else 'schemas.md'}#{name.lower()})"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_name_kind(each, page) for each in several))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        kinds = [_name_kind(each, page) or "any" for each in schema.get("prefixItems") or [schema.get("items", {})]]
        return f"list of {', '.join(kinds)}"
    kind = ANY.get(schema.get("type", ""), schema.get("type", ""))
    low, high = schema.get("minimum"), schema.get("maximum")
    said = [f"from {low:g}" if low is not None else "", f"to {high:g}" if high is not None else ""]
    if "maxLength" in schema:
        said.append(f"of at most {schema['maxLength']:,} characters")
    return " ".join(filter(None, [kind, *said]))
