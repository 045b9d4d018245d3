"""Jobs and experiments, followed until they have ended: a job by its stream of events where there is one."""

import time
from collections.abc import Callable, Iterator

import msgspec

from mathrag.client import experiments, jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.experiments import Experiment
from mathrag.client.jobs import Job

POLL_S = 0.5
EXPERIMENT_POLL_S = 1.0
RETURN_S = 60.0
"""How long a server that was there may be away: it is started again after a crash, and the job goes on."""
NO_STREAM = ("not_found", "not_implemented", "too_many", "internal")
"""Older servers have no stream, and a busy one no more of them."""


class Follower:
    """Looks at one job; what it has been told is not asked again."""

    def __init__(self, client: Client, job: Job) -> None:
        self.job = job
        self._client = client
        # By its id: a name may come to stand for several jobs meanwhile.
        self._id = job["id"]
        self._last: str | None = None
        self._streams = True
        self._cut = False

    def changes(self) -> Iterator[Job]:
        """The job after each event, until the stream ends or breaks off; after a cut, one look."""
        if self._streams and not self._cut:
            yield from self._told()
        else:
            self.job = self._client.send(jobs.get(self._id))
            self._cut = False
            yield self.job

    def failed(self, failed: Failed) -> bool:
        """Take note of a failure; returns whether it is worth another try."""
        if self._streams and not self._cut and failed.kind in NO_STREAM:
            self._streams = False
            return True
        self._cut = True
        return failed.kind == "unreachable"

    def _told(self) -> Iterator[Job]:
        with self._client.events(jobs.events(self._id, self._last)) as events:
            for event in events:
                self._last = event.id or self._last
                if event.event == "progress":
                    self.job = self.job | msgspec.json.decode(event.data)
                elif event.data:
                    self.job = self._client.send(jobs.get(self._id))
                else:
                    continue
                yield self.job
                if self.job["state"] in jobs.ENDED:
                    return


def follow_job(
    client: Client, job: str, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Iterator[Job]:
    """The job, change by change, until it has ended; waits for a server that is away for a while."""
    follower = Follower(client, client.send(jobs.get(job)))
    yield follower.job
    seen = clock()
    while follower.job["state"] not in jobs.ENDED:
        try:
            for found in follower.changes():
                yield found
                seen = clock()
        except Failed as failed:
            if not follower.failed(failed) or clock() - seen > RETURN_S:
                raise
        if follower.job["state"] not in jobs.ENDED:
            sleep(POLL_S)


def follow_experiment(
    client: Client, name: str, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Iterator[Experiment]:
    """The experiment, look by look, until it has ended; waits for a server that is away for a while."""
    found = client.send(experiments.get(name))
    yield found
    seen = clock()
    while found["state"] not in experiments.ENDED:
        sleep(EXPERIMENT_POLL_S)
        try:
            # By its id: nothing else will ever be found by it.
            found = client.send(experiments.get(found["id"]))
        except Failed as failed:
            if failed.kind != "unreachable" or clock() - seen > RETURN_S:
                raise
        else:
            seen = clock()
            yield found
