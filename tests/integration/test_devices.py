import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisDown

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.drivers.process import LlamaServer, ProcessDriver
from services.orchestrator.probes import list_readiness_probes
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.audit import check
from shared.calls import Decoding, Lane, ModelCall
from shared.lease import learned_memory, residencies
from shared.lease.lease import DeviceLease, GuardClient, Guards, NotGranted, Phase, RedisLease
from shared.lease.memory import AssumedMemory, LearnedMemory, assume_memory
from shared.models import metadata
from shared.queue import Ticker
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.runtime.placement import settings_for_device
from shared.runtime.prompting import PromptExecutor
from shared.runtime.worker import LaneWorker
from shared.settings import REPOSITORY, Device, Model, Settings, Workers
from shared.shapes import Architecture
from shared.storage import devices
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply, answer, chat_server
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.scene import ScriptedExecutor, SilentTicker, advance, furnish, rows, submit_job
from tests.integration.test_reconciler import Rig as ReconcilerRig

# Two devices in one database: real guards, schedulers and workers, each device on its own.


pytestmark = pytest.mark.anyio

DEVICES_JUDGE, GENERATOR = "cpu:0", "cpu:1"
"""The devices, by the stage that the placement gives them."""
JUDGED = {"gate": {"tau": 1.0}}
"""Whatever rho is, the judge rates every candidate."""
WORKED = """
    SELECT DISTINCT c.role, a.device FROM attempts a JOIN calls c ON c.id = a.call_id
    WHERE a.accepted AND a.device IS NOT NULL ORDER BY c.role"""


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    models = {name: Model(driver="scripted", footprint_mib=96) for name in ("a-judge", "a-generator")}
    return Settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models,
        roles={"judge": "a-judge", "generate": "a-generator"}, devices=(Device(id=GENERATOR),), sweep_s=0.2,
    )  # fmt: skip


@pytest.fixture
async def schedulers(settings: Settings, database: Database, redis: Redis) -> list[Scheduler]:
    await furnish(database, items=6)
    return [Scheduler(settings_for_device(settings, device), database, redis) for device in (DEVICES_JUDGE, GENERATOR)]


