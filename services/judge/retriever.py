"""The retriever service, as the judge worker asks it: what goes wrong becomes a typed failure."""

from typing import Any, NamedTuple

import httpx2
import msgspec

from shared.bearer import authorization
from shared.contracts.calls import Failure, FailureKind
from shared.errors import Unavailable
from shared.redaction import redacted
from shared.runtime.execution import Wait
from shared.settings import Settings
from shared.trace_headers import add_trace_headers

REFUSES_ALL = (401, 403, 429, 502, 503, 504)
"""Statuses that no request of ours would be spared, unless the retriever's words say otherwise."""


class Away(NamedTuple):
    """The retriever, or what it searches with, answers nobody now."""

    what: str
    said: str

    def wait(self, call_id: int) -> Wait:
        """What that means for a call."""
        return Wait(call_id, self.what, self.said)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What the retriever says is wrong; `what` names the service that it needs and that has nothing for us."""

    type: str = ""
    detail: str = ""
    what: str = ""


_PROBLEM = msgspec.json.Decoder(Problem)


def client(settings: Settings) -> httpx2.AsyncClient:
    """A client that knows where the service is, and its key."""
    return httpx2.AsyncClient(
        base_url=settings.retriever_url, trust_env=False, event_hooks={"request": [add_trace_headers]},
        headers=authorization(settings.service_key),
    )  # fmt: skip


async def post(asked: httpx2.AsyncClient, path: str, body: Any, timeout_s: float) -> bytes | Failure | Away:
    """The answer's bytes, or why there are none; a text that is too long is a fact about the text."""
    try:
        response = await asked.post(path, json=body, timeout=timeout_s)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        return _away(asked, repr(error))
    except httpx2.TimeoutException as error:
        return _failure(FailureKind.TIMEOUT, repr(error))
    except httpx2.TransportError as error:
        return _failure(FailureKind.CONNECTION, repr(error))
    if response.status_code == httpx2.codes.OK:
        return response.content
    said = f"HTTP {response.status_code}: {response.text[:300]}"
    if response.status_code in REFUSES_ALL:
        problem = _problem(response)
        if problem.type == Unavailable.kind:
            return Away(redacted(problem.what), redacted(problem.detail))
        return _failure(FailureKind.BACKEND_ERROR, said) if problem.what else _away(asked, said)
    too_large = response.status_code == httpx2.codes.CONTENT_TOO_LARGE
    kind = FailureKind.CONTEXT_EXCEEDED if too_large else FailureKind.BACKEND_ERROR
    return _failure(kind, said)


def _away(asked: httpx2.AsyncClient, said: str) -> Away:
    return Away(f"the retriever at {asked.base_url.netloc.decode()}", redacted(said))


def _problem(response: httpx2.Response) -> Problem:
    """The retriever's words; empty where another has answered."""
    try:
        return _PROBLEM.decode(response.content)
    except msgspec.MsgspecError:
        return Problem()


def _failure(kind: FailureKind, detail: str) -> Failure:
    return Failure(kind=kind, detail=redacted(detail))
