"""The scope of an API key that each route requires. A route that declares none refuses every request."""

from collections.abc import Callable, Collection
from typing import Any

from fastapi import Request

from shared.errors import Forbidden
from shared.shapes import Scope, allows

Handler = Callable[..., Any]

_declared: dict[Handler, Scope | None] = {}


def declare_scope(handler: Handler, scope: Scope | None) -> None:
    """Require `scope` of the keys that call `handler`; None admits everybody."""
    _declared[handler] = scope


def get_declared_scope(handler: Handler) -> Scope | None:
    """Return the scope that `handler` requires; None if it is open to everybody.

    Raises:
        KeyError: the handler declares no scope.
    """
    return _declared[handler]


async def authorise(request: Request) -> None:
    """Check before every route that the key has the scope that the route requires.

    Raises:
        Forbidden: it has not, or the route declares no scope.
    """
    try:
        scope = get_declared_scope(request.scope["endpoint"])
    except KeyError:
        route = f"{request.method} {request.scope['route'].path}"
        raise Forbidden(
            f"{route} declares no scope",
            hint="this is a defect of the service: declare the route with `api.routes.route`",
        ) from None
    if scope is not None:
        check_scope(request.state.scopes, scope)


def check_scope(scopes: Collection[str], wanted: Scope) -> None:
    """Check that a key with these scopes has `wanted`.

    Raises:
        Forbidden: it has not.
    """
    if not allows(scopes, wanted):
        raise Forbidden(
            f"this API key lacks the scope {wanted.value!r}", hint=f"mathrag key create NAME --scope {wanted.value}"
        )
