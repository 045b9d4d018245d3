"""Follow jobs and experiments until they end, even if the server restarts."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from mathrag.client import experiments, jobs
from mathrag.client.connection import ANSWER_S
from mathrag.client.errors import Failed, TimedOut, Unavailable, Unreachable
from mathrag.client.jobs import Job
from mathrag.client.request import Json, Request

if TYPE_CHECKING:
    import httpx2

    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


POLL_S = 0.5
EXPERIMENT_POLL_S = 1.0
RETURN_S = 60.0
"""Longest outage in seconds: the stack restarts a crashed server, and the job continues."""
NO_STREAM = ("not_found", "not_implemented", "too_many", "internal")
"""Kinds of errors after which the job is polled: older servers have no stream, and busy servers refuse new ones."""


class Patience:
    """Measures how long a server has been unavailable since its last answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()

    def record_answer(self) -> None:
        """Record that the server has answered."""
        self._seen = self._clock()

    def is_over(self) -> bool:
        """Return True if the server has been unavailable for longer than a restart takes."""
        return self._clock() - self._seen > RETURN_S


class Follower:
    """State of following one job, for both clients: the job's last state, and the choice to stream or poll."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self.job = job
        # Use the id: another job may get the same name in the meantime.
        self.id = job["id"]
        self.last: str | None = None
        """Id of the last event; a new stream starts after it."""
        self._patience = Patience(clock)
        self._streams = True
        self._cut = False

    @property
    def has_ended(self) -> bool:
        """True if the job has ended."""
        return self.job["state"] in jobs.ENDED

    @property
    def listens(self) -> bool:
        """True if the next step is to open the stream; after an interruption, the job is first polled once."""
        return self._streams and not self._cut

    def record_job(self, job: Job) -> Job:
        """Record the job's current state, and return it."""
        self._patience.record_answer()
        self.job = job
        self._cut = False
        return job

    def record_event(self, event: "httpx2.ServerSentEvent") -> bool:
        """Record an event; return True if the job must be fetched to know the change."""
        self.last = event.id or self.last
        if event.event == "progress":
            self.record_job(self.job | msgspec.json.decode(event.data))
            return False
        return bool(event.data)

    def record_failure(self, failed: Failed) -> None:
        """Record a failure of the stream or of a request.

        Raises:
            Failed: `failed` itself, if a retry is useless.
        """
        if self.listens and failed.kind in NO_STREAM:
            self._streams = False
            return
        self._cut = True
        if failed.kind != "unreachable" or self._patience.is_over():
            raise failed


def follow_job(
    client: "Connection",
    job: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Job]:
    """Yield the job after every change until it has ended; wait through outages of up to `RETURN_S`."""
    yield from follow(client, client.send(jobs.get(job)), sleep, clock)


def follow(
    client: "Connection",
    job: Job,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Job]:
    """Follow a job that was already fetched, like `follow_job`."""
    follower = Follower(job, clock)
    yield follower.job
    while not follower.has_ended:
        try:
            yield from _stream_changes(client, follower)
        except Failed as failed:
            follower.record_failure(failed)
        if not follower.has_ended:
            sleep(POLL_S)


def _stream_changes(client: "Connection", follower: Follower) -> Iterator[Job]:
    if not follower.listens:
        yield follower.record_job(client.send(jobs.get(follower.id)))
        return
    with client.events(jobs.events(follower.id, follower.last)) as events:
        for event in events:
            before = follower.job
            if follower.record_event(event):
                follower.record_job(client.send(jobs.get(follower.id)))
            if follower.job is not before:
                yield follower.job
            if follower.has_ended:
                return


async def afollow(client: "AsyncConnection", job: Job) -> AsyncIterator[Job]:
    """Follow a job like `follow`, for the asynchronous client."""
    follower = Follower(job)
    yield follower.job
    while not follower.has_ended:
        try:
            async for found in _astream_changes(client, follower):
                yield found
        except Failed as failed:
            follower.record_failure(failed)
        if not follower.has_ended:
            await client.sleep(POLL_S)


async def _astream_changes(client: "AsyncConnection", follower: Follower) -> AsyncIterator[Job]:
    if not follower.listens:
        yield follower.record_job(await client.send(jobs.get(follower.id)))
        return
    async with client.events(jobs.events(follower.id, follower.last)) as events:
        async for event in events:
            before = follower.job
            if follower.record_event(event):
                follower.record_job(await client.send(jobs.get(follower.id)))
            if follower.job is not before:
                yield follower.job
            if follower.has_ended:
                return


def follow_experiment(
    client: "Connection",
    name: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Json]:
    """Yield the experiment after every poll until it has ended; wait through outages of up to `RETURN_S`."""
    found = client.send(experiments.get(name))
    yield found
    patience = Patience(clock)
    while found["state"] not in experiments.ENDED:
        sleep(EXPERIMENT_POLL_S)
        try:
            # Use the id: another experiment may get the same name in the meantime.
            found = client.send(experiments.get(found["id"]))
        except Failed as failed:
            if failed.kind != "unreachable" or patience.is_over():
                raise
        else:
            patience.record_answer()
            yield found


FIRST_S = 0.2
"""First pause between two polls in seconds; the pauses grow up to `LONGEST_S`."""
LONGEST_S = 2.0


class Endable(Protocol):
    """A job or an experiment."""

    @property
    def ended_at(self) -> str | None:
        """Time of the end; None before."""


E = TypeVar("E", bound=Endable)


class Waiting:
    """Deadline and pauses of a caller that waits for one job or experiment."""

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
        """Return the request, limited to the caller's remaining time."""
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
            TimedOut: the caller's time limit has passed.
        """
        left = self._compute_remaining_s()
        if left is not None and left <= 0:
            message = f"{self._name} has not ended within {self._timeout_s:g} s"
            raise TimedOut("timed_out", message, hint="it continues to run: wait again, or cancel it")
        pause, self._pause = self._pause, min(LONGEST_S, 1.5 * self._pause)
        return pause if left is None else min(pause, left)

    def _compute_remaining_s(self) -> float | None:
        return None if self._timeout_s is None else self._begun + self._timeout_s - self._clock()


def wait_for_end(client: "Connection", waiting: Waiting, answer: type[E]) -> E:
    """Poll until the job or experiment has ended, and return it.

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
    """Do the same as `wait_for_end` with the asynchronous client."""
    while True:
        try:
            found = await client.read(waiting.request(), answer, retries=0)
            waiting.record_answer()
            if found.ended_at is not None:
                return found
        except Failed as failed:
            waiting.record_failure(failed)
        await client.sleep(waiting.pause())
