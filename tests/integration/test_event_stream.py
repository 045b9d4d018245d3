"""`/v1/jobs/{job}/events`: what a watcher is told while a job runs, and where it goes on after it was cut off."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, NamedTuple

import fastapi.routing
import pytest

from services.orchestrator.polling import Polls
from shared.storage import jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

GATED = {"pipeline": "mathrag-gate", "params": {"gate": {"min_pairs": 5, "tau": 1}}}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async def at_once() -> None:
        await asyncio.sleep(0)

    await scene.furnish(database)
    async with serving(database, redis_url, polls=Polls(at_once)) as serving_api:
        yield serving_api


class Event(NamedTuple):
    id: str
    name: str
    data: Any


def read(body: str) -> list[Event]:
    found = []
    for block in body.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if line and not line.startswith(":")]
        fields = {name: value for name, _, value in lines}
        if fields:
            found.append(Event(fields["id"], fields["event"], json.loads(fields["data"])))
    return found


async def watch(api: Api, job: Any, last: str | None = None) -> list[Event]:
    headers = {} if last is None else {"Last-Event-ID": last}
    reply = await api.http.get(job["links"]["events"], headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return read(reply.text)


def states(events: list[Event]) -> list[str]:
    return [event.data["state"] for event in events if event.name == "state"]


async def test_a_watcher_sees_the_job_from_its_beginning_to_its_end(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    watching = asyncio.create_task(watch(api, job))
    await finished(database)
    events = await watching
    assert states(events) == ["preparing", "running", "finalizing", "completed"]
    assert [event.data["strategy"] for event in events if event.name == "gate"] == ["judge"]
    assert events[-1].name == "state"
    progress = [event.data for event in events if event.name == "progress"]
    assert progress[-1]["request_counts"]["completed"] == 5
    assert progress[-1]["stages"]["generate"] == {"done": 5, "total": 5}


async def test_counters_never_go_back(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    watching = asyncio.create_task(watch(api, job))
    await finished(database)
    progress = [event.data for event in await watching if event.name == "progress"]
    for before, after in pairwise(progress):
        assert before["request_counts"]["completed"] <= after["request_counts"]["completed"]
        for role, count in before["stages"].items():
            assert count["done"] <= after["stages"][role]["done"]
            assert count["total"] <= after["stages"][role]["total"]


async def test_a_client_that_was_cut_off_goes_on_exactly_there(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    await finished(database)
    events = await watch(api, job)
    assert len(events) >= 6
    for number, event in enumerate(events[:-1]):
        assert await watch(api, job, event.id) == events[number + 1 :]


async def test_a_client_that_has_seen_the_end_is_told_to_stop_reconnecting(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    before = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert before.status_code == 202
    await scene.repair(database)
    last = (await watch(api, job))[-1].id
    reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": last})
    assert (reply.status_code, reply.content) == (204, b"")
    assert states(await watch(api, job))[-1] == "cancelled"


async def test_a_change_after_the_end_is_still_told(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    await finished(database)
    last = (await watch(api, job))[-1].id
    ended = await api.http.get(f"/v1/jobs/{job['id']}")
    changed = await api.http.patch(
        f"/v1/jobs/{job['id']}", json={"name": "renamed"}, headers={"If-Match": ended.headers["etag"]}
    )
    assert changed.status_code == 200
    (event,) = await watch(api, job, last)
    reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": event.id})
    assert reply.status_code == 204


async def test_a_pause_and_a_change_are_told(api: Api, database: Database) -> None:
    job = await api.job()
    for verb in ("pause", "resume", "cancel"):
        await api.http.post(f"/v1/jobs/{job['id']}/{verb}")
    await scene.repair(database)
    events = await watch(api, job)
    assert states(events) == ["preparing", "running", "paused", "running", "cancelling", "cancelled"]
    assert [event.data["version"] for event in events if event.name == "state"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("last", ["", "x", "1.0", "9.0.-", "2.0.-;"])
async def test_an_id_that_is_not_the_jobs_is_refused(api: Api, last: str) -> None:
    job = await api.job()
    reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": last})
    assert (reply.status_code, reply.json()["type"]) == (400, "urn:mathrag:bad_request")
    assert (await api.http.get("/v1/jobs/nobody/events")).status_code == 404


async def test_many_watchers_cost_one_read_a_poll(
    database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, all_look, go, look = 0, asyncio.Event(), asyncio.Event(), jobs.take_snapshot

    async def counted(database: Database, job: int) -> jobs.JobSnapshot:
        nonlocal reads
        reads += 1
        if reads == 20:
            all_look.set()
        return await look(database, job)

    monkeypatch.setattr(jobs, "take_snapshot", counted)
    await scene.furnish(database)
    async with serving(database, redis_url, polls=Polls(go.wait)) as api:
        job = await api.job()
        watching = [asyncio.create_task(watch(api, job)) for _ in range(20)]
        await all_look.wait()
        await finished(database)
        assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        go.set()
        ended = await asyncio.gather(*watching)
    assert all(states(events)[-1] == "completed" for events in ended)
    assert reads == 21


async def test_a_comment_keeps_a_quiet_stream_alive(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fastapi.routing._PING_INTERVAL == 15  # type: ignore[attr-defined]
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.001)
    job = await api.job()
    reading = asyncio.create_task(api.http.get(job["links"]["events"]))
    await finished(database)
    body = (await reading).text
    assert "\n: ping\n\n" in f"\n{body}"
    assert states(read(body))[-1] == "completed"
