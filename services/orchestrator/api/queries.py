"""Refuses query parameters that an operation does not know, or that are given twice: nothing of a request is ignored.

One check covers every operation, since it reads from the matched route which parameters that declares.
"""

from collections import Counter
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel

from shared import suggestions
from shared.errors import Invalid

LONGEST_NAME = 200
"""Length in characters to which a refusal cuts a parameter's name."""


async def check_query(request: Request) -> None:
    """Check the names in the query against those that the matched route declares.

    Raises:
        Invalid: the route does not declare one of them, or one that is no list is given more than once.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if not given:
        return
    route = request.scope["route"]
    operation, declared = f"{request.method} {route.path}", _list_declared(route.dependant)
    for name, times in given.items():
        shown = name[:LONGEST_NAME]
        if name not in declared:
            listed = f"{operation} takes {', '.join(sorted(declared)) or 'none'}"
            hint = suggestions.make_hint(shown, declared, listed)
            raise Invalid(f"`{shown}`: there is no such query parameter", hint=hint)
        if times > 1 and not declared[name]:
            raise Invalid(f"`{shown}`: is given {times} times", hint="give it once")


def _list_declared(dependant: Dependant) -> dict[str, bool]:
    """Return the query parameters of a route and of its dependencies by name, and whether each may be repeated."""
    declared: dict[str, bool] = {}
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            declared |= {each.alias or name: _is_list(each.annotation) for name, each in kind.model_fields.items()}
        else:
            declared[field.alias] = _is_list(kind)
    for each in dependant.dependencies:
        declared |= _list_declared(each)
    return declared


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(map(_is_list, get_args(kind)))
