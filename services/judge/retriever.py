"""What a retriever that gives no reply means for a call: a typed failure, or waiting until it is back."""

from typing import NamedTuple

import httpx2

from shared.bearer import authorization
from shared.contracts.replies import Failure
from shared.errors import Unavailable
from shared.models.retriever_client import NoReply, RetrieverClient
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


def client(settings: Settings) -> RetrieverClient:
    """A client that knows the service key, and whose requests are traced."""
    http = httpx2.AsyncClient(
        trust_env=False, event_hooks={"request": [add_trace_headers]}, headers=authorization(settings.service_key)
    )
    return RetrieverClient(http, settings)


def unanswered(error: NoReply, address: str) -> Failure | Away:
    """What becomes of a call that the retriever at `address` gave no reply to."""
    refuses_all, problem = error.status in REFUSES_ALL, error.problem
    if refuses_all and problem.type == Unavailable.kind:
        return Away(redacted(problem.what), redacted(problem.detail))
    unreachable = isinstance(error.cause, httpx2.ConnectError | httpx2.ConnectTimeout)
    if unreachable or (refuses_all and not problem.what):
        return Away(f"the retriever at {address}", str(error))
    return Failure(kind=error.kind, detail=str(error))
