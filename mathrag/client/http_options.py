"""Options of the HTTP clients."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mathrag.client.address import is_local
from mathrag.client.errors import Failed
from shared.bearer import authorization

ANSWER_S = 60.0
SILENT_S = 45.0
"""Longest silence of an event stream in seconds, after which it counts as broken; servers send keep-alives."""


def resolve_key(key: str | None) -> str:
    """Return the given key, else that of the environment; without one, an empty text.

    Raises:
        Failed: the key has blanks or other invalid characters; the message does not repeat it.
    """
    found = (os.environ.get("MATHRAG_API_KEY", "") if key is None else key).strip()
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Failed("usage", "the API key holds blanks or characters that no key has", hint="copy it anew: mrg_...")
    return found


def options(url: str, timeout_s: float, key: str | None) -> dict[str, Any]:
    """Return the arguments of an HTTP client; `key` None takes the key of the environment."""
    return {
        "base_url": url,
        "timeout": timeout_s,
        "headers": authorization(resolve_key(key)),
        # A proxy of the environment must not come between us and our own machine.
        "trust_env": not is_local(url),
        # Reading the certificates of all authorities takes longer than a request that needs none of them.
        "verify": url.startswith("https:"),
    }


@contextmanager
def name_proxy_errors() -> Iterator[None]:
    """Turn the error of an HTTP client that cannot use the environment's proxy into `Failed`."""
    try:
        yield
    except (ImportError, ValueError) as error:
        hint = "correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the server to NO_PROXY"
        raise Failed("usage", f"the proxy of the environment cannot be used: {error}", hint=hint) from error
