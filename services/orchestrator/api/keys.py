"""The header Idempotency-Key: which values are valid, and which request a key stands for."""

import re
from typing import Annotated, Any

from fastapi import Depends, Header

from services.orchestrator.deps import RequestDeps
from shared import canonical
from shared.errors import BadRequest
from shared.storage.database import KeyedRequest

_KEY = re.compile(r"[\x21-\x7e\xa0-\xff](?:[\x20-\x7e\xa0-\xff]{0,254})")


def _check_key(
    deps: RequestDeps,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Makes the request repeatable: the same key with the same body answers with the same job.",
            examples=["7f2c-first"],
        ),
    ] = None,
) -> str | None:
    if idempotency_key is None:
        if deps.settings.require_idempotency_key:
            raise BadRequest(
                "`Idempotency-Key`: is required here",
                hint="send a text that is different for each new request, such as a UUID",
            )
        return None
    return check_key(idempotency_key)


def check_key(key: str) -> str:
    """Return `key` after checking it.

    Raises:
        BadRequest: it is empty, too long, or has control characters.
    """
    if not _KEY.fullmatch(key):
        raise BadRequest("`Idempotency-Key`: must have 1 to 255 characters, and no control characters")
    return key


IdempotencyKey = Annotated[str | None, Depends(_check_key)]


def make_keyed_request(key: str | None, operation: str, request: Any) -> KeyedRequest | None:
    """Return the request that `key` stands for: this operation with this body. None if there is no key."""
    return None if key is None else KeyedRequest(operation=operation, key=key, body_hash=canonical.digest(request))
