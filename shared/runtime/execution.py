"""The interface between the worker and the executors of each role's calls."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from shared.runtime.answers import AnsweredCall
from shared.runtime.claims import ClaimedCall


class Lapse(NamedTuple):
    """The model server died while it ran the call, so the call becomes a suspect."""

    call_id: int


class Release(NamedTuple):
    """The call was aborted to free the device; it is released without a charge."""

    call_id: int


class Wait(NamedTuple):
    """A server that the call and others need is away; the call is released without a charge and waits."""

    call_id: int
    what: str
    """The server, such as "Elasticsearch at 127.0.0.1:9200"."""
    said: str
    """The error that showed the outage."""


CallEnd = AnsweredCall | Lapse | Release | Wait
"""How the execution of a call ended."""


class Executor(Protocol):
    """Executes the calls of a role.

    Raises while iterating:
        NotGranted: nothing was sent; all calls are released without a charge.
        Broken: the process that ran the calls is gone; unanswered calls become suspects.
    """

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """Yield the end of each call as it happens."""
        ...
