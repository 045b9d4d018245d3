"""`/v1/jobs/{job}/events`: what happens to a job, as server-sent events.

An event's id says all that its reader has seen by then, so a client that comes back with it, to whichever process,
goes on exactly there. Nothing is remembered for a client here.
"""

import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from shared.contracts import canonical
from shared.contracts.api_keys import Scope
from shared.errors import BadRequest
from shared.storage import events as stored
from shared.storage import jobs
from shared.storage.events import Change, Picture
from shared.storage.states import TERMINAL
from shared.storage.waiting import Waiting

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
EXAMPLE: dict[str, Any] = {
    "event": "state", "id": "2.0.-",
    "data": '{"version":2,"state":"running","reason":null,"at":"2026-11-21T08:00:00Z"}',
}  # fmt: skip
_ID = re.compile(r"(?P<version>\d{1,9})\.(?P<gate>[01])\.(?P<progress>[0-9a-f]{16}|-)")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One of the stream: three lines and an empty one."""

    event: Literal["state", "gate", "progress"]
    data: str
    """JSON: a change of state, the gate's decision, or how far the job is."""
    id: str
    """For `Last-Event-ID`."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the job is; no figure of what is done ever falls."""

    request_counts: jobs.RequestCounts
    stages: dict[str, jobs.StageCount]
    unserved: tuple[str, ...]
    """Models that its calls wait for and that no guard serves as they were when it was submitted."""
    waiting: tuple[Waiting, ...]
    """What is away that its calls need."""


class Seen(NamedTuple):
    """What a client has been told."""

    version: int = 0
    """Of the last change of the job."""
    gate: bool = False
    progress: str = "-"
    """Digest of the last progress."""

    def __str__(self) -> str:
        return f"{self.version}.{self.gate:d}.{self.progress}"


def parsed(last_event_id: str | None) -> Seen:
    """What the client with this Last-Event-ID has seen.

    Raises:
        BadRequest: it is no id that we gave.
    """
    if last_event_id is None:
        return Seen()
    found = _ID.fullmatch(last_event_id)
    if found is None:
        raise BadRequest(
            "`Last-Event-ID`: not one of ours", hint="send the `id` of the last event, or leave it out to begin anew"
        )
    return Seen(int(found["version"]), found["gate"] == "1", found["progress"])


class StreamMessage(NamedTuple):
    """An event, and what a client has seen with it."""

    seen: Seen
    event: ServerSentEvent


def news(picture: Picture, seen: Seen) -> Iterator[StreamMessage]:
    """What a client that has seen `seen` is to be told; the job's end comes last."""
    fresh = [change for change in picture.changes if change.version > seen.version]
    for change in (change for change in fresh if change.state not in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _message("state", change, seen)
    if picture.job.gate is not None and not seen.gate:
        seen = seen._replace(gate=True)
        yield _message("gate", picture.job.gate, seen)
    job = picture.job
    stages = job.stages or {}
    progress = Progress(request_counts=job.request_counts, stages=stages, unserved=job.unserved, waiting=job.waiting)
    digest = canonical.digest(progress).hex()[:16]
    if digest != seen.progress:
        seen = seen._replace(progress=digest)
        yield _message("progress", progress, seen)
    for change in (change for change in fresh if change.state in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _message("state", change, seen)


def _message(name: str, data: Change | jobs.Gate | Progress, seen: Seen) -> StreamMessage:
    return StreamMessage(seen, ServerSentEvent(event=name, raw_data=msgspec.json.encode(data).decode(), id=str(seen)))


class Watched(NamedTuple):
    """A job, and what its watcher has seen of it."""

    picture: Picture
    seen: Seen


async def _watched(
    job: str,
    deps: RequestDeps,
    last_event_id: Annotated[str | None, Header(description="Go on after this event.", examples=["2.0.-"])] = None,
) -> Watched:
    """Before the stream begins, so that what is wrong can be answered with a status."""
    seen = parsed(last_event_id)
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    picture = await stored.look(deps.database, row)
    if seen.version > picture.job.version:
        raise BadRequest("`Last-Event-ID`: of another job", hint="leave it out to begin anew")
    return Watched(picture, seen)


RESPONSES: dict[int | str, Any] = answers(Event, EXAMPLE, media="text/event-stream")


@route(
    router, "GET", "/{job}/events", Scope.READ, "Watch a job",
    RESPONSES, refuses=(404, 409, 429), response_class=EventSourceResponse,
)  # fmt: skip
async def events(watched: Annotated[Watched, Depends(_watched)], deps: RequestDeps) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events until it ends (docs/api.md#events): `state` for every change, `progress` when counts changed,
    `gate` when it has decided; the end state comes last.

    A comment every 15 seconds keeps the connection. `Last-Event-ID` goes on exactly after what was seen.
    """
    picture, seen = watched
    while True:
        for message in news(picture, seen):
            seen = message.seen
            yield message.event
        if picture.job.ended:
            return
        picture = await deps.polls.following(("job", picture.row), partial(stored.look, deps.database, picture.row))
