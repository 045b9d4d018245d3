"""Tables of the documentation that the code determines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from fastapi.routing import iter_route_contexts
from links import linked
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mathrag.cli.output import CODES, Exit
from services.orchestrator.access.identity import get_declared_scope
from services.orchestrator.api.routes import RETRY_AFTER_S
from services.orchestrator.app import build
from shared import errors
from shared.fields import add_choices, describe_field, find_group, read_docstrings
from shared.params import Params
from shared.pipelines import registry
from shared.settings import REPOSITORY, Model, Settings

GUIDE = REPOSITORY / "shared" / "pipelines" / "self_consistency.py"
Row = tuple[str, ...]


def settings(page: str) -> str:
    """Every setting, as a table of `page`."""
    return table(("key", "default", "meaning"), _settings(Settings), page)


def model_settings(page: str) -> str:
    """Every setting of one model, as a table of `page`."""
    return table(("key", "default", "meaning"), _settings(Model), page)


def exit_codes(page: str) -> str:
    """Every exit code with the kinds of error that end with it, as a table of `page`."""
    return table(("code", "means", "kinds of error"), _exits(), page)


def pipelines(page: str) -> str:
    """Every pipeline that a job may name, as a table of `page`."""
    return table(("pipeline", "what it does", "parameters that it reads"), _pipelines(), page)


def parameters(page: str) -> str:
    """Every parameter of a job, as a table of `page`."""
    return table(("parameter", "default", "meaning"), _parameters(Params()), page)


def routes(page: str) -> str:
    """Every route of the API, as a table of `page`."""
    return table(("method", "path", "scope", "what it does"), _routes(), page)


def kinds(page: str) -> str:
    """Every kind of error of the API, as a table of `page`."""
    return table(("kind", "status", "meaning"), _kinds(), page)


def guide() -> str:
    """The source of the pipeline that the guide builds."""
    return f"```python\n{GUIDE.read_text('utf-8')}```"


def table(head: Row, rows: Iterator[Row], page: str) -> str:
    """A table of Markdown as it stands on `page`: pages that its cells name are links."""
    cells = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(linked(f"| {' | '.join(row)} |", page) for row in cells)


def _settings(group: type[BaseModel], prefix: str = "") -> Iterator[Row]:
    for name, field in group.model_fields.items():
        yield f"`{prefix}{name}`", _default(field), describe_field(field)
        inner = find_group(field)
        if inner is not None:
            yield from _settings(inner, f"{prefix}{name}.")


def _default(field: FieldInfo) -> str:
    return "needed" if field.is_required() else shown(field.get_default(call_default_factory=True))


def shown(value: Any) -> str:
    """A default as the tables have it."""
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


def _pipelines() -> Iterator[Row]:
    for name in registry.list_offered():
        found = registry.get(name)
        reads = ", ".join(f"`{path}`" for path in sorted(found.reads or ()))
        yield f"`{name}`", add_choices(found.run.__doc__ or "", None), reads or "any"


def _parameters(group: msgspec.Struct, prefix: str = "") -> Iterator[Row]:
    texts = read_docstrings(type(group))
    for field in msgspec.structs.fields(group):
        value = getattr(group, field.name)
        if isinstance(value, msgspec.Struct):
            yield f"`{prefix}{field.name}`", "", add_choices(texts.get(field.name) or type(value).__doc__ or "", None)
            yield from _parameters(value, f"{prefix}{field.name}.")
        else:
            yield f"`{prefix}{field.name}`", shown(value), add_choices(texts.get(field.name, ""), field.type)


def _exits() -> Iterator[Row]:
    texts = read_docstrings(Exit)
    for code in Exit:
        kinds = [f"`{kind}`" for kind, given in CODES.items() if given is code]
        yield str(code.value), texts[code.name], ", ".join(kinds)


def _routes() -> Iterator[Row]:
    application = build(Settings())
    documented = application.openapi()["paths"]
    for each in iter_route_contexts(application.routes):
        if each.summary is None:  # a page
            continue
        scope = get_declared_scope(each.endpoint)
        for method in each.methods:
            operation = documented.get(each.path, {}).get(method.lower(), {})
            path = f"`{each.path}{_query(operation)}`"
            yield method, path, f"`{scope}`" if scope else "none", _doing(each.summary, each.endpoint.__doc__ or "")


def _doing(summary: str, docstring: str) -> str:
    first, _, _ = docstring.partition("\n\n")
    return add_choices(f"{summary}{'' if summary.endswith('?') else '.'} {first}", None)


def _query(operation: dict[str, Any]) -> str:
    names = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    return f"?{'&'.join(f'{name}=' for name in names)}" if names else ""


def _kinds() -> Iterator[Row]:
    found = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]
    for error in sorted(found, key=lambda each: each.status):
        later = " Sent with `Retry-After`." if error.kind in RETRY_AFTER_S else ""
        yield f"`{error.kind}`", str(error.status), add_choices(error.__doc__, None) + later
