"""The guard's HTTP face: `POST /run` streams completions, `GET /state` says what the device is doing."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.guard import checks, ownership
from services.guard.clock import Clock
from services.guard.drivers import ollama
from services.guard.drivers.launched import LaunchedDriver
from services.guard.drivers.ports import Driver, DriverError, Server
from services.guard.drivers.process import ProcessDriver
from services.guard.drivers.remote import RemoteDriver
from services.guard.drivers.scripted import ScriptedDriver
from services.guard.drivers.vllm_sleep import VllmSleepDriver
from services.guard.guard import Guard, Resident, StaleEpoch
from services.guard.reconciler import Reconciler
from services.guard.warming import Warming
from shared.access import internal
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Lane
from shared.contracts.guard import Completion, RunRequest
from shared.lease.flip import FlipState
from shared.lease.lease import RENEW_S, Phase, RedisLease
from shared.model_settings import Model
from shared.models import known_versions
from shared.queue import Ticker, celery_app
from shared.runtime import models
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces

LOOK_S = 0.1
ABSENT_S = 5.0
"""Between two tries to register what was not there."""
REGISTER_S = 10.0
"""So long a guard that starts waits for its models; one that takes longer to be identified is registered later."""
MAX_BODY = 64 << 20
"""Bytes of a chunk of calls: prompts are as long as contexts, and these are small."""

_log = logging.getLogger(__name__)
_REQUEST = msgspec.json.Decoder(RunRequest)
_ENCODER = msgspec.json.Encoder()
router = APIRouter()
Identified = tuple[models.ModelIdentity, Architecture | None]


class Service:
    """Everything that one guard process holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database_url, pinned=True)
        self.redis = Redis.from_url(settings.redis_url)
        self.lease = RedisLease(self.redis, settings.device.id)
        self.ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), self.redis)
        self.stopping = asyncio.Event()
        """Ends the loops even where a library swallows their cancellation."""
        self.guard = Guard(settings.device.id, Clock())
        self.drivers = {name: driver(name, model, settings) for name, model in settings.models.items()}
        self.absent: dict[str, str] = dict.fromkeys(settings.models, "")
        """Models that are not registered yet, and why; empty while it is being found out."""
        self._looks: dict[str, asyncio.Task[Identified]] = {}
        """By model, who finds out what it is."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        """By model that needs no lease, who waits for its server to serve something else."""
        self.reconciler = Reconciler(
            self.database, self.guard, settings.device, settings.models, self.drivers, self.announce
        )
        self.warming = Warming(self.database, self.guard, self.drivers)

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """Own the device and serve it inside the block."""
        with ownership.of_host(self.settings):
            async with ownership.of_database(self.settings) as lock:
                await self.start()
                endless = (self.reconcile_for_ever, self.renew_for_ever, self.register_for_ever, self.warm_for_ever)
                loops = [asyncio.create_task(loop()) for loop in endless]
                loops.append(asyncio.create_task(_end_without(lock)))
                yield
                await self.end(loops)
                await self.stop()

    async def start(self) -> None:
        """Register the configured models, and no others; close what a dead guard left."""
        async with self.database.transaction() as connection:
            await models.retire(connection, self.settings.device.id)
        await self._register(REGISTER_S)
        await self.reconciler.take_over()

    async def register_for_ever(self) -> None:
        """A model that was not there may have come since: a pull, a file, a server that starts after us."""
        while not self.stopping.is_set():
            await self._pause(ABSENT_S)
            try:
                await self._register(ABSENT_S)
            except Exception:  # noqa: BLE001 - as below
                _log.exception("registering failed; trying again")

    async def _register(self, within_s: float) -> None:
        """Register the absent models that are there, in the order of the settings; one that takes longer goes on."""
        for name in self.absent:
            if name not in self._looks:
                self._looks[name] = asyncio.create_task(self._identified(name))
        if self._looks:
            await asyncio.wait(self._looks.values(), timeout=within_s)
        for name, look in tuple(self._looks.items()):
            if look.done():
                await self._end_look(name)

    async def _end_look(self, name: str) -> None:
        """Register the model that was found, or say once why there is none."""
        try:
            identity, architecture = self._looks.pop(name).result()
        except DriverError as error:
            if self.absent[name] != str(error):
                _log.warning("model not registered until it is there: %s", error)
                async with self.database.transaction() as connection:
                    await models.retire(connection, self.settings.device.id, name)
            self.absent[name] = str(error)
            return
        async with self.database.transaction() as connection:
            await models.retire(connection, self.settings.device.id, name)
            model_id = await models.register(connection, identity, architecture)
        if flaw := known_versions.warning(identity.backend, identity.version):
            _log.warning("model %r: %s", name, flaw)
        if not identity.needs_lease:
            model, server = self.settings.models[name], await self.drivers[name].start()
            resident = Resident(server, model.parallel, model.call_timeout_s, name=name, driver=model.driver)
            self.guard.serve_remote(model_id, resident)
            self._watches[name] = asyncio.create_task(self._lose(name, server))
        del self.absent[name]

    async def _lose(self, name: str, server: Server) -> None:
        """Have a model identified anew once its server serves something else."""
        await server.exited()
        await server.stop()
        self.absent[name] = ""

    async def _identified(self, name: str) -> Identified:
        return await self.drivers[name].identify(), await self.drivers[name].architecture()

    async def reconcile_for_ever(self) -> None:
        """Look for wanted residencies; a database that is away is waited for."""
        while not self.stopping.is_set():
            try:
                await self.reconciler.reconcile()
            except Exception:  # noqa: BLE001 - the loop must outlive every outage; the calls' epoch check does not depend on it
                _log.exception("reconciling failed; trying again")
                await self._pause(1)
            await self._pause(LOOK_S)

    async def warm_for_ever(self) -> None:
        """Read the next model ahead while the device works."""
        while not self.stopping.is_set():
            try:
                await self.warming.look()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("looking for the next model failed; trying again")
                await self._pause(1)
            await self._pause(LOOK_S)
        await self.warming.stop()

    async def renew_for_ever(self) -> None:
        """Keep the lease alive, and write it again after Redis has lost it."""
        while not self.stopping.is_set():
            current = self.reconciler.current
            if self.reconciler.state is FlipState.OPEN and current is not None and self.guard.epoch:
                with suppress(RedisError):
                    await self.lease.publish(current.epoch, Phase.OPEN, current.models)
            await self._pause(RENEW_S)

    async def end(self, loops: list["asyncio.Task[Any]"]) -> None:
        """Stop the loops: by the flag, and by cancellations, one of which alone may be swallowed on its way."""
        self.stopping.set()
        loops += [*self._looks.values(), *self._watches.values()]
        while pending := [loop for loop in loops if not loop.done()]:
            for loop in pending:
                loop.cancel()
            await asyncio.wait(pending, timeout=1)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def announce(self, epoch: int, phase: Phase, model_ids: tuple[int, ...]) -> None:
        """Publish the lease; an open one wakes the workers."""
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


def driver(name: str, model: Model, settings: Settings) -> Driver:
    """The driver that a model's configuration asks for."""
    match model.driver:
        case "process" if model.server == "embedded":
            return ProcessDriver(name, model, settings.device)
        case "process":
            return LaunchedDriver(name, model, settings.device, str(ownership.lock_of_host(settings)))
        case "vllm-sleep":
            return VllmSleepDriver(name, model, settings.device, str(ownership.lock_of_host(settings)))
        case "ollama":
            return ollama.OllamaDriver(name, model, settings.device, ollama.tags(settings.models))
        case "remote":
            return RemoteDriver(name, model, settings.device)
        case "scripted":
            return ScriptedDriver(name, model, settings.device)


