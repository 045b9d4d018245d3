"""The guard's HTTP service: `POST /run` streams completions, `GET /state` reports the state of the device."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import text

from mathrag.check import RESTART, Check, NotReady, advise_setting
from services.guard import ownership
from services.guard.drivers import ollama
from services.guard.drivers.launched import ExternalProgramDriver
from services.guard.drivers.plugin import PluginDriver, ScriptedDriver
from services.guard.drivers.ports import Driver, DriverError, ModelServer
from services.guard.drivers.process import ProcessDriver
from services.guard.drivers.remote import RemoteDriver
from services.guard.drivers.vllm_sleep import VllmSleepDriver
from services.guard.guard import Guard, ServedModel, StaleEpoch, Warmer
from services.guard.memory import GuardClock
from services.guard.reconciler import Reconciler
from shared import model_checks
from shared.access import filters
from shared.calls import Completion, Lane, RunRequest
from shared.lease.lease import RENEW_S, Phase, RedisLease
from shared.lease.policy import FlipState
from shared.model_checks import run_check
from shared.models import commands
from shared.queue import Ticker, celery_app
from shared.runtime import pins, queue
from shared.settings import Model, Settings
from shared.shapes import Architecture
from shared.storage.database import Database
from shared.telemetry import traces

REGISTERED = text("""
    SELECT hash, digest, version FROM models WHERE name = :name AND device = :device AND served
    ORDER BY registered_at DESC LIMIT 1""")
CHANGED_FIX = f"put the old one back; or {RESTART} and submit again the jobs that wait for the old one"


async def check_model(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> Check:
    """Check for `mathrag doctor` whether a model is there, and is still the one that was registered."""
    described = _describe_model(name, settings, drivers, database)
    return await run_check(f"model {name}", described, fix=advise_setting(f"models.{name}"))


async def _describe_model(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> str:
    if name not in drivers:
        problem = f"model {name!r} is missing in the settings that the guard of {settings.device.id} runs with"
        raise NotReady(problem, fix=RESTART)
    summary = await model_checks.check_model(name, settings)
    try:
        now = await drivers[name].identify()
    except DriverError as error:
        raise NotReady(str(error)) from error
    async with database.transaction() as connection:
        values = {"name": name, "device": settings.device.id}
        registered = (await connection.execute(REGISTERED, values)).first()
    if registered is None:
        raise NotReady(
            "its server was found, but the model is not registered yet",
            fix="wait 5 s: the guard registers it by itself",
        )
    if registered.hash != now.hash:
        changed = _describe_difference(registered.digest, now.digest)
        changed = changed or _describe_difference(registered.version, now.version) or "its options differ"
        raise NotReady(f"its server reports another model than the registered one: {changed}", fix=CHANGED_FIX)
    return summary


def _describe_difference(before: str | None, now: str | None) -> str:
    return f"{(before or 'none')[:12]} then, {(now or 'none')[:12]} now" if before != now else ""


POLL_S = 0.1
"""Between two looks for a wanted residency."""
SOON_S = 0.02
"""The same while the device has just run out of calls, so that it stands idle for a shorter time before a flip."""
EXPECTED_S = 2.0
"""How long after its last call a flip is expected."""
RETRY_S = 5.0
"""Between two attempts to register the models that were not found."""
PROBE_S = 5.0
"""Seconds between two checks of a quarantined device."""
REGISTER_S = 10.0
"""How long a starting guard waits for its models; one that takes longer to identify is registered later."""
MAX_BODY = 64 << 20
"""Bytes of a chunk of calls, which holds prompts no longer than a model's context."""

_log = logging.getLogger(__name__)
_REQUEST = msgspec.json.Decoder(RunRequest)
_ENCODER = msgspec.json.Encoder()
router = APIRouter()
Identification = tuple[pins.ModelIdentity, Architecture | None]


