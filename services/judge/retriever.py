"""The retriever service, as the judge worker asks it: what goes wrong becomes a typed failure."""

from typing import Any

import httpx2

from shared.access.bearer import authorization
from shared.contracts.calls import Failure, FailureKind
from shared.settings import Settings
from shared.telemetry import traces
from shared.telemetry.redaction import redacted


def client(settings: Settings) -> httpx2.AsyncClient:
    """A client that knows where the service is, and its key."""
    return httpx2.AsyncClient(
        base_url=settings.retriever_url, trust_env=False, event_hooks=traces.hooks(),
        headers=authorization(settings.service_key),
    )  # fmt: skip


async def post(asked: httpx2.AsyncClient, path: str, body: Any, timeout_s: float) -> bytes | Failure:
    """The answer's bytes, or why there are none; a text that is too long is a fact about the text."""
    try:
        response = await asked.post(path, json=body, timeout=timeout_s)
    except httpx2.TimeoutException as error:
        return _failure(FailureKind.TIMEOUT, repr(error))
    except httpx2.TransportError as error:
        return _failure(FailureKind.CONNECTION, repr(error))
    if response.status_code == httpx2.codes.OK:
        return response.content
    too_large = response.status_code == httpx2.codes.CONTENT_TOO_LARGE
    kind = FailureKind.CONTEXT_EXCEEDED if too_large else FailureKind.BACKEND_ERROR
    return _failure(kind, f"HTTP {response.status_code}: {response.text[:300]}")


def _failure(kind: FailureKind, detail: str) -> Failure:
    return Failure(kind=kind, detail=redacted(detail))
