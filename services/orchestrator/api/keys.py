"""The header Idempotency-Key: what may be one, and what it stands for."""

import re
from typing import Annotated, Any

from fastapi import Depends, Header

from services.orchestrator.deps import RequestDeps
from shared.contracts import canonical
from shared.errors import BadRequest
from shared.storage.idempotency import Keyed

_KEY = re.compile(r"[\x21-\x7e\xa0-\xff](?:[\x20-\x7e\xa0-\xff]{0,254})")


def _key(
    deps: RequestDeps,
    idempotency_key: Annotated[
        str | None, Header(description="The same key and body again: the same job.", examples=["7f2c-first"])
    ] = None,
) -> str | None:
    if idempotency_key is None:
        if deps.settings.require_idempotency_key:
            raise BadRequest("`Idempotency-Key`: is needed here", hint="send any text that is new for a new request")
        return None
    return checked(idempotency_key)


def checked(key: str) -> str:
    """`key` itself.

    Raises:
        BadRequest: it can be none.
    """
    if not _KEY.fullmatch(key):
        raise BadRequest("`Idempotency-Key`: must have 1 to 255 characters, and no control characters")
    return key


IdempotencyKey = Annotated[str | None, Depends(_key)]


def keyed(key: str | None, operation: str, request: Any) -> Keyed | None:
    """What `key` stands for: this operation, with this request."""
    return None if key is None else Keyed(operation=operation, key=key, body_hash=canonical.digest(request))
