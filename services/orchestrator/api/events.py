"""Serves `/v1/jobs/{job}/events`: what happens to a job, as server-sent events.

An event's id encodes everything that its reader has seen by then. A client that reconnects with it, to any process,
continues exactly there, and the server stores nothing for a client.
"""

import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from shared import canonical
from shared.errors import BadRequest
from shared.shapes import Scope
from shared.storage import jobs as stored_jobs
from shared.storage.database import TERMINAL
from shared.storage.jobs import JobSnapshot, JobStateChange, Waiting

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
EXAMPLE: dict[str, Any] = {
    "event": "state", "id": "2.0.-",
    "data": '{"version":2,"state":"running","reason":null,"at":"2026-11-21T08:00:00Z"}',
}  # fmt: skip
_ID = re.compile(r"(?P<version>\d{1,9})\.(?P<gate>[01])\.(?P<progress>[0-9a-f]{16}|-)")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the stream: three lines, followed by an empty one."""

    event: Literal["state", "gate", "progress"]
    data: str
    """JSON object: a change of state, the gate's decision, or the progress of the job."""
    id: str
    """Id to send as `Last-Event-ID` in order to continue after this event."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the job; none of its counts of finished work ever falls."""

    request_counts: stored_jobs.RequestCounts
    stages: dict[str, stored_jobs.StageCount]
    unserved: tuple[str, ...]
    """Models that the job's calls wait for and that no guard serves in the version of the job's submission."""
    waiting: tuple[Waiting, ...]
    """Services that the job's calls need and that are unavailable."""


class StreamPosition(NamedTuple):
    """What a client has been told so far."""

    version: int = 0
    """Version of the job's last change."""
    gate: bool = False
    progress: str = "-"
    """Digest of the last progress."""

    def __str__(self) -> str:
        return f"{self.version}.{self.gate:d}.{self.progress}"


def parse_event_id(last_event_id: str | None) -> StreamPosition:
    """Parse a Last-Event-ID into what its client has seen.

    Raises:
        BadRequest: the id was not issued by this service.
    """
    if last_event_id is None:
        return StreamPosition()
    found = _ID.fullmatch(last_event_id)
    if found is None:
        raise BadRequest(
            "`Last-Event-ID`: was not issued by this service",
            hint="send the `id` of the last event, or leave the header out to start from the beginning",
        )
    return StreamPosition(int(found["version"]), found["gate"] == "1", found["progress"])


class StreamMessage(NamedTuple):
    """An event, and what its client has seen once it has received it."""

    seen: StreamPosition
    event: ServerSentEvent


def list_messages(picture: JobSnapshot, seen: StreamPosition) -> Iterator[StreamMessage]:
    """Yield the messages for a client that has seen `seen`; the job's end comes last."""
    fresh = [change for change in picture.changes if change.version > seen.version]
    for change in (change for change in fresh if change.state not in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _make_message("state", change, seen)
    if picture.job.gate is not None and not seen.gate:
        seen = seen._replace(gate=True)
        yield _make_message("gate", picture.job.gate, seen)
    job = picture.job
    stages = job.stages or {}
    progress = Progress(request_counts=job.request_counts, stages=stages, unserved=job.unserved, waiting=job.waiting)
    digest = canonical.digest(progress).hex()[:16]
    if digest != seen.progress:
        seen = seen._replace(progress=digest)
        yield _make_message("progress", progress, seen)
    for change in (change for change in fresh if change.state in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _make_message("state", change, seen)


def _make_message(name: str, data: JobStateChange | stored_jobs.Gate | Progress, seen: StreamPosition) -> StreamMessage:
    return StreamMessage(seen, ServerSentEvent(event=name, raw_data=msgspec.json.encode(data).decode(), id=str(seen)))


class WatchedJob(NamedTuple):
    """A job, and what the client that watches it has seen."""

    picture: JobSnapshot
    seen: StreamPosition


async def _check_watch(
    job: str,
    deps: RequestDeps,
    last_event_id: Annotated[
        str | None,
        Header(description="Id of the last event received; the stream continues after it.", examples=["2.0.-"]),
    ] = None,
) -> WatchedJob:
    """Check the request before the stream begins, so that an error can still be answered with a status.

    Raises:
        HTTPException: with 204, which ends a browser's reconnects, if the client has seen the end of the job.
    """
    seen = parse_event_id(last_event_id)
    async with deps.database.transaction() as connection:
        row = await stored_jobs.resolve(connection, job)
    picture = await stored_jobs.take_snapshot(deps.database, row)
    if seen.version > picture.job.version:
        raise BadRequest(
            "`Last-Event-ID`: belongs to another job", hint="leave the header out to start from the beginning"
        )
    if picture.job.ended and not any(list_messages(picture, seen)):
        raise HTTPException(204)
    return WatchedJob(picture, seen)


RESPONSES: dict[int | str, Any] = {
    **answers(Event, EXAMPLE, media="text/event-stream"),
    204: {"description": "The job has ended, and the client has seen all events: it stops reconnecting."},
}


@route(
    router, "GET", "/{job}/events", Scope.READ, "Watch a job",
    RESPONSES, refuses=(404, 409, 429), response_class=EventSourceResponse,
)  # fmt: skip
async def events(
    watched: Annotated[WatchedJob, Depends(_check_watch)], deps: RequestDeps
) -> AsyncIterator[ServerSentEvent]:
    """Streams server-sent events until the job ends (docs/how-to/api.md#events): `state` for every change, `progress`
    when counts have changed, `gate` when the gate has decided. The final state comes last.

    A comment every 15 seconds keeps the connection open. With `Last-Event-ID` the stream continues exactly after that
    event; after the last event of a job that has ended the answer is 204, at which a browser stops reconnecting.
    """
    picture, seen = watched
    while True:
        for message in list_messages(picture, seen):
            seen = message.seen
            yield message.event
        if picture.job.ended:
            return
        picture = await deps.polls.wait_for_next(
            ("job", picture.row), partial(stored_jobs.take_snapshot, deps.database, picture.row)
        )
