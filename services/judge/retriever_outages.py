"""Translate failures of the retriever: a call fails with a typed failure, or waits until the retriever is back."""

from typing import NamedTuple

import httpx2

from shared.access.filters import authorization
from shared.errors import Refused, Unavailable
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.redaction import redact
from shared.replies import Failure, FailureKind
from shared.runtime.worker import Wait
from shared.settings import Settings
from shared.trace_headers import add_trace_headers

OUTAGE_STATUSES = (401, 403, 429, 502, 503, 504)
"""Statuses of an outage, which would meet any request, unless the retriever's problem document tells otherwise."""
MAX_DETAIL = 1000
"""Characters of a server's refusal that are kept."""


class RetrieverAway(NamedTuple):
    """The retriever, or a server that it needs, is away."""

    what: str
    said: str

    def make_wait(self, call_id: int) -> Wait:
        """Make the wait of a call."""
        return Wait(call_id, self.what, self.said)


def make_client(settings: Settings) -> RetrieverClient:
    """Make a client that sends the service key and the trace."""
    http = httpx2.AsyncClient(
        trust_env=False, event_hooks={"request": [add_trace_headers]}, headers=authorization(settings.service_key)
    )
    return RetrieverClient(http, settings)


def translate_failure(error: NoReply, address: str) -> Failure | RetrieverAway:
    """Translate the retriever's failure to reply: an outage of it or of a server that it needs, or a typed failure.

    It is `unavailable` if such a server refuses our key, as waiting would not help.
    """
    refuses_all, problem = error.status in OUTAGE_STATUSES, error.problem
    if refuses_all and problem.type == Unavailable.kind:
        return RetrieverAway(redact(problem.what), redact(problem.detail))
    unreachable = isinstance(error.cause, httpx2.ConnectError | httpx2.ConnectTimeout)
    if unreachable or (refuses_all and not problem.what):
        return RetrieverAway(f"the retriever at {address}", str(error))
    if problem.type == Refused.kind:
        # A server that refuses our key refuses every search, so no fallback may hide it.
        kind = FailureKind.UNAVAILABLE if problem.what != problem.detail else error.kind
        # `str(error)` is cut earlier, and the reason may stand at its end.
        return Failure(kind=kind, detail=redact("; ".join(filter(None, (problem.detail, problem.hint))))[:MAX_DETAIL])
    return Failure(kind=error.kind, detail=str(error))