class GuardService:
    """Assembles the parts of one guard process and runs their loops."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database_url, pinned=True)
        self.redis = Redis.from_url(settings.redis_url)
        self.lease = RedisLease(self.redis, settings.device.id)
        self.ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), self.redis)
        self.stopping = asyncio.Event()
        """Ends the loops even where a library swallows their cancellation."""
        self.guard = Guard(settings.device.id, GuardClock())
        self.drivers = {name: make_driver(name, model, settings) for name, model in settings.models.items()}
        self.absent: dict[str, str] = dict.fromkeys(settings.models, "")
        """Models that are not registered yet, each with the reason, which is empty while the model is identified."""
        self._identifications: dict[str, asyncio.Task[Identification]] = {}
        """By model, the task that identifies it."""
        self._change_watchers: dict[str, asyncio.Task[None]] = {}
        """By model that needs no lease, the task that waits until its server serves something else."""
        self.reconciler = Reconciler(
            self.database, self.guard, settings.device, settings.models, self.drivers, self.announce
        )
        self.warming = Warmer(self.database, self.guard, self.drivers)

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Own the device and serve it inside the block."""
        with ownership.own_on_host(self.settings):
            async with ownership.own_in_database(self.settings) as lock:
                await self.start()
                endless = (
                    self.reconcile_for_ever, self.probe_for_ever, self.renew_for_ever, self.register_for_ever,
                    self.warm_for_ever,
                )  # fmt: skip
                loops = [asyncio.create_task(loop()) for loop in endless]
                loops.append(asyncio.create_task(_stop_when_lost(lock)))
                yield
                await self.stop_loops(loops)
                await self.stop()

    async def start(self) -> None:
        """Register exactly the configured models and close the residencies that a dead guard left open."""
        async with self.database.transaction() as connection:
            await pins.retire(connection, self.settings.device.id)
        await self._register(REGISTER_S)
        await self.reconciler.take_over()

    async def register_for_ever(self) -> None:
        """Register the absent models once they appear, as after a pull or the start of their server."""
        while not self.stopping.is_set():
            await self._pause(RETRY_S)
            try:
                await self._register(RETRY_S)
            except Exception:  # noqa: BLE001 - as below
                _log.exception("registering failed; trying again")

    async def _register(self, within_s: float) -> None:
        """Register the absent models that are identified within `within_s`, in the order of the settings.

        A slower identification continues and is used by the next call.
        """
        for name in self.absent:
            if name not in self._identifications:
                self._identifications[name] = asyncio.create_task(_identify(self.drivers[name]))
        if self._identifications:
            await asyncio.wait(self._identifications.values(), timeout=within_s)
        for name, look in tuple(self._identifications.items()):
            if look.done():
                await self._finish_identification(name)

    async def _finish_identification(self, name: str) -> None:
        """Register the identified model, or log once why it could not be identified."""
        try:
            identity, architecture = self._identifications.pop(name).result()
        except DriverError as error:
            if self.absent[name] != str(error):
                _log.warning("model not registered, trying again until it is found: %s", error)
                async with self.database.transaction() as connection:
                    await pins.retire(connection, self.settings.device.id, name)
            self.absent[name] = str(error)
            return
        async with self.database.transaction() as connection:
            await pins.retire(connection, self.settings.device.id, name)
            model_id = await pins.register(connection, identity, architecture)
        if flaw := commands.find_warning(identity.backend, identity.version):
            _log.warning("model %r: %s", name, flaw)
        if not identity.needs_lease:
            model, server = self.settings.models[name], await self.drivers[name].start()
            resident = ServedModel(server, model.parallel, model.call_timeout_s, name=name, driver=model.driver)
            self.guard.serve_remote(model_id, resident)
            self._change_watchers[name] = asyncio.create_task(self._reidentify_on_change(name, server))
        del self.absent[name]

    async def _reidentify_on_change(self, name: str, server: ModelServer) -> None:
        """Wait until the model's server serves something else, then have the model identified again."""
        await server.wait_exited()
        await server.stop()
        self.absent[name] = ""

    async def reconcile_for_ever(self) -> None:
        """Bring the device to the wanted residency, again and again; outages of the database are waited out."""
        while not self.stopping.is_set():
            try:
                await self.reconciler.reconcile()
            except Exception:  # noqa: BLE001 - the loop must outlive every outage; the calls' epoch check does not depend on it
                _log.exception("reconciling failed; trying again")
                await self._pause(1)
            await self._pause(SOON_S if 0 < self.guard.idle_s < EXPECTED_S else POLL_S)

    async def probe_for_ever(self) -> None:
        """Have a quarantined device tried again at once when an obstacle that was seen is gone.

        Loads keep their growing pauses: an obstacle that cannot be seen without one shortens none of them.
        """
        seen: str | None = None
        while not self.stopping.is_set():
            await self._pause(PROBE_S)
            try:
                # The obstacle that is seen, or was while a flip is on its way; request a retry if it is gone.
                if self.reconciler.state is FlipState.OPEN:
                    seen = None
                elif self.reconciler.state is FlipState.QUARANTINED:
                    obstacle = await self.reconciler.find_obstacle()
                    if seen and not obstacle and await queue.retry_device(self.database, self.lease, self.guard.device):
                        _log.info("the device is tried again at once, since this is over: %s", seen)
                    seen = obstacle
            except Exception:  # noqa: BLE001 - as above
                _log.exception("the check of the quarantined device failed; trying again")

    async def warm_for_ever(self) -> None:
        """Read the files of the next model into the page cache while the device works."""
        while not self.stopping.is_set():
            try:
                await self.warming.poll()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("looking for the next model failed; trying again")
                await self._pause(1)
            await self._pause(POLL_S)
        await self.warming.stop()

    async def renew_for_ever(self) -> None:
        """Renew the lease, which also restores it after Redis has lost it."""
        while not self.stopping.is_set():
            current = self.reconciler.current
            if self.reconciler.state is FlipState.OPEN and current is not None and self.guard.epoch:
                with suppress(RedisError):
                    await self.lease.publish(current.epoch, Phase.OPEN, current.models)
            await self._pause(RENEW_S)

    async def stop_loops(self, loops: list["asyncio.Task[Any]"]) -> None:
        """Stop the loops with the flag and with repeated cancellations, since a library may swallow a single one."""
        self.stopping.set()
        loops += [*self._identifications.values(), *self._change_watchers.values()]
        while pending := [loop for loop in loops if not loop.done()]:
            for loop in pending:
                loop.cancel()
            await asyncio.wait(pending, timeout=1)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def announce(self, epoch: int, phase: Phase, model_ids: tuple[int, ...]) -> None:
        """Publish the lease, and wake the workers once it is open."""
        try:
            await self.lease.publish(epoch, phase, model_ids)
        except RedisError as error:
            _log.warning("lease not published, the next renewal repeats it: %s", error)
        if phase is Phase.OPEN:
            for lane in Lane:
                await self.ticker.tick(lane)

    async def stop(self) -> None:
        """Close the residency and every connection."""
        await self.reconciler.close()
        await self.redis.aclose()
        await self.database.close()


