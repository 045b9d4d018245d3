"""The guard over HTTP, with a real database and Redis and puppets for models."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisDown

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.ownership import DeviceTaken
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.calls import Decoding, End, Lane, ModelCall
from shared.lease import residencies
from shared.lease.lease import ChunkRejected, DeviceLease, GuardClient, NotGranted, Phase, RedisLease, StreamBroken
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply, chat_server
from tests.doubles.puppets import PuppetDriver, PuppetServer
from tests.integration.scene import rows, scalar

pytestmark = pytest.mark.anyio


class Running:
    def __init__(self, settings: Settings, database: Database, drivers: dict[str, PuppetDriver]) -> None:
        self.settings = settings
        self.database = database
        self.drivers = drivers
        self._stack = AsyncExitStack()
        self.url = ""

    async def start(self) -> "Running":
        self.url = await self._stack.enter_async_context(serve_app(create_app(self.settings)))
        self.http = await self._stack.enter_async_context(httpx2.AsyncClient(base_url=self.url, trust_env=False))
        return self

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def state(self) -> dict[str, Any]:
        return dict((await self.http.get("/state")).json())

    async def model_id(self, name: str) -> int:
        found = await scalar(self.database, "SELECT id FROM models WHERE name = :n", n=name)
        assert isinstance(found, int)
        return found

    async def want(self, *names: str) -> int:
        wanted = [await self.model_id(name) for name in names]
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, "cpu:0")
            epoch = await residencies.insert_wanted(connection, "cpu:0", newest.epoch if newest else 0, wanted, "test")
        assert epoch is not None
        return epoch

    async def flip(self, *names: str) -> int:
        epoch = await self.want(*names)
        await until(lambda: self._is(epoch, "open"))
        await until(self._serves(epoch))
        return epoch

    def _serves(self, epoch: int) -> Callable[[], Awaitable[bool]]:
        async def serves() -> bool:
            return (await self.state())["epoch"] == epoch

        return serves

    async def _is(self, epoch: int, state: str) -> bool:
        return await scalar(self.database, "SELECT state FROM residencies WHERE epoch = :e", e=epoch) == state

    def server(self, name: str) -> PuppetServer:
        return self.drivers[name].servers[-1]


async def until(condition: Callable[[], Awaitable[bool]], limit_s: float = 60) -> None:
    with anyio.fail_after(limit_s):
        while not await condition():  # noqa: ASYNC110 - rows and keys tell nobody that they change
            await asyncio.sleep(0.01)


def body(epoch: int | None, model_id: int, *numbers: int) -> dict[str, Any]:
    decoding = {"temperature": 0.0, "max_tokens": 10}
    calls = [{"id": n, "model_id": model_id, "prompt": str(n), "decoding": decoding, "seed": 0} for n in numbers]
    return {"epoch": epoch, "calls": calls}


def calls(model_id: int, *numbers: int) -> list[ModelCall]:
    return [ModelCall(id=n, model_id=model_id, prompt=str(n), decoding=Decoding(), seed=0) for n in numbers]


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> dict[str, PuppetDriver]:
    drivers = {name: PuppetDriver(name, 96) for name in ("judge", "generator")}
    monkeypatch.setattr(app_module, "make_driver", lambda name, *_: drivers[name])
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    return drivers


@pytest.fixture
async def renewing(guard: "Running", monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(app_module, "RENEW_S", 0.05)
    await guard.restart()
    yield
    monkeypatch.setattr(app_module, "RENEW_S", 3600)
    await asyncio.sleep(0.5)


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    models = {name: Model(driver="scripted", footprint_mib=96, parallel=4) for name in ("judge", "generator")}
    return Settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models, device=Device(budget_mib=160)
    )


@pytest.fixture
async def guard(settings: Settings, database: Database, drivers: dict[str, PuppetDriver]) -> AsyncIterator[Running]:
    running = await Running(settings, database, drivers).start()
    yield running
    await running.stop()


@pytest.fixture
async def probing(guard: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "PROBE_S", 0.02)
    await guard.restart()


async def quarantined(guard: Running, name: str) -> int:
    epoch, looks = await guard.want(name), 0
    await until(lambda: guard._is(epoch, "quarantined"))
    driver = guard.drivers[name]
    identify = driver.identify

    async def counted() -> ModelIdentity:
        nonlocal looks
        looks += 1
        return await identify()

    async def looked() -> bool:
        return looks >= 3

    driver.identify = counted  # type: ignore[method-assign]
    await until(looked)
    return epoch


@pytest.mark.usefixtures("probing")
async def test_a_device_is_to_be_tried_again_as_soon_as_an_obstacle_that_was_seen_is_gone(
    guard: Running, redis: Redis
) -> None:
    lease, driver = RedisLease(redis, "cpu:0"), guard.drivers["judge"]
    driver.missing = True
    epoch = await quarantined(guard, "judge")
    assert not await lease.is_retry_requested(epoch)
    driver.missing = False
    await until(lambda: lease.is_retry_requested(epoch))
    assert driver.servers == []
    await guard.flip("judge")


@pytest.mark.usefixtures("probing")
async def test_a_load_that_fails_of_something_that_cannot_be_seen_keeps_its_pause(guard: Running, redis: Redis) -> None:
    guard.drivers["judge"].refuses = "no memory left"
    epoch = await quarantined(guard, "judge")
    assert not await RedisLease(redis, "cpu:0").is_retry_requested(epoch)


@pytest.mark.usefixtures("probing")
async def test_a_probe_that_fails_is_repeated(
    guard: Running, redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease, driver = RedisLease(redis, "cpu:0"), guard.drivers["judge"]
    driver.missing = True
    epoch = await quarantined(guard, "judge")
    request, failures = RedisLease.request_retry, [RedisDown("refused")] * 2

    async def unlucky(each: RedisLease, at: int) -> None:
        if failures:
            raise failures.pop()
        await request(each, at)

    monkeypatch.setattr(RedisLease, "request_retry", unlucky)
    driver.missing = False
    await until(lambda: lease.is_retry_requested(epoch))
    assert failures == []
    assert "the check of the quarantined device failed" in caplog.text


async def test_a_guard_that_has_just_started_serves_nothing(guard: Running) -> None:
    assert (await guard.http.get("/healthz")).json() == {"status": "ok"}
    assert await guard.state() == {"device": "cpu:0", "state": "closed", "epoch": None, "models": [], "in_flight": 0}
    names = await rows(guard.database, "SELECT name FROM models ORDER BY name")
    assert names == [("generator",), ("judge",)]


async def test_the_state_tells_epoch_models_and_calls_in_flight(guard: Running) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    async with guard.http.stream("POST", "/run", json=body(epoch, judge, 1, 2)):
        await guard.server("judge").has(2)
        state = await guard.state()
    assert state == {"device": "cpu:0", "state": "open", "epoch": epoch, "models": [judge], "in_flight": 2}


async def test_completions_stream_as_they_end(guard: Running) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    async with guard.http.stream("POST", "/run", json=body(epoch, judge, 1, 2)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = (line async for line in response.aiter_lines() if line)
        await guard.server("judge").has(2)
        guard.server("judge").answer("2")
        with anyio.fail_after(60):
            first = json.loads(await anext(lines))
        assert list(guard.server("judge").running) == ["1"]
        guard.server("judge").answer("1")
        rest = [json.loads(line) async for line in lines]
    assert [first["id"], *(each["id"] for each in rest)] == [2, 1]
    assert (first["text"], first["epoch"], first["device"]) == ("re: 2", epoch, "cpu:0")
    assert first["started_at"] <= first["ended_at"]


async def test_a_stale_epoch_is_a_problem(guard: Running) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    response = await guard.http.post("/run", json=body(epoch - 1, judge, 1))
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["type"], problem["status"]) == ("urn:mathrag:stale-epoch", 409)
    assert str(epoch - 1) in problem["detail"]
    assert guard.server("judge").started == []


async def test_a_worker_is_not_granted_what_came_after_draining_began(guard: Running) -> None:
    first, judge = await guard.flip("judge"), await guard.model_id("judge")
    client = GuardClient(guard.url)
    running = asyncio.create_task(_all(client, first, calls(judge, 1)))
    await guard.server("judge").has(1)
    await guard.want("generator")
    await until(lambda: _state_is(guard, "draining"))
    with pytest.raises(NotGranted, match="409"):
        await _all(client, first, calls(judge, 2))
    guard.server("judge").answer()
    assert await running == [(1, End.ANSWERED)]
    assert guard.drivers["judge"].servers[0].started == ["1"]
    await until(lambda: _state_is(guard, "open"))
    await client.close()


async def _all(client: GuardClient, epoch: int | None, chunk: list[ModelCall]) -> list[tuple[int, End]]:
    return [(each.id, each.end) async for each in client.run(epoch, chunk)]


async def _state_is(guard: Running, state: str) -> bool:
    return bool((await guard.state())["state"] == state)


async def test_a_client_that_disconnects_cancels_its_calls_upstream(guard: Running) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    async with guard.http.stream("POST", "/run", json=body(epoch, judge, 1, 2)):
        await guard.server("judge").has(2)
    with anyio.fail_after(60):
        await guard.server("judge").has(0)
    assert sorted(guard.server("judge").aborted) == ["1", "2"]


async def test_a_client_that_disconnects_does_not_hold_the_next_flip(guard: Running) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    async with guard.http.stream("POST", "/run", json=body(epoch, judge, 1, 2)):
        await guard.server("judge").has(2)
    await until(lambda: _idle(guard), limit_s=3)


async def _idle(guard: Running) -> bool:
    return bool((await guard.state())["in_flight"] == 0)


async def test_calls_of_a_remote_model_need_no_epoch(
    settings: Settings, database: Database, drivers: dict[str, PuppetDriver]
) -> None:
    drivers["generator"].needs_lease = False
    guard = await Running(settings, database, drivers).start()
    generator = await guard.model_id("generator")
    client = GuardClient(guard.url)
    running = asyncio.create_task(_all(client, None, calls(generator, 1)))
    await guard.server("generator").has(1)
    guard.server("generator").answer()
    assert await running == [(1, End.ANSWERED)]
    await client.close()
    await guard.stop()


async def test_a_model_that_is_not_there_does_not_keep_the_guard_from_serving_the_others(
    settings: Settings, database: Database, drivers: dict[str, PuppetDriver]
) -> None:
    drivers["judge"].missing = True
    guard = await Running(settings, database, drivers).start()
    assert await rows(database, "SELECT name FROM models") == [("generator",)]
    await guard.flip("generator")
    await guard.stop()


async def test_a_new_guard_closes_a_dead_ones_residency_and_the_scheduler_wants_a_new_epoch(
    guard: Running, settings: Settings, drivers: dict[str, PuppetDriver], redis: Redis
) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    await guard.stop()
    async with guard.database.transaction() as connection:
        left = await residencies.insert_wanted(connection, "cpu:0", epoch, [judge], "drained")
        assert left is not None
        await residencies.set_state(
            connection, left, "open", (await residencies.find_newest(connection, "cpu:0")).wanted_at
        )  # type: ignore[union-attr, arg-type]
    again = await Running(settings, guard.database, drivers).start()
    assert await rows(guard.database, "SELECT state, reason FROM residencies WHERE epoch = :e", e=left) == [
        ("closed", "guard_restart")
    ]
    held = await _held(settings, guard.database, redis)
    assert held == ("closed", "guard_restart")
    assert (await again.http.post("/run", json=body(left, judge, 1))).status_code == 409
    await again.stop()


async def _held(settings: Settings, database: Database, redis: Redis) -> tuple[str, str | None]:
    scheduler = Scheduler(settings, database, redis)
    async with database.snapshot() as connection:
        _, held, _ = await scheduler.observer.observe(connection)
    assert held is not None
    return held.state, held.reason


async def test_a_guard_that_is_stopped_says_so(guard: Running) -> None:
    await guard.flip("judge")
    await guard.stop()
    assert await rows(guard.database, "SELECT state, reason FROM residencies") == [("closed", "guard_stopped")]
    assert not guard.server("judge").alive


async def test_a_guard_stops_even_if_a_cancellation_is_lost(
    settings: Settings, database: Database, drivers: dict[str, PuppetDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []

    async def reconcile(_: object) -> None:
        try:
            await asyncio.sleep(3600 if not lost else 0)
        except asyncio.CancelledError:
            lost.append(1)

    monkeypatch.setattr("services.guard.reconciler.Reconciler.reconcile", reconcile)
    app = create_app(settings)
    stack = AsyncExitStack()
    await stack.enter_async_context(app.router.lifespan_context(app))
    await asyncio.sleep(0)
    with anyio.fail_after(3):
        await stack.aclose()


# The lock file that was refused is closed by the garbage collector only.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_two_guards_on_one_device_refuse_each_other(
    guard: Running, settings: Settings, drivers: dict[str, PuppetDriver], tmp_path: Path
) -> None:
    second = create_app(settings)
    with pytest.raises(DeviceTaken, match="'cpu:0' has a guard already"):
        async with second.router.lifespan_context(second):
            pass
    other = create_app(settings.model_copy(update={"device": Device(id="cpu:1")}))
    async with other.router.lifespan_context(other):
        pass
    await guard.stop()
    third = create_app(settings)
    async with third.router.lifespan_context(third):
        pass


async def test_the_lease_is_written_again_after_a_flush_with_the_same_epoch(
    guard: Running, redis: Redis, renewing: None
) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    lease = RedisLease(redis, "cpu:0")
    for _ in range(2):
        await redis.flushall()
        await until(lambda: _present(lease))
        assert await lease.read() == DeviceLease(epoch=epoch, phase=Phase.OPEN, models=(judge,))
    assert await scalar(guard.database, "SELECT count(*) FROM residencies") == 1
    assert len(guard.drivers["judge"].servers) == 1


async def _present(lease: RedisLease) -> bool:
    return await lease.read() is not None


async def test_the_lease_is_renewed(guard: Running, redis: Redis, renewing: None) -> None:
    await guard.flip("judge")
    key = "mathrag:gpu:{cpu:0}:lease"

    async def renewed() -> bool:
        return int(await redis.pttl(key)) > 10_000

    for _ in range(3):
        await redis.expire(key, 5)
        await until(renewed)


async def test_with_redis_down_current_work_goes_on(
    guard: Running, redis: Redis, renewing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, judge = await guard.flip("judge"), await guard.model_id("judge")
    client, publish, refused = GuardClient(guard.url), RedisLease.publish, []

    async def down(*_: object, **__: object) -> bool:
        refused.append(1)
        raise RedisDown("connection refused")

    async def tried() -> bool:
        return len(refused) >= 3

    running = asyncio.create_task(_all(client, epoch, calls(judge, 1)))
    await guard.server("judge").has(1)
    monkeypatch.setattr(RedisLease, "publish", down)
    await redis.flushall()
    await until(tried)
    later = asyncio.create_task(_all(client, epoch, calls(judge, 2)))
    await guard.server("judge").has(2)
    guard.server("judge").answer()
    assert await asyncio.gather(running, later) == [[(1, End.ANSWERED)], [(2, End.ANSWERED)]]
    monkeypatch.setattr(RedisLease, "publish", publish)
    lease = RedisLease(redis, "cpu:0")
    await until(lambda: _present(lease))
    assert await lease.read() == DeviceLease(epoch=epoch, phase=Phase.OPEN, models=(judge,))
    assert await scalar(guard.database, "SELECT count(*) FROM residencies") == 1
    await client.close()


async def test_an_open_residency_wakes_both_lanes(guard: Running, redis: Redis) -> None:
    await guard.flip("judge")

    async def ticked() -> bool:
        return [await redis.llen(f"mathrag:celery:{lane.value}") for lane in Lane] == [1, 1]  # type: ignore[misc]

    await until(ticked)


async def test_a_quarantined_device_publishes_it_and_refuses_calls(guard: Running, redis: Redis) -> None:
    epoch = await guard.want("judge", "generator")
    await until(lambda: _state_is(guard, "quarantined"))
    lease = RedisLease(redis, "cpu:0")

    async def published() -> bool:
        found = await lease.read()
        return found is not None and found.phase is Phase.QUARANTINED

    await until(published)
    (reason,) = (await rows(guard.database, "SELECT reason FROM residencies WHERE epoch = :e", e=epoch))[0]
    assert "192 MiB" in str(reason)
    assert "160 MiB" in str(reason)
    judge = await guard.model_id("judge")
    assert (await guard.http.post("/run", json=body(epoch, judge, 1))).status_code == 409


LINE = (
    b'{"id":1,"started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:01Z",'
    b'"device":"d","epoch":1,"concurrency":1}\n'
)


@pytest.mark.parametrize(
    ("reply", "error", "answered"),
    [
        (Reply(body=LINE), StreamBroken, 1),
        (Reply(body=LINE, missing=50, reset=True), StreamBroken, 1),
        (Reply(body=b"\n"), StreamBroken, 0),
        (Reply(status=409, body=b"{}"), NotGranted, 0),
        (Reply(status=401, body=b"{}"), NotGranted, 0),
        (Reply(status=500, body=b"oops"), ChunkRejected, 0),
    ],
    ids=["ends early", "reset", "no answer", "refused", "another service key", "broken before it began"],
)
async def test_a_worker_knows_what_was_never_sent_from_what_is_suspect(
    reply: Reply, error: type[Exception], answered: int
) -> None:
    async with chat_server(lambda _: reply) as double:
        client = GuardClient(double.url)
        found: list[int] = []

        async def run() -> None:
            async for each in client.run(1, calls(1, 1, 2)):
                found.append(each.id)  # noqa: PERF401 - what came before the error counts

        with pytest.raises(error):
            await run()
        assert len(found) == answered
        await client.close()


async def test_a_guard_that_is_not_there_grants_nothing() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    client = GuardClient(gone.url)
    with pytest.raises(NotGranted):
        await _all(client, 1, calls(1, 1))
    await client.close()