def create_app(settings: Settings) -> FastAPI:
    """The guard's application; it owns the device while it lives."""
    service = Service(settings)
    app = FastAPI(
        title="MathRAG-Gate guard", lifespan=service.running, openapi_url=None, telemetry=traces.server()
    )  # fmt: skip
    app.state.service = service
    app.include_router(router)
    app.add_exception_handler(StaleEpoch, _stale)
    internal.protect(app, settings, most=MAX_BODY)
    return app


@router.get("/healthz")
async def _healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/state")
async def _state(request: Request) -> dict[str, Any]:
    service: Service = request.app.state.service
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
    service: Service = request.app.state.service
    found = await checks.look(name, service.settings, service.drivers, service.database)
    return Response(msgspec.json.encode(found), media_type="application/json")


@router.post("/run")
async def _run(request: Request) -> StreamingResponse:
    service: Service = request.app.state.service
    stream = service.guard.run(_REQUEST.decode(await request.body()))
    await anext(stream)  # admitted, or StaleEpoch before any byte goes out
    return StreamingResponse(_lines(stream), media_type="application/x-ndjson")


async def _stale(_request: Request, error: Exception) -> JSONResponse:
    problem = {"type": "urn:mathrag:stale-epoch", "title": "Stale epoch", "status": 409, "detail": str(error)}
    return JSONResponse(problem, status_code=409, media_type="application/problem+json")


async def _end_without(lock: ownership.DatabaseLock) -> None:
    """A guard that has lost its device must not go on beside the one that has it."""
    await lock.keep()
    _log.critical("another guard has taken the device; this one ends")
    signal.raise_signal(signal.SIGTERM)


async def _lines(stream: AsyncIterator[list[Completion]]) -> AsyncIterator[bytes]:
    yield b"\n"  # headers and a first byte at once, so that a client that goes away is noticed
    async for completions in stream:
        yield _ENCODER.encode_lines(completions)