@pytest.fixture
async def guards(
    schedulers: list[Scheduler], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    async with AsyncExitStack() as stack:
        yield {
            device: await stack.enter_async_context(serve_app(create_app(settings_for_device(settings, device))))
            for device in (DEVICES_JUDGE, GENERATOR)
        }


@pytest.fixture
async def worker(database: Database, redis: Redis) -> AsyncIterator[Callable[[Lane, Sequence[str]], LaneWorker]]:
    async with AsyncExitStack() as stack:

        def make(lane: Lane, urls: Sequence[str]) -> LaneWorker:
            known = Guards(redis, urls)
            stack.push_async_callback(known.close)
            prompting, scripted = PromptExecutor(database, known), ScriptedExecutor()
            executors = {"judge": prompting, "generate": prompting, "retrieve": scripted, "grade": scripted}
            return LaneWorker(
                lane, database, executors, name=f"test-{lane.value}", guards=known,
                ticker=SilentTicker(),  # type: ignore[arg-type]
                limits=Workers(window_ms=1),
            )  # fmt: skip

        yield make


async def look(schedulers: list[Scheduler]) -> None:
    for scheduler in schedulers:
        await scheduler.look()


async def opened(database: Database, redis: Redis, device: str) -> residencies.ResidencyRow:
    with anyio.fail_after(60):
        while True:
            async with database.transaction() as connection:
                newest = await residencies.find_newest(connection, device)
            lease = await RedisLease(redis, device).read()
            if newest and lease == DeviceLease(epoch=newest.epoch, phase=Phase.OPEN, models=newest.models):
                return newest
            await asyncio.sleep(0.01)


async def test_each_guard_registers_the_models_of_its_device(guards: dict[str, str], database: Database) -> None:
    assert set(guards) == {DEVICES_JUDGE, GENERATOR}
    served_ = await rows(database, "SELECT name, device FROM models WHERE served AND needs_lease ORDER BY name")
    assert served_ == [("a-generator", GENERATOR), ("a-judge", DEVICES_JUDGE)]


@pytest.mark.usefixtures("guards")
async def test_both_devices_open_as_soon_as_they_have_work(
    schedulers: list[Scheduler], worker: Callable[[Lane, Sequence[str]], LaneWorker], database: Database
) -> None:
    await submit_job(database, params=JUDGED)
    await worker(Lane.JUDGE, ()).drain()  # searches, and asks the judge
    await submit_job(database, "hybrid", name="searching")
    await submit_job(database, "closed-book", name="generating")
    await advance(database)
    await submit_job(database, "sparse", name="ready")
    await look(schedulers)
    assert await rows(database, "SELECT device, cause FROM residencies ORDER BY device") == [
        (DEVICES_JUDGE, "first"),
        (GENERATOR, "first"),
    ]


async def test_a_job_loads_each_device_once_and_is_whole(
    guards: dict[str, str],
    schedulers: list[Scheduler],
    worker: Callable[[Lane, Sequence[str]], LaneWorker],
    database: Database,
) -> None:
    job = await submit_job(database, params=JUDGED)
    loops = [asyncio.create_task(scheduler.run()) for scheduler in schedulers]
    workers = [worker(lane, list(guards.values())) for lane in Lane]
    with anyio.fail_after(120):
        while not await rows(database, "SELECT 1 FROM jobs WHERE ended_at IS NOT NULL"):
            for each in workers:
                await each.drain()
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    assert await rows(database, "SELECT device, cause, state FROM residencies ORDER BY device") == [
        (DEVICES_JUDGE, "first", "open"),
        (GENERATOR, "first", "open"),
    ]
    assert await rows(database, WORKED) == [("generate", GENERATOR), ("judge", DEVICES_JUDGE)]
    assert await check(database, job) == []


async def test_an_epoch_of_one_device_is_refused_by_the_other_ones_guard(
    guards: dict[str, str], schedulers: list[Scheduler], database: Database, redis: Redis
) -> None:
    await submit_job(database, "closed-book")
    await advance(database)
    await look(schedulers)
    held = await opened(database, redis, GENERATOR)
    call = ModelCall(id=1, model_id=held.models[0], prompt="1", decoding=Decoding(), seed=0)
    for device, answered in ((GENERATOR, 1), (DEVICES_JUDGE, 0)):
        client = GuardClient(guards[device])
        try:
            assert len([each async for each in client.run(held.epoch, [call])]) == answered
        except NotGranted:
            assert not answered
        finally:
            await client.close()


async def test_a_guard_that_is_away_costs_its_own_device_only(
    guards: dict[str, str],
    schedulers: list[Scheduler],
    worker: Callable[[Lane, Sequence[str]], LaneWorker],
    database: Database,
    redis: Redis,
) -> None:
    await submit_job(database, params=JUDGED)
    await submit_job(database, "closed-book", name="other")
    async with chat_server(lambda _: Reply()) as gone:
        pass
    urls = [gone.url, guards[GENERATOR]]
    await worker(Lane.JUDGE, urls).drain()  # searches, and asks the judge
    await look(schedulers)
    await asyncio.gather(*(opened(database, redis, device) for device in (DEVICES_JUDGE, GENERATOR)))
    for lane in Lane:
        await worker(lane, urls).drain()
    assert await rows(database, WORKED) == [("generate", GENERATOR)]
    waiting = "SELECT DISTINCT token IS NULL AND not_before IS NULL FROM queue q JOIN calls c ON c.id = q.call_id"
    assert await rows(database, waiting + " WHERE c.role = 'judge'") == [(True,)]
    await worker(Lane.JUDGE, list(guards.values())).drain()  # a worker that reaches both
    assert await rows(database, WORKED) == [("generate", GENERATOR), ("judge", DEVICES_JUDGE)]


async def test_a_model_without_lease_is_asked_through_the_guard_that_registered_it(
    schedulers: list[Scheduler],
    settings: Settings,
    worker: Callable[[Lane, Sequence[str]], LaneWorker],
    database: Database,
) -> None:
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(
            chat_server(lambda seen: Reply(404) if seen.path == "/info" else answer("\\boxed{4}"))
        )
        far = Model(driver="remote", url=endpoint.url, device=GENERATOR)
        mixed = settings.model_copy(update={"models": {**settings.models, "a-generator": far}})
        apps = (create_app(settings_for_device(mixed, device)) for device in (DEVICES_JUDGE, GENERATOR))
        urls = [await stack.enter_async_context(serve_app(app)) for app in apps]
        await submit_job(database, "closed-book")
        await worker(Lane.GENERATE, urls).drain()
        await look(schedulers)
    assert await rows(database, WORKED) == [("generate", GENERATOR)]
    assert await rows(
        database, "SELECT DISTINCT epoch FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'generate'"
    ) == [(None,)]
    assert await rows(database, "SELECT epoch FROM residencies") == []


@pytest.mark.usefixtures("guards")
async def test_a_drained_device_leaves_the_other_one_alone(
    schedulers: list[Scheduler], database: Database, redis: Redis
) -> None:
    await submit_job(database, "closed-book")
    await advance(database)
    await devices.drain_device(database, DEVICES_JUDGE, None, "test")
    await look(schedulers)
    held = await opened(database, redis, GENERATOR)
    await look(schedulers)
    assert await rows(database, "SELECT device, epoch FROM residencies") == [(GENERATOR, held.epoch)]


@pytest.mark.usefixtures("guards")
async def test_the_api_shows_every_device_by_its_own_guard(
    settings: Settings, schedulers: list[Scheduler], database: Database, redis: Redis, redis_url: str
) -> None:
    await submit_job(database, "closed-book")
    await advance(database)
    await look(schedulers)
    held = await opened(database, redis, GENERATOR)
    further = Device(id=GENERATOR, budget_mib=777, guard_url="http://second")
    addressed = settings.model_copy(update={"devices": (further,)})

    def other(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "guard":  # the first one's
            return httpx2.Response(503)
        return httpx2.Response(200, json={"state": "open", "epoch": held.epoch, "in_flight": 0})

    async with serving(database, redis_url, addressed) as api:
        api.other = other
        listed = {each["device"]: each for each in await api.get("/v1/gpus")}
        ready = {each["name"]: each for each in (await api.http.get("/readyz")).json()["checks"]}
        metrics = (await api.http.get("/metrics")).text
        chat = (await api.http.post("/v1/chat", json={"question": "2+3?", "wait_s": 0})).json()
    assert {device: each["memory"]["budget"] for device, each in listed.items()} == {
        DEVICES_JUDGE: 160,
        GENERATOR: 777,
    }
    assert {device: each["guard"]["epoch"] for device, each in listed.items()} == {
        DEVICES_JUDGE: None,
        GENERATOR: held.epoch,
    }
    assert [model["name"] for model in listed[GENERATOR]["models"]] == ["a-generator"]
    assert (ready["guard"]["ok"], ready[f"guard {GENERATOR}"]["ok"]) == (False, True)
    assert ready[f"device {GENERATOR}"]["detail"] == f"{GENERATOR}: open"
    assert 'mathrag_service_up{service="guard"} 0.0' in metrics
    assert 'mathrag_service_up{service="guard-2"} 1.0' in metrics
    assert chat["price"]["loads"] == 0  # the generator is resident, on whatever device


@pytest.mark.usefixtures("guards")
async def test_the_price_of_a_question_counts_each_devices_loads_once(
    settings: Settings, database: Database, redis_url: str
) -> None:
    async with serving(database, redis_url, settings) as api:
        asked = {"question": "2+3?", "wait_s": 0, "pipeline": "mathrag-gate", "corpus": "docs", "params": JUDGED}
        chat = (await api.http.post("/v1/chat", json=asked)).json()
    assert chat["price"]["loads"] == 2


def test_every_probe_of_a_device_has_a_name_of_its_own(settings: Settings) -> None:
    names = [probe.name for probe in list_readiness_probes(settings)]
    assert len(set(names)) == len(names)
    assert {"guard", "device", f"guard {GENERATOR}", f"device {GENERATOR}"} <= set(names)


# The formula against llama.cpp itself: what more context takes in a process is the KV cache that was computed.

FOOTPRINTS_MEASURED_JUDGE = REPOSITORY / "models" / "world-judge-f16.gguf"
SLOTS = 8
SMALL, LARGE = 1024, 4096
"""Tokens of a slot."""


@asynccontextmanager
async def up(context: int) -> AsyncIterator[LlamaServer]:
    model = Model(driver="process", path=FOOTPRINTS_MEASURED_JUDGE, context=context, parallel=SLOTS)
    server = await ProcessDriver("judge", model, Device()).start()
    try:
        yield server
    finally:
        await server.stop()


def computed(context: int) -> AssumedMemory:
    return assume_memory(
        metadata.read_gguf_architecture(FOOTPRINTS_MEASURED_JUDGE), context=context, parallel=SLOTS, on_gpu=False
    )


async def test_more_context_takes_what_the_formula_says() -> None:
    async with up(SMALL) as small, up(LARGE) as large:
        less, more = small.memory_mib(), large.memory_mib()
    assert less is not None
    assert more is not None
    assert more - less == pytest.approx(computed(LARGE).kv_mib - computed(SMALL).kv_mib, rel=0.1)


async def test_a_process_takes_more_than_its_model() -> None:
    async with up(SMALL) as server:
        taken = server.memory_mib()
    assert taken is not None
    assert taken > computed(SMALL).total


# `/v1/gpus`: what rows, Redis and guard say of a device; drained and released in the middle of a job.

DEVICE = "cpu:0"


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 4)
    return empty_api


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


# What verified loads took is kept in rows: it widens, what is far begins it anew, and every flip teaches.

GPU = "GPU-1"
QWEN = Architecture(
    weights_bytes=4_683_074_240, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584, vocabulary=152_064,
    trained_context=32_768, name="qwen2",
)  # fmt: skip


async def register(
    database: Database, name: str = "generator", device: str = GPU, backend: str = "llama.cpp", declared: int = 0
) -> int:
    identity = ModelIdentity(
        name=name, backend=backend, digest=name, device=device, needs_lease=True, footprint_mib=declared,
        options={"context": 2048, "parallel": 8},
    )  # fmt: skip
    async with database.transaction() as connection:
        return await pins.register(connection, identity, QWEN)


async def load(
    database: Database, measured: dict[str, Any], *ids: int, device: str = GPU, driver: str = "1", **parallel: int
) -> list[str]:
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, device)
        plan = {"parallel": {name.removeprefix("model_"): slots for name, slots in parallel.items()}}
        epoch = await residencies.insert_wanted(connection, device, newest.epoch if newest else 0, ids, "test", plan)
        assert epoch is not None
        await residencies.record_figures(connection, epoch, measured)
        return await learned_memory.learn(connection, epoch, driver)