async def _identify(driver: Driver) -> Identification:
    return await driver.identify(), await driver.architecture()


def make_driver(name: str, model: Model, settings: Settings) -> Driver:
    """Return the driver that the model's configuration selects."""
    match model.driver:
        case "process" if model.server == "embedded":
            return ProcessDriver(name, model, settings.device)
        case "process":
            return ExternalProgramDriver(name, model, settings.device, str(ownership.host_lock_path(settings)))
        case "vllm-sleep":
            return VllmSleepDriver(name, model, settings.device, str(ownership.host_lock_path(settings)))
        case "ollama":
            return ollama.OllamaDriver(name, model, settings.device, ollama.list_tags(settings.models))
        case "remote":
            return RemoteDriver(name, model, settings.device)
        case "plugin":
            return PluginDriver(name, model, settings)
        case "scripted":
            return ScriptedDriver(name, model, settings.device)


def create_app(settings: Settings) -> FastAPI:
    """Build the guard's application, which owns the device while it runs."""
    service = GuardService(settings)
    app = FastAPI(
        title="MathRAG-Gate guard", lifespan=service.lifespan, openapi_url=None, telemetry=traces.make_server_options()
    )
    app.state.service = service
    app.include_router(router)
    app.add_exception_handler(StaleEpoch, _answer_stale_epoch)
    filters.protect(app, settings, most=MAX_BODY)
    return app


@router.get("/healthz")
async def _answer_health() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/state")
async def _state(request: Request) -> dict[str, Any]:
    service: GuardService = request.app.state.service
    current = service.reconciler.current
    return {
        "device": service.settings.device.id,
        "state": service.reconciler.state.value,
        "epoch": service.guard.epoch,
        "models": list(current.models) if current and service.guard.epoch else [],
        "in_flight": service.guard.in_flight,
    }


@router.get("/checks/{name:path}")
async def _check(name: str, request: Request) -> Response:
    service: GuardService = request.app.state.service
    found = await check_model(name, service.settings, service.drivers, service.database)
    return Response(msgspec.json.encode(found), media_type="application/json")


@router.post("/run")
async def _run(request: Request) -> StreamingResponse:
    service: GuardService = request.app.state.service
    stream = service.guard.run(_REQUEST.decode(await request.body()))
    await anext(stream)  # admitted, or StaleEpoch before any byte goes out
    return StreamingResponse(_encode_lines(stream), media_type="application/x-ndjson")


async def _answer_stale_epoch(_request: Request, error: Exception) -> JSONResponse:
    problem = {"type": "urn:mathrag:stale-epoch", "title": "Stale epoch", "status": 409, "detail": str(error)}
    return JSONResponse(problem, status_code=409, media_type="application/problem+json")


async def _stop_when_lost(lock: ownership.DatabaseLock) -> None:
    """Stop this guard once another one holds the lock: two must never serve the same device."""
    await lock.keep()
    _log.critical("another guard has taken the device; this guard stops")
    signal.raise_signal(signal.SIGTERM)


async def _encode_lines(stream: AsyncIterator[list[Completion]]) -> AsyncIterator[bytes]:
    yield b"\n"  # headers and a first byte at once, so that a client that goes away is noticed
    async for completions in stream:
        yield _ENCODER.encode_lines(completions)
