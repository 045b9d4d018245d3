"""Two devices in one database: real guards, schedulers and workers, each device on its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import httpx2
import pytest
from redis.asyncio import Redis

from services.guard import app as app_module
from services.guard.app import create_app
from services.orchestrator.probes import list_readiness_probes
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.audit import check
from shared.calls import Decoding, Lane, ModelCall
from shared.lease import residencies
from shared.lease.lease import DeviceLease, GuardClient, Guards, NotGranted, Phase, RedisLease
from shared.runtime.placement import settings_for_device
from shared.runtime.prompting import PromptExecutor
from shared.runtime.worker import LaneWorker
from shared.settings import Device, Model, Settings, Workers
from shared.storage import devices
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply, answer, chat_server
from tests.integration.api import serving
from tests.integration.scene import ScriptedExecutor, SilentTicker, advance, furnish, rows, submit_job

pytestmark = pytest.mark.anyio

JUDGE, GENERATOR = "cpu:0", "cpu:1"
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
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def schedulers(settings: Settings, database: Database, redis: Redis) -> list[Scheduler]:
    await furnish(database, items=6)
    return [Scheduler(settings_for_device(settings, device), database, redis) for device in (JUDGE, GENERATOR)]


@pytest.fixture
async def guards(
    schedulers: list[Scheduler], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    async with AsyncExitStack() as stack:
        yield {
            device: await stack.enter_async_context(serve_app(create_app(settings_for_device(settings, device))))
            for device in (JUDGE, GENERATOR)
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
    assert set(guards) == {JUDGE, GENERATOR}
    served_ = await rows(database, "SELECT name, device FROM models WHERE served AND needs_lease ORDER BY name")
    assert served_ == [("a-generator", GENERATOR), ("a-judge", JUDGE)]


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
        (JUDGE, "first"),
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
        (JUDGE, "first", "open"),
        (GENERATOR, "first", "open"),
    ]
    assert await rows(database, WORKED) == [("generate", GENERATOR), ("judge", JUDGE)]
    assert await check(database, job) == []


async def test_an_epoch_of_one_device_is_refused_by_the_other_ones_guard(
    guards: dict[str, str], schedulers: list[Scheduler], database: Database, redis: Redis
) -> None:
    await submit_job(database, "closed-book")
    await advance(database)
    await look(schedulers)
    held = await opened(database, redis, GENERATOR)
    call = ModelCall(id=1, model_id=held.models[0], prompt="1", decoding=Decoding(), seed=0)
    for device, answered in ((GENERATOR, 1), (JUDGE, 0)):
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
    await asyncio.gather(*(opened(database, redis, device) for device in (JUDGE, GENERATOR)))
    for lane in Lane:
        await worker(lane, urls).drain()
    assert await rows(database, WORKED) == [("generate", GENERATOR)]
    waiting = "SELECT DISTINCT token IS NULL AND not_before IS NULL FROM queue q JOIN calls c ON c.id = q.call_id"
    assert await rows(database, waiting + " WHERE c.role = 'judge'") == [(True,)]
    await worker(Lane.JUDGE, list(guards.values())).drain()  # a worker that reaches both
    assert await rows(database, WORKED) == [("generate", GENERATOR), ("judge", JUDGE)]


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
        apps = (create_app(settings_for_device(mixed, device)) for device in (JUDGE, GENERATOR))
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
    await devices.drain_device(database, JUDGE, None, "test")
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
    assert {device: each["memory"]["budget"] for device, each in listed.items()} == {JUDGE: 160, GENERATOR: 777}
    assert {device: each["guard"]["epoch"] for device, each in listed.items()} == {JUDGE: None, GENERATOR: held.epoch}
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
