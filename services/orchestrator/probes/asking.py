"""What a service finds out about itself, with the settings that it runs with and on the machine where it runs."""

from urllib.parse import quote

import httpx2
import msgspec

from services.orchestrator.deps import Deps
from shared.checks.check import DEEP_S, RESTART, Check, NotReady


async def asked(deps: Deps, url: str, name: str) -> str:
    """The detail of the check `name` of the service at `url`.

    Raises:
        NotReady: the check fails, or nobody answers.
    """
    try:
        reply = await deps.http.get(f"{url}/checks/{quote(name, safe='')}", timeout=DEEP_S)
    except httpx2.TransportError as error:
        said = f"not looked at: {url} does not answer ({error or type(error).__name__})"
        raise NotReady(said, fix="first mend the service that does not answer") from error
    if reply.status_code != httpx2.codes.OK:
        raise NotReady(f"not looked at: {url} answers {reply.status_code}")
    try:
        found = msgspec.json.decode(reply.content, type=Check)
    except msgspec.MsgspecError as error:
        raise NotReady(f"not looked at: {url} answers with no check", fix=f"is it ours? {RESTART}") from error
    if not found.ok:
        raise NotReady(found.detail, fix=found.fix)
    return found.detail