async def learned(database: Database, device: str = GPU) -> dict[int, dict[int, LearnedMemory]]:
    async with database.transaction() as connection:
        return await learned_memory.find_learned(connection, device)


async def test_a_registered_model_keeps_its_architecture(database: Database) -> None:
    model = await register(database)
    ((kept,),) = await rows(database, "SELECT architecture FROM models WHERE id = :id", id=model)
    assert kept["layers"] == 28  # type: ignore[index]
    identity = ModelIdentity(
        name="generator", backend="llama.cpp", digest="generator", device=GPU, needs_lease=True,
        options={"context": 2048, "parallel": 8},
    )  # fmt: skip
    async with database.transaction() as connection:
        assert await pins.register(connection, identity) == model
    assert await rows(database, "SELECT architecture FROM models WHERE id = :id", id=model) == [(None,)]


@pytest.mark.parametrize(("declared", "expected"), [(0, (6327, True)), (7000, (7000, False))])
async def test_a_footprint_that_is_not_declared_is_estimated(
    database: Database, declared: int, expected: tuple[int, bool]
) -> None:
    model = await register(database, declared=declared)
    assert await rows(database, "SELECT footprint_mib, estimated FROM models WHERE id = :id", id=model) == [expected]


async def test_a_model_that_tells_nothing_and_declares_nothing_counts_as_nothing(database: Database) -> None:
    identity = ModelIdentity(name="m", backend="scripted", digest="m", device=GPU, needs_lease=True)
    async with database.transaction() as connection:
        await pins.register(connection, identity)
    assert await rows(database, "SELECT footprint_mib, estimated FROM models") == [(0, False)]


