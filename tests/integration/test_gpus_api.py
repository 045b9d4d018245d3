"""`/v1/gpus`: what rows, Redis and guard say of a device; drained and released in the middle of a job."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisDown

from services.orchestrator.scheduling.scheduler import Scheduler
from shared.audit import check
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import DeviceLease, Phase, RedisLease
from shared.queue import Ticker
from shared.settings import Settings
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, 4)
    async with serving(database, redis_url) as api:
        yield api


@pytest.fixture
async def rig(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["Rig"]:
    async def tick(*_: object) -> None:
        """Nobody is woken."""

    monkeypatch.setattr(Ticker, "tick", tick)
    async with Redis.from_url(redis_url) as redis:
        settings = Settings(database_url="unused", redis_url=redis_url)
        yield Rig(database, Scheduler(settings, database, redis))


class Rig:
    def __init__(self, database: Database, scheduler: Scheduler) -> None:
        self.database = database
        self.scheduler = scheduler
        self.executor = scene.ScriptedExecutor()
        self.lease: DeviceLease | None = None

    async def read_leases(self) -> dict[str, DeviceLease | None]:
        return {DEVICE: self.lease}

    async def flip(self) -> tuple[tuple[int, ...], str] | None:
        await self.scheduler.look()
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, DEVICE)
            if newest is None or newest.state != "wanted":
                return None
            for left in await residencies.find_unclosed(connection, DEVICE):
                await residencies.set_state(connection, left.epoch, "closed", datetime.now(UTC))
            for model in newest.models:
                await residencies.record_server(connection, newest.epoch, {"model": model, "seconds": 0.25})
            await residencies.record_figures(
                connection, newest.epoch, {"memory_mib": {str(model): 41.5 for model in newest.models}}
            )
            await residencies.set_state(connection, newest.epoch, "open", datetime.now(UTC))
        self.lease = DeviceLease(epoch=newest.epoch, phase=Phase.OPEN, models=newest.models)
        return newest.models, newest.cause

    async def work(self) -> None:
        for lane in (*Lane, Lane.JUDGE):  # once more: what was generated is graded
            worker = scene.worker(self.database, lane, self.executor)
            worker.guards = self  # type: ignore[assignment]
            await worker.drain()

    async def run(self) -> list[str]:
        causes = []
        await self.work()
        while (flipped := await self.flip()) is not None:
            causes.append(flipped[1])
            await self.work()
        return causes


async def drained(api: Api, **body: str) -> Any:
    reply = await api.http.post(f"/v1/gpus/{DEVICE}/drain", json=body)
    assert reply.status_code == 202, reply.text
    return reply.json()


async def released(api: Api) -> Any:
    reply = await api.http.post(f"/v1/gpus/{DEVICE}/release")
    assert reply.status_code == 202, reply.text
    return reply.json()


async def test_a_device_that_was_never_used_is_shown_as_such(api: Api) -> None:
    (device,) = await api.get("/v1/gpus")
    assert device == await api.get(f"/v1/gpus/{DEVICE}")
    assert (device["state"], device["epoch"], device["models"], device["flips"]) == ("unused", None, [], [])
    assert (device["lease"], device["drain"]) == (None, None)
    assert device["memory"] == {"budget": 160, "declared": 0, "measured": None}


async def test_an_unknown_device_is_not_found(api: Api) -> None:
    for method, path in (("GET", ""), ("POST", "/drain"), ("POST", "/release"), ("POST", "/retry")):
        reply = await api.http.request(method, f"/v1/gpus/cuda:7{path}")
        assert (reply.status_code, reply.json()["type"]) == (404, "urn:mathrag:not_found")
        assert DEVICE in reply.json()["detail"]


async def test_a_device_shows_models_memory_lease_guard_and_flips(
    api: Api, rig: Rig, database: Database, redis_url: str
) -> None:
    api.other = lambda _: httpx2.Response(
        200, json={"device": DEVICE, "state": "open", "epoch": 2, "models": [1], "in_flight": 3}
    )
    await api.job("mathrag-gate")
    await rig.run()
    newest = int(str(await scene.scalar(database, "SELECT max(epoch) FROM residencies")))
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(newest, Phase.OPEN, (await scene.model(database),))
    device = await api.get(f"/v1/gpus/{DEVICE}")
    assert (device["state"], device["epoch"]) == ("open", newest)
    assert device["models"] == [
        {"name": "a-generator", "digest": "a-generator", "footprint_mib": 0, "measured_mib": 41.5}
    ]
    assert device["memory"] == {"budget": 160, "declared": 0, "measured": 41.5}
    assert device["lease"] == {"epoch": newest, "phase": "open", "models": ["a-generator"]}
    assert device["guard"] == {"reachable": True, "state": "open", "epoch": 2, "in_flight": 3, "detail": None}
    assert [(flip["models"], flip["cause"], flip["load_s"]) for flip in device["flips"]] == [
        (["a-generator"], "drained", 0.25),
        (["a-judge"], "first", 0.25),
    ]
    assert all(flip["wanted_at"] and flip["opened_at"] for flip in device["flips"])


async def test_a_guard_and_a_redis_that_are_away_are_shown_not_fatal(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async def down(*_: object, **__: object) -> object:
        raise RedisDown("refused")

    api.other = away
    monkeypatch.setattr(Pipeline, "execute", down)
    device = await api.get(f"/v1/gpus/{DEVICE}")
    assert device["guard"]["reachable"] is False
    assert device["guard"]["detail"] == "refused"
    assert device["lease"] is None


async def test_a_job_that_is_drained_in_the_middle_completes_after_the_release(
    api: Api, rig: Rig, database: Database
) -> None:
    job = (await api.job("mathrag-gate"))["id"]
    await rig.work()
    assert await rig.flip() is not None  # the judge is resident, its calls wait
    assert (await drained(api, reason="driver update"))["drain"]["reason"] == "driver update"
    waiting = await scene.scalar(database, "SELECT count(*) FROM queue")
    assert await rig.flip() == ((), "drain")
    assert await rig.run() == []
    assert await scene.scalar(database, "SELECT count(*) FROM queue") == waiting != 0
    device = await api.get(f"/v1/gpus/{DEVICE}")
    assert (device["state"], device["models"], device["memory"]["declared"]) == ("open", [], 0)
    assert (await api.get(f"/v1/jobs/{job}"))["state"] == "preparing"
    woken = api.woken
    assert (await released(api))["drain"] is None
    assert api.woken == woken + 1
    assert await rig.run() == ["released", "drained"]
    assert (await api.get(f"/v1/jobs/{job}"))["state"] == "completed"
    assert await check(database, (await api.get(f"/v1/jobs/{job}"))["id"]) == []


async def test_a_drain_is_written_down_once_with_who_and_why(api: Api, database: Database) -> None:
    for _ in range(2):
        assert (await drained(api, reason="fan"))["drain"]["reason"] == "fan"
    for _ in range(2):
        assert (await released(api))["drain"] is None
    written = await scene.rows(database, "SELECT actor, action, target, detail FROM operations ORDER BY id")
    assert written == [
        ("local", "gpu.drain", DEVICE, {"reason": "fan"}),
        ("local", "gpu.release", DEVICE, {}),
    ]


async def test_a_quarantined_device_is_tried_again_at_once_by_request(
    api: Api, rig: Rig, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await api.http.post(f"/v1/gpus/{DEVICE}/retry")).status_code == 202
    await api.job("closed-book")
    await rig.work()
    await rig.scheduler.run_once()
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        assert newest is not None
        await residencies.set_state(connection, newest.epoch, "quarantined", datetime.now(UTC), "no Ollama")
    assert await rig.flip() is None  # it rests
    woken = api.woken
    reply = await api.http.post(f"/v1/gpus/{DEVICE}/retry")
    assert (reply.status_code, reply.json()["state"], api.woken) == (202, "quarantined", woken + 1)
    assert await rig.flip() == (newest.models, "retry")
    written = await scene.rows(database, "SELECT actor, action, target FROM operations WHERE action LIKE 'gpu.%'")
    assert written == [("local", "gpu.retry", DEVICE)]


async def test_a_retry_that_cannot_be_requested_says_so(api: Api, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: object, **__: object) -> object:
        raise RedisDown("refused")

    await api.job("closed-book")
    await rig.work()
    await rig.scheduler.run_once()
    async with rig.database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        assert newest is not None
        await residencies.set_state(connection, newest.epoch, "quarantined", datetime.now(UTC), "no Ollama")
    monkeypatch.setattr(RedisLease, "request_retry", down)
    reply = await api.http.post(f"/v1/gpus/{DEVICE}/retry")
    assert (reply.status_code, "Redis does not answer" in reply.json()["detail"]) == (503, True)


async def test_a_drain_needs_no_reason_and_outlives_every_process(api: Api, rig: Rig, database: Database) -> None:
    reply = await api.http.post(f"/v1/gpus/{DEVICE}/drain")
    assert reply.json()["drain"]["reason"] is None
    await api.job("closed-book")
    assert await rig.run() == []
    assert await scene.rows(database, "SELECT count(*) FROM residencies") == [(0,)]


async def test_a_drained_device_is_not_ready_and_says_how_to_release_it(api: Api) -> None:
    await drained(api, reason="fan")
    checks = {check["name"]: check for check in (await api.http.get("/readyz")).json()["checks"]}
    assert checks["device"]["ok"] is False
    assert "drained" in checks["device"]["detail"]
    assert "fan" in checks["device"]["detail"]
