"""`Authorization: Bearer KEY`, written and read."""

from starlette.datastructures import Headers
from starlette.types import Scope

OPEN = frozenset({"/healthz"})
"""Answered to everybody: says no more than that a process is up."""


def authorization(key: str) -> dict[str, str]:
    """The header that carries `key`; nothing for none."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def bearer(scope: Scope) -> str | None:
    """The key of a request; None: there is none."""
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
