"""A job, followed until it has ended: by its stream of events where there is one, by looking where not."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from mathrag.cli.failures import Failed
from mathrag.client.client import Client, segment

ENDED = ("completed", "failed", "cancelled")
POLL_S = 0.5
RETURN_S = 60.0
"""How long a server that was there may be away: it is started again after a crash, and the job goes on."""
NO_STREAM = ("not_found", "not_implemented", "too_many", "internal")
"""Older servers have no stream, and a busy one no more of them."""


class Event(NamedTuple):
    """One server-sent event."""

    id: str | None
    name: str
    data: Any


class Follower:
    """Looks at one job; what it has been told is not asked again."""

    def __init__(self, client: Client, job: Any) -> None:
        self.job = job
        self._client = client
        # By its id: a name may come to stand for several jobs meanwhile.
        self._path = f"/v1/jobs/{job['id']}"
        self._last: str | None = None
        self._streams = True
        self._cut = False

    def changes(self) -> Iterator[Any]:
        """The job after each event, until the stream ends or breaks off; after a cut, one look."""
        if self._streams and not self._cut:
            yield from self._told()
        else:
            self.job = self._client.get(self._path)
            self._cut = False
            yield self.job

    def failed(self, failed: Failed) -> bool:
        """Take note of a failure; returns whether it is worth another try."""
        if self._streams and not self._cut and failed.kind in NO_STREAM:
            self._streams = False
            return True
        self._cut = True
        return failed.kind == "unreachable"

    def _told(self) -> Iterator[Any]:
        with self._client.events(f"{self._path}/events", self._last) as lines:
            for event in events(lines):
                self._last = event.id or self._last
                self.job = self.job | event.data if event.name == "progress" else self._client.get(self._path)
                yield self.job
                if self.job["state"] in ENDED:
                    return


def looks(
    client: Client, job: str, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Iterator[Any]:
    """The job, change by change, until it has ended; waits for a server that is away for a while."""
    follower = Follower(client, client.get(f"/v1/jobs/{segment(job)}"))
    yield follower.job
    seen = clock()
    while follower.job["state"] not in ENDED:
        try:
            for found in follower.changes():
                yield found
                seen = clock()
        except Failed as failed:
            if not follower.failed(failed) or clock() - seen > RETURN_S:
                raise
        if follower.job["state"] not in ENDED:
            sleep(POLL_S)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """What a stream of server-sent events says; comments keep it alive and say nothing."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield Event(fields.get("id"), fields.get("event", "message"), msgspec.json.decode(fields["data"]))
            fields = {}
