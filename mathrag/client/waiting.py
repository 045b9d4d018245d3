"""Wait for the end of a job or an experiment by polling with growing pauses."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from mathrag.client.errors import Failed, TimedOut, Unavailable, Unreachable
from mathrag.client.following import Patience
from mathrag.client.http_options import ANSWER_S
from mathrag.client.request import Request

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection

FIRST_S = 0.2
LONGEST_S = 2.0


class Endable(Protocol):
    """A job or an experiment."""

    @property
    def ended_at(self) -> str | None:
        """When it ended; None before."""


E = TypeVar("E", bound=Endable)


class Waiting:
    """Deadline and pauses of one caller that waits for one job or experiment."""

    def __init__(
        self, name: str, request: Request[Any], timeout_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._request = request
        self._timeout_s = timeout_s
        self._clock = clock
        self._begun = clock()
        self._pause = FIRST_S
        self._patience = Patience(clock)

    def request(self) -> Request[Any]:
        """Return the request, which takes no longer than the caller's remaining time."""
        left = self._compute_remaining_s()
        patient = ANSWER_S if left is None else max(FIRST_S, min(ANSWER_S, left))
        return msgspec.structs.replace(self._request, timeout_s=patient)

    def record_answer(self) -> None:
        """Record that the server has answered."""
        self._patience.record_answer()

    def record_failure(self, failed: Failed) -> None:
        """Record a failed poll.

        Raises:
            Failed: `failed` itself, unless the server or its database may be restarting.
        """
        if not isinstance(failed, Unreachable | Unavailable) or self._patience.is_over():
            raise failed

    def pause(self) -> float:
        """Return the seconds until the next poll.

        Raises:
            TimedOut: the caller's time is over.
        """
        left = self._compute_remaining_s()
        if left is not None and left <= 0:
            message = f"{self._name} has not ended within {self._timeout_s:g} s"
            raise TimedOut("timed_out", message, hint="it continues; wait again, or cancel it")
        pause, self._pause = self._pause, min(LONGEST_S, 1.5 * self._pause)
        return pause if left is None else min(pause, left)

    def _compute_remaining_s(self) -> float | None:
        return None if self._timeout_s is None else self._begun + self._timeout_s - self._clock()


def wait_for_end(client: "Connection", waiting: Waiting, answer: type[E]) -> E:
    """Poll until the answer has ended, and return it.

    Raises:
        TimedOut: it has not ended in time.
        Failed: it cannot be fetched.
    """
    while True:
        try:
            found = client.read(waiting.request(), answer, retries=0)
            waiting.record_answer()
            if found.ended_at is not None:
                return found
        except Failed as failed:
            waiting.record_failure(failed)
        client.sleep(waiting.pause())


async def await_end(client: "AsyncConnection", waiting: Waiting, answer: type[E]) -> E:
    """Do the same with the asynchronous client."""
    while True:
        try:
            found = await client.read(waiting.request(), answer, retries=0)
            waiting.record_answer()
            if found.ended_at is not None:
                return found
        except Failed as failed:
            waiting.record_failure(failed)
        await client.sleep(waiting.pause())
