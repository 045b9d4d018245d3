"""Declares routes: a decorator states the required scope, the answers and the refusals above the handler."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.openapi import Responses, refusals
from services.orchestrator.api.queries import check_query
from shared.shapes import Scope
from shared.storage import database

Handler = TypeVar("Handler", bound=Callable[..., Any])
Limit = Annotated[int, Query(ge=1, le=database.LARGEST, description="Upper bound of the rows on a page.")]


def route(
    router: APIRouter,
    method: str,
    path: str,
    scope: Scope | None,
    summary: str,
    responses: Responses,
    *,
    refuses: tuple[int, ...] = (),
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of `method` `path`.

    Args:
        scope: scope that a key must have; None answers everybody.
        responses: answers with schema and example (see `openapi.answers`).
        refuses: statuses of its problems, besides those of every route.
        options: further arguments of FastAPI's `add_api_route`, such as the status. The `name` of a handler that was
            renamed keeps its operation id.
    """

    def add(handler: Handler) -> Handler:
        declare_scope(handler, scope)
        documented = refusals(router.prefix + path, refuses, responses)
        # What the document leaves out, such as `/docs`, are pages: others add parameters to their addresses.
        checks = [Depends(check_query)] if router.include_in_schema else []
        router.add_api_route(
            path, handler, methods=[method], summary=summary, responses=documented, dependencies=checks, **options
        )
        return handler

    return add


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answer with `value` as msgspec writes it."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