async def test_loads_widen_the_band_of_their_slots(database: Database) -> None:
    model = await register(database)
    for mib in (6000, 6100, 5990):
        assert await load(database, {"loaded_mib": mib}, model) == []
    await load(database, {"loaded_mib": 5600}, model, **{f"model_{model}": 4})
    assert await learned(database) == {
        model: {
            8: LearnedMemory(least_mib=5990, most_mib=6100, loads=3),
            4: LearnedMemory(least_mib=5600, most_mib=5600, loads=1),
        }
    }


async def test_a_load_far_outside_is_reported_and_begins_anew(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    model = await register(database)
    for mib in (6000, 6100):
        await load(database, {"loaded_mib": mib}, model)
    with caplog.at_level(logging.WARNING):
        (said,) = await load(database, {"loaded_mib": 9000}, model)
    assert said == "generator took 9000 MiB, where 2 loads took 6000 to 6100 MiB; learning starts over from it"
    assert said in caplog.text
    ((kept,),) = await rows(database, "SELECT measured -> 'astray' FROM residencies ORDER BY epoch DESC LIMIT 1")
    assert kept == [said]
    assert (await learned(database))[model][8] == LearnedMemory(least_mib=9000, most_mib=9000, loads=1)


async def test_a_first_load_far_from_what_was_expected_is_reported(database: Database) -> None:
    model, declared = await register(database), await register(database, "other", declared=4000)
    (said,) = await load(database, {"loaded_mib": 12_000}, model)
    assert said.startswith("generator took 12000 MiB, where 6")
    assert said.endswith("were estimated")
    (said,) = await load(database, {"loaded_mib": 6000}, declared)
    assert said == "other took 6000 MiB, where 4000 were declared"
    assert (await learned(database))[model][8].most_mib == 12_000


async def test_of_several_at_once_the_device_tells_nothing_of_each(database: Database) -> None:
    ids = [await register(database), await register(database, "judge")]
    figures = {"loaded_mib": 8000, "memory_mib": {str(each): 300.0 for each in ids}}
    assert await load(database, figures, *ids) == []
    assert await learned(database) == {}


@pytest.mark.parametrize(("backend", "expected"), [("ollama", 5900.0), ("llama.cpp", None)])
async def test_where_the_device_is_not_measured_only_ollama_knows(
    database: Database, backend: str, expected: float | None
) -> None:
    model = await register(database, backend=backend)
    await load(database, {"memory_mib": {str(model): 5900.0}}, model)
    found = (await learned(database)).get(model, {}).get(8)
    assert (found.most_mib if found else None) == expected


async def test_on_a_cpu_the_process_is_measured_and_never_astray(database: Database) -> None:
    model = await register(database, device="cpu:0", declared=96)
    assert await load(database, {"memory_mib": {str(model): 44.2}}, model, device="cpu:0", driver="") == []
    found = (await learned(database, "cpu:0"))[model][8]
    assert found.most_mib == pytest.approx(44.2)


async def test_another_driver_learns_from_the_beginning(database: Database) -> None:
    model = await register(database)
    await load(database, {"loaded_mib": 6000}, model, driver="570.1")
    await load(database, {"loaded_mib": 6200}, model, driver="580.2")
    assert (await learned(database))[model][8] == LearnedMemory(least_mib=6200, most_mib=6200, loads=1)
    assert await rows(database, "SELECT count(*) FROM footprints") == [(2,)]


async def test_every_verified_flip_teaches(database: Database) -> None:
    rig = await ReconcilerRig(database).register()
    await rig.flip("judge")
    await rig.flip("generator")
    await rig.flip("judge")
    found = await learned(database, "cpu:0")
    assert {model: band for model, by_slots in found.items() for band in by_slots.values()} == {
        rig.ids["judge"]: LearnedMemory(least_mib=42, most_mib=42, loads=2),
        rig.ids["generator"]: LearnedMemory(least_mib=42, most_mib=42, loads=1),
    }
