"""Tables of the documentation that the code determines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from fastapi.routing import iter_route_contexts
from links import link_pages
from pydantic import BaseModel

from mathrag import errors
from mathrag.cli.output import CODES, Exit
from services.orchestrator.access.identity import get_declared_scope
from services.orchestrator.api.pipelines import parameters as list_parameters
from services.orchestrator.api.routes import RETRY_AFTER_S
from services.orchestrator.app import build
from shared.fields import add_choices, describe_field, find_group, read_docstrings
from shared.pipelines import registry
from shared.settings import REPOSITORY, Settings

GUIDE = REPOSITORY / "shared" / "pipelines" / "self_consistency.py"
Row = tuple[str, ...]


def guide() -> str:
    """Return the source of the pipeline that the guide builds."""
    return f"```python\n{GUIDE.read_text('utf-8')}```"


def table(head: Row, rows: Iterator[Row], page: str) -> str:
    """Return a table of Markdown for `page`: pages that its cells name are links."""
    cells = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(link_pages(f"| {' | '.join(row)} |", page) for row in cells)


def settings(group: type[BaseModel], prefix: str = "") -> Iterator[Row]:
    """Yield key, default and meaning of every setting."""
    for name, field in group.model_fields.items():
        default = "required" if field.is_required() else format_default(field.get_default(call_default_factory=True))
        yield f"`{prefix}{name}`", default, describe_field(field)
        inner = find_group(field)
        if inner is not None:
            yield from settings(inner, f"{prefix}{name}.")


def format_default(value: Any) -> str:
    """Return a default as the tables have it."""
    match value:
        case BaseModel():
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"{value:.12g}"
        case str() | Path() if str(value):
            return f"`{str(value).removeprefix(f'{REPOSITORY}/')}`"
        case dict() if value:
            return ", ".join(f"`{key}: {held}`" if isinstance(held, str) else f"`{key}`" for key, held in value.items())
    return "empty" if value == "" else "none"


def pipelines() -> Iterator[Row]:
    """Yield every pipeline that a job may name, what it does, and the parameters that it reads."""
    for name in registry.list_offered():
        found = registry.get(name)
        reads = ", ".join(f"`{path}`" for path in sorted(found.reads or ()))
        yield f"`{name}`", add_choices(found.run.__doc__ or "", None), reads or "any"


def parameters(group: msgspec.Struct, prefix: str = "") -> Iterator[Row]:
    """Yield name, default, range and meaning of every parameter of a job."""
    texts = read_docstrings(type(group))
    ranges = {each.path: each.bounds for each in list_parameters()}
    for field in msgspec.structs.fields(group):
        value = getattr(group, field.name)
        if isinstance(value, msgspec.Struct):
            yield (
                f"`{prefix}{field.name}`",
                "",
                "",
                add_choices(texts.get(field.name) or type(value).__doc__ or "", None),
            )
            yield from parameters(value, f"{prefix}{field.name}.")
        else:
            name = f"{prefix}{field.name}"
            meaning = add_choices(texts.get(field.name, ""), field.type)
            yield f"`{name}`", format_default(value), ranges.get(name, ""), meaning


def exit_codes() -> Iterator[Row]:
    """Yield every exit code, what it means, and the kinds of error that end with it."""
    texts = read_docstrings(Exit)
    for code in Exit:
        ending = [f"`{kind}`" for kind, given in CODES.items() if given is code]
        yield str(code.value), texts[code.name], ", ".join(ending)


def routes() -> Iterator[Row]:
    """Yield method, path, scope and purpose of every route of the API."""
    application = build(Settings())
    documented = application.openapi()["paths"]
    for each in iter_route_contexts(application.routes):
        if each.summary is None:  # a page
            continue
        scope = get_declared_scope(each.endpoint)
        first, _, _ = (each.endpoint.__doc__ or "").partition("\n\n")
        purpose = add_choices(f"{each.summary}{'' if each.summary.endswith('?') else '.'} {first}", None)
        for method in each.methods:
            given = documented.get(each.path, {}).get(method.lower(), {}).get("parameters", ())
            query = "&".join(f"{parameter['name']}=" for parameter in given if parameter["in"] == "query")
            path = f"`{each.path}{query and f'?{query}'}`"
            yield method, path, f"`{scope}`" if scope else "none", purpose


def kinds() -> Iterator[Row]:
    """Yield every kind of error of the API, its status and its meaning."""
    found = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]
    for error in sorted(found, key=lambda each: each.status):
        later = " Sent with `Retry-After`." if error.kind in RETRY_AFTER_S else ""
        yield f"`{error.kind}`", str(error.status), add_choices(error.__doc__, None) + later
