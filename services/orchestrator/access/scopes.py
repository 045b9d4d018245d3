"""Which scope of an API key each route asks for. A route that declares none is answered to nobody."""

from collections.abc import Callable, Collection
from typing import Any

from fastapi import Request

from shared.contracts.api_keys import Scope, allows
from shared.errors import Forbidden

Handler = Callable[..., Any]

_declared: dict[Handler, Scope | None] = {}


def declare_scope(handler: Handler, scope: Scope | None) -> None:
    """Answer requests to `handler` only to keys that allow `scope`; None: to everybody."""
    _declared[handler] = scope


def declared_scope(handler: Handler) -> Scope | None:
    """The scope that `handler` asks for; None: it is open to everybody.

    Raises:
        KeyError: it declares none.
    """
    return _declared[handler]


async def authorised(request: Request) -> None:
    """Before every route: the key must allow what the route asks for.

    Raises:
        Forbidden: it does not, or the route declares no scope.
    """
    try:
        scope = declared_scope(request.scope["endpoint"])
    except KeyError:
        route = f"{request.method} {request.scope['route'].path}"
        raise Forbidden(f"{route} declares no scope", hint="a defect: write it with `api.routes.route`") from None
    if scope is not None:
        check(request.state.scopes, scope)


def check(scopes: Collection[str], wanted: Scope) -> None:
    """Return if a key with these scopes allows `wanted`.

    Raises:
        Forbidden: it does not.
    """
    if not allows(scopes, wanted):
        raise Forbidden(
            f"this API key lacks the scope {wanted.value!r}", hint=f"mathrag key create NAME --scope {wanted.value}"
        )
