"""Bring the device to the residency that is wanted: the flip machine's effects, carried out one after another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.guard.drivers.ports import Driver, DriverError, Server
from services.guard.guard import Guard, Resident
from services.guard.memory import Memory, NotMeasured, memory_of
from services.guard.verification import Sleep, Verification
from shared.device_settings import Device
from shared.lease import learned_memory, policy, residencies
from shared.lease.flip import Effect, Event, FlipMachine, FlipState
from shared.lease.lease import Phase
from shared.lease.residencies import Residency
from shared.model_settings import Model
from shared.runtime import outages
from shared.storage.database import Database
from shared.storage.outages import again
from shared.telemetry import logs, traces

_log = logging.getLogger(__name__)

MODELS = text("SELECT id, name, hash FROM models WHERE id = ANY(:ids)")
UNFINISHED = ("draining", "unloading", "loading", "open")
ENDED = (FlipState.CLOSED, FlipState.QUARANTINED)
OUTAGE_S = 5.0
"""So long a step waits for PostgreSQL before its flip is given up."""
Announce = Callable[[int, Phase, tuple[int, ...]], Awaitable[None]]


class Reconciler:
    """The flips of one device. `announce` publishes the lease and, once it is open, ticks the lanes.

    `memory` is by default what the device's settings say; `sleep` is what waiting for it takes.
    """

    def __init__(
        self,
        database: Database,
        guard: Guard,
        device: Device,
        models: Mapping[str, Model],
        drivers: Mapping[str, Driver],
        announce: Announce,
        *,
        memory: Memory | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._database = database
        self._guard = guard
        self._device = device
        self._models = models
        self._drivers = drivers
        self._announce = announce
        self._verification = Verification(memory or memory_of(device), device, guard.clock, self._measured, sleep)
        self._machine = FlipMachine()
        self._servers: dict[int, Server] = {}
        self._resident_names: dict[int, str] = {}
        self._hashes: dict[int, bytes] = {}
        self._current: Residency | None = None
        self._wanted: Residency | None = None
        self._reason: str | None = None

    @property
    def state(self) -> FlipState:
        """The machine's state."""
        return self._machine.state

    @property
    def current(self) -> Residency | None:
        """The residency that is open, or the last that was."""
        return self._current

    async def take_over(self) -> None:
        """Close what a dead guard left, free what did not die with it: its epoch must never be served again.

        Whoever restarts a guard has looked at why the device was quarantined: it is tried again.
        """
        await asyncio.gather(*(driver.take_over() for driver in self._drivers.values()))
        async with self._database.transaction() as connection:
            self._guard.clock.set(await residencies.time_of(connection, self._device.id))
            for left in await residencies.unclosed(connection, self._device.id):
                await residencies.move(connection, left.epoch, "closed", self._guard.clock.now(), "guard_restart")
            await residencies.forgive(connection, self._device.id)

    async def reconcile(self) -> None:
        """One look: flip if a newer residency is wanted, close if a server has died or the device is lost."""
        if self._machine.state is FlipState.OPEN:
            await self._look()
        async with self._database.transaction() as connection:
            newest = await residencies.newest(connection, self._device.id)
        if newest is not None and newest.state == "wanted":
            self._wanted = newest
            self._reason = None
            await self._flip(Event.WANTED, newest)
        elif newest is not None and newest.state in UNFINISHED and self._machine.state in ENDED:
            # The flip ended while the database could not be told.
            await self._move(newest.epoch, "quarantined", self._reason or "the flip was interrupted")

    async def _look(self) -> None:
        """While it is open: its servers live, and its memory can be measured."""
        dead = {self._resident_names[model]: server for model, server in self._servers.items() if not server.alive}
        if dead:
            _log.error("model servers died: %s", {name: server.exit_status for name, server in dead.items()})
            self._reason = "server_exit"
            await self._flip(Event.SERVER_EXIT, self._current)
            return
        try:
            await self._verification.sample()
        except NotMeasured as lost:
            self._reason = str(lost)
            await self._flip(Event.FAILED, self._current)

    async def close(self) -> None:
        """Shut down: close the residency and stop the servers."""
        self._guard.close()
        if self._machine.state is FlipState.OPEN:
            self._reason = "guard_stopped"
            await self._close_row()
        await self._unload()

    async def _flip(self, event: Event, residency: Residency | None) -> None:
        """Run the machine, as a trace of its own: a span a step, each with its time."""
        fields = {"device": self._device.id, "epoch": residency.epoch if residency else None}
        cause = residency.cause if residency and event is Event.WANTED else self._reason
        with (
            logs.bound(**fields),
            traces.span(
                f"flip {event.value}",
                {"mathrag.cause": cause, **{f"mathrag.{name}": value for name, value in fields.items()}},
                root=True,
            ) as span,
        ):
            await self._run(event)
            if self._machine.state is FlipState.QUARANTINED:
                traces.fail(span, "quarantined")

    async def _run(self, event: Event) -> None:
        """Feed the machine until it has no more effects."""
        pending: Event | None = event
        while pending is not None:
            effects, pending = self._machine.on(pending), None
            for effect in effects:
                try:
                    with traces.span(effect.value):
                        pending = await self._effect(effect) or pending
                except Exception as error:  # noqa: BLE001 - whatever fails in a step, the device ends in quarantine and says why
                    _log.exception("%s failed", effect.value)
                    self._reason = f"{effect.value}: {error}"
                    pending = Event.FAILED
                    break

    async def _effect(self, effect: Effect) -> Event | None:
        effects: dict[Effect, Callable[[], Awaitable[Event | None]]] = {
            Effect.DRAIN: self._drain,
            Effect.CANCEL: self._cancel,
            Effect.CLOSE: self._close_row,
            Effect.UNLOAD: self._unload,
            Effect.VERIFY_FREE: self._verify_free,
            Effect.LOAD: self._load,
            Effect.VERIFY_RESIDENT: self._verify_resident,
            Effect.OPEN: self._open,
            Effect.QUARANTINE: self._quarantine,
        }
        return await effects[effect]()

    async def _drain(self) -> Event:
        self._guard.close()
        await self._say("draining", Phase.DRAINING)
        try:
            await asyncio.wait_for(self._guard.idle(), self._device.drain_timeout_s)
        except TimeoutError:
            return Event.DRAIN_TIMEOUT
        return Event.DRAINED

    async def _cancel(self) -> None:
        self._guard.close()
        await self._guard.cancel()

    async def _close_row(self) -> None:
        self._guard.close()
        if self._current is not None:
            await self._move(self._current.epoch, "closed", self._reason)

    async def _unload(self) -> Event:
        if self._machine.state is FlipState.UNLOADING:
            await self._say("unloading", Phase.LOADING)
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        return Event.UNLOADED

    async def _verify_free(self) -> Event:
        """What comes must fit the budget and find room, and nothing that was started may still be alive."""
        wanted = self._want()
        names = await self._names(wanted)
        needed = wanted.memory_mib or sum(self._models[name].footprint_mib for name in names.values())
        if needed > self._device.models_mib:
            said = ", ".join(sorted(names.values()))
            raise DriverError(f"{said} need {needed} MiB, the budget is {self._device.models_mib} MiB")
        await self._verification.free(needed if names else None, self._reclaim)
        if self._alive():
            await self._unload()
        if alive := self._alive():
            raise DriverError(f"model servers {alive} are still alive after their stop")
        self._servers.clear()
        self._resident_names = names
        return Event.FREE

    def _alive(self) -> list[str | int]:
        return [server.pid or self._resident_names[model] for model, server in self._servers.items() if server.alive]

    async def _reclaim(self) -> None:
        """What was told to go and has not gone is told once more, and what nobody knows of any more as well."""
        await self._unload()
        await asyncio.gather(*(driver.take_over() for driver in self._drivers.values()))

    async def _load(self) -> Event:
        wanted = self._want()
        await self._move(wanted.epoch, "loading")
        for model_id, name in self._resident_names.items():
            began = self._guard.clock.now()
            with traces.span(f"load {name}", {"mathrag.model_id": model_id}):
                server = await self._drivers[name].start(wanted.parallel(model_id))
            self._servers[model_id] = server
            seconds = (self._guard.clock.now() - began).total_seconds()
            entry = {"model": model_id, "name": name, "pid": server.pid, "seconds": round(seconds, 3)}
            await self._write(partial(residencies.started, epoch=wanted.epoch, server=entry))
        return Event.LOADED

    async def _verify_resident(self) -> Event:
        """Every server is alive, and serves what its row says: a file that was replaced would be another model."""
        for model_id, server in self._servers.items():
            identity = await self._drivers[self._resident_names[model_id]].identify()
            if identity.hash != self._hashes[model_id]:
                raise DriverError(f"model {identity.name!r} is not the one jobs were submitted with; restart the guard")
            if not server.alive:
                raise DriverError(f"the server of {identity.name!r} died while it was loading")
        await self._measured(
            {"memory_mib": {str(model): server.memory_mib() for model, server in self._servers.items()}}
        )
        await self._verification.resident()
        await self._write(partial(learned_memory.learn, epoch=self._want().epoch, driver=self._verification.driver))
        return Event.RESIDENT

    async def _open(self) -> None:
        wanted = self._want()
        await self._close_older(wanted.epoch)
        await self._move(wanted.epoch, "open")
        await self._write(partial(outages.end, models=wanted.models))
        self._current, self._reason = wanted, None
        residents = {model_id: self._resident(model_id, server) for model_id, server in self._servers.items()}
        self._guard.open(wanted.epoch, residents)
        await self._announce(wanted.epoch, Phase.OPEN, wanted.models)

    def _resident(self, model_id: int, server: Server) -> Resident:
        name = self._resident_names[model_id]
        model = self._models[name]
        slots = self._want().parallel(model_id) or model.parallel
        return Resident(server, slots, model.call_timeout_s, name=name, driver=model.driver)

    async def _close_older(self, epoch: int) -> None:
        """A residency whose end the database could not be told must not stay open beside this one."""
        at = self._guard.clock.now()

        async def close(connection: AsyncConnection) -> None:
            for left in await residencies.unclosed(connection, self._device.id):
                if left.epoch < epoch:
                    await residencies.move(connection, left.epoch, "closed", at, "interrupted")

        await self._write(close)

    async def _quarantine(self) -> None:
        wanted = self._want()
        if self._current is not None and self._current.epoch != wanted.epoch:
            await self._move(self._current.epoch, "closed", self._reason)
        await self._say("quarantined", Phase.QUARANTINED)
        await self._write(self._note_outage)

    async def _note_outage(self, connection: AsyncConnection) -> None:
        """Calls of what could not be loaded wait until the device is tried again."""
        said = self._reason or "it was interrupted"
        rest_s = policy.rest_s(await residencies.failures(connection, self._device.id))
        await outages.note(connection, self._want().models, f"device {self._device.id}", said, rest_s)

    async def _measured(self, figures: Mapping[str, object]) -> None:
        await self._write(partial(residencies.measured, epoch=self._want().epoch, figures=figures))

    def _want(self) -> Residency:
        if self._wanted is None:
            raise RuntimeError("no residency is wanted")
        return self._wanted

    async def _say(self, state: str, phase: Phase) -> None:
        await self._move(self._want().epoch, state, self._reason)
        await self._announce(self._want().epoch, phase, ())

    async def _move(self, epoch: int, state: str, reason: str | None = None) -> None:
        at = self._guard.clock.now()
        await self._write(partial(residencies.move, epoch=epoch, state=state, at=at, reason=reason))

    async def _write(self, write: Callable[[AsyncConnection], Awaitable[object]]) -> None:
        """Commit what a step has to say. Twice is as good as once, so a moment without PostgreSQL ends no flip."""

        async def once() -> None:
            async with self._database.transaction() as connection:
                await write(connection)

        await again(once, OUTAGE_S)

    async def _names(self, wanted: Residency) -> dict[int, str]:
        """Names of the wanted models in this guard's configuration."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(MODELS, {"ids": list(wanted.models)})).all()
        unknown = [row.name for row in rows if row.name not in self._drivers]
        if unknown or len(rows) < len(wanted.models):
            raise DriverError(f"this guard does not serve {unknown or 'a wanted model'}; add it to `models`")
        self._hashes = {row.id: row.hash for row in rows}
        return {row.id: row.name for row in rows}
