"""Asks a service for its own checks, which it runs with its settings and on its machine."""

from urllib.parse import quote

import httpx2
import msgspec

from services.orchestrator.deps import Deps
from shared.checks import DEEP_S, RESTART, Check, NotReady


async def ask_check(deps: Deps, url: str, name: str) -> str:
    """Return the detail of the check `name` of the service at `url`.

    Raises:
        NotReady: the check fails, or the service does not answer.
    """
    try:
        reply = await deps.http.get(f"{url}/checks/{quote(name, safe='')}", timeout=DEEP_S)
    except httpx2.TransportError as error:
        message = f"not checked: {url} does not answer ({error or type(error).__name__})"
        raise NotReady(message, fix="first fix the service that does not answer") from error
    if reply.status_code != httpx2.codes.OK:
        raise NotReady(f"not checked: {url} answers with status {reply.status_code}")
    try:
        found = msgspec.json.decode(reply.content, type=Check)
    except msgspec.MsgspecError as error:
        raise NotReady(
            f"not checked: {url} answers with something else than a check",
            fix=f"check that the address is that of a MathRAG service; {RESTART}",
        ) from error
    if not found.ok:
        raise NotReady(found.detail, fix=found.fix)
    return found.detail
