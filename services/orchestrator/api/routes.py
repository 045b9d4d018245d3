"""How a route is written: what a key must allow, what it answers and how it refuses stand above its function."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Query, Response

from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.openapi import Responses, refusals
from shared.contracts.api_keys import Scope
from shared.storage import pages

Handler = TypeVar("Handler", bound=Callable[..., Any])
Limit = Annotated[int, Query(ge=1, le=pages.LARGEST, description="Rows of a page.")]


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
    """Answer `method` `path` with the function below.

    Args:
        scope: what a key must allow; None: everybody is answered.
        responses: what it answers, with schema and example (`openapi.answers`).
        refuses: statuses of its problems, besides those that every route may answer with.
        options: of FastAPI's `add_api_route`, such as the status.
    """

    def add(handler: Handler) -> Handler:
        declare_scope(handler, scope)
        documented = refusals(router.prefix + path, refuses, responses)
        router.add_api_route(path, handler, methods=[method], summary=summary, responses=documented, **options)
        return handler

    return add


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as msgspec writes it."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
