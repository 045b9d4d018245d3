"""Bring the device to the wanted residency by carrying out the effects of the flip machine one after another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.guard.drivers.ports import Driver, DriverError, ModelServer, count_reloads, find_obstacle
from services.guard.guard import Guard, ServedModel
from services.guard.memory import MemoryMeter, NotMeasured, Sleep, Verification, make_meter
from shared.lease import learned_memory, policy, residencies
from shared.lease.lease import Phase
from shared.lease.policy import Effect, FlipEvent, FlipMachine, FlipState
from shared.lease.residencies import ResidencyRow
from shared.runtime import queue
from shared.settings import Device, Model
from shared.storage.database import Database, retry_through_outage
from shared.telemetry import logs, traces

_log = logging.getLogger(__name__)

MODELS = text("SELECT id, name, hash FROM models WHERE id = ANY(:ids)")
UNFINISHED = ("draining", "unloading", "loading", "open")
ENDED = (FlipState.CLOSED, FlipState.QUARANTINED)
OUTAGE_S = 5.0
"""How long a step waits for PostgreSQL before its flip is given up."""
Announce = Callable[[int, Phase, tuple[int, ...]], Awaitable[None]]


class ModelIdentityRow(NamedTuple):
    """A model as its row identifies it; the name is that of the settings."""

    name: str
    hash: bytes


class Reconciler:
    """Carries out the flips of one device. `announce` publishes the lease and, once it is open, ticks the lanes.

    `memory` is by default the meter that the device's settings select; `sleep` waits between its readings.
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
        memory: MemoryMeter | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._database = database
        self._guard = guard
        self._device = device
        self._models = models
        self._drivers = drivers
        self._announce = announce
        self._verification = Verification(
            memory or make_meter(device), device, guard.clock, self._record_figures, sleep
        )
        self._machine = FlipMachine()
        self._steps: dict[Effect, Callable[[], Awaitable[FlipEvent | None]]] = {
            Effect.DRAIN: self._drain, Effect.CANCEL: self._cancel, Effect.CLOSE: self._close_row,
            Effect.UNLOAD: self._unload, Effect.VERIFY_FREE: self._verify_free, Effect.LOAD: self._load,
            Effect.VERIFY_RESIDENT: self._verify_resident, Effect.OPEN: self._open,
            Effect.QUARANTINE: self._quarantine,
        }  # fmt: skip
        """What carries out each effect of the machine."""
        self._servers: dict[int, ModelServer] = {}
        self._registered: dict[int, ModelIdentityRow] = {}
        """The models that are resident or being loaded, by id."""
        self._current: ResidencyRow | None = None
        self._wanted: ResidencyRow | None = None
        self._reason: str | None = None

    @property
    def state(self) -> FlipState:
        """State of the flip machine."""
        return self._machine.state

    @property
    def current(self) -> ResidencyRow | None:
        """The open residency, or the last one that was open."""
        return self._current

    async def take_over(self) -> None:
        """Close the residencies that a dead guard left open, and free their memory.

        A quarantine is lifted: the operator who restarted the guard is assumed to have dealt with its reason.
        """
        await asyncio.gather(*(driver.take_over() for driver in self._drivers.values()))
        async with self._database.transaction() as connection:
            self._guard.clock.set(await residencies.read_clock(connection, self._device.id))
            for left in await residencies.find_unclosed(connection, self._device.id):
                await residencies.set_state(connection, left.epoch, "closed", self._guard.clock.now(), "guard_restart")
            await residencies.close_quarantined(connection, self._device.id)

    async def reconcile(self) -> None:
        """Flip if a newer residency is wanted; close the open one if a server has died or the device is lost."""
        if self._machine.state is FlipState.OPEN:
            # Flip out of the open residency if one of its servers has died or its memory cannot be measured.
            dead = {self._registered[model].name: server for model, server in self._servers.items() if not server.alive}
            if dead:
                _log.error("model servers died: %s", {name: server.exit_status for name, server in dead.items()})
                self._reason = "server_exit"
                await self._flip(FlipEvent.SERVER_EXIT, self._current)
            else:
                try:
                    await self._verification.sample()
                except NotMeasured as lost:
                    self._reason = str(lost)
                    await self._flip(FlipEvent.FAILED, self._current)
        async with self._database.transaction() as connection:
            newest = await residencies.find_newest(connection, self._device.id)
        if newest is not None and newest.state == "wanted":
            self._wanted = newest
            self._reason = None
            await self._flip(FlipEvent.WANTED, newest)
        elif newest is not None and newest.state in UNFINISHED and self._machine.state in ENDED:
            # The flip ended while PostgreSQL was away, so its row was not updated.
            await self._move(newest.epoch, "quarantined", self._reason or "the flip was interrupted")

    async def find_obstacle(self) -> str | None:
        """Find an obstacle to loading a quarantined device, without a load; None if none is found.

        A load may fail for other reasons as well.
        """
        wanted = self._require_wanted()
        try:
            registered = await self._find_models(wanted)
            for model in registered.values():
                await self._require_registered_model(model)
                if obstacle := await find_obstacle(self._drivers[model.name]):
                    return obstacle
            needed = self._find_needed_mib(wanted, registered)
            return await self._verification.find_shortage(needed) if registered else None
        except (DriverError, NotMeasured) as error:
            return str(error)

    async def close(self) -> None:
        """Close the residency and stop its servers."""
        self._guard.close()
        if self._machine.state is FlipState.OPEN:
            self._reason = "guard_stopped"
            await self._close_row()
        await self._unload()

    async def _flip(self, event: FlipEvent, residency: ResidencyRow | None) -> None:
        """Run the machine in its own trace, with one span per step."""
        fields = {"device": self._device.id, "epoch": residency.epoch if residency else None}
        cause = residency.cause if residency and event is FlipEvent.WANTED else self._reason
        attributes = {"mathrag.cause": cause, **{f"mathrag.{name}": value for name, value in fields.items()}}
        with logs.bind_in_block(**fields), traces.span(f"flip {event.value}", attributes, root=True) as span:
            await self._run_machine(event)
            if self._machine.state is FlipState.QUARANTINED:
                traces.fail(span, "quarantined")

    async def _run_machine(self, event: FlipEvent) -> None:
        """Feed the machine until it has no more effects."""
        pending: FlipEvent | None = event
        while pending is not None:
            effects, pending = self._machine.handle(pending), None
            for effect in effects:
                try:
                    with traces.span(effect.value):
                        pending = await self._steps[effect]() or pending
                except Exception as error:  # noqa: BLE001 - after any failure of a step, the device is quarantined with the reason
                    _log.exception("%s failed", effect.value)
                    self._reason = f"{effect.value}: {error}"
                    pending = FlipEvent.FAILED
                    break

    async def _drain(self) -> FlipEvent:
        self._guard.close()
        await self._report_phase("draining", Phase.DRAINING)
        try:
            await asyncio.wait_for(self._guard.wait_idle(), self._device.drain_timeout_s)
        except TimeoutError:
            return FlipEvent.DRAIN_TIMEOUT
        return FlipEvent.DRAINED

    async def _cancel(self) -> None:
        self._guard.close()
        await self._guard.cancel()

    async def _close_row(self) -> None:
        self._guard.close()
        if self._current is not None:
            # Record the loads that were not the guard's, by model: the loads of a job are those that took place.
            found = {str(model): await count_reloads(server) for model, server in self._servers.items()}
            if reloads := {model: count for model, count in found.items() if count}:
                await self._write(
                    partial(residencies.record_figures, epoch=self._current.epoch, figures={"reloads": reloads})
                )
            await self._move(self._current.epoch, "closed", self._reason)

    async def _unload(self) -> FlipEvent:
        if self._machine.state is FlipState.UNLOADING:
            await self._report_phase("unloading", Phase.LOADING)
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        return FlipEvent.UNLOADED

    async def _verify_free(self) -> FlipEvent:
        """Verify that the wanted models fit the budget and the free memory, and that no old server is alive."""
        wanted = self._require_wanted()
        registered = await self._find_models(wanted)
        needed = self._find_needed_mib(wanted, registered)
        if needed > self._device.models_mib:
            models = ", ".join(sorted(model.name for model in registered.values()))
            raise DriverError(f"{models} need {needed} MiB, the budget is {self._device.models_mib} MiB")
        await self._verification.verify_free(needed if registered else None, self._reclaim)
        if self._find_alive():
            await self._unload()
        if alive := self._find_alive():
            raise DriverError(f"model servers {', '.join(map(str, alive))} are still running after they were stopped")
        self._servers.clear()
        self._registered = registered
        return FlipEvent.FREE

    def _find_needed_mib(self, wanted: ResidencyRow, registered: Mapping[int, ModelIdentityRow]) -> int:
        """Return the memory of the wanted models as the plan estimates it, else as the settings declare it."""
        return wanted.memory_mib or sum(self._models[model.name].footprint_mib for model in registered.values())

    def _find_alive(self) -> list[str | int]:
        return [server.pid or self._registered[model].name for model, server in self._servers.items() if server.alive]

    async def _reclaim(self) -> None:
        """Stop the servers once more, and have every driver free leftovers of an earlier guard or stop."""
        await self._unload()
        await asyncio.gather(*(driver.take_over() for driver in self._drivers.values()))

    async def _load(self) -> FlipEvent:
        wanted = self._require_wanted()
        await self._move(wanted.epoch, "loading")
        for model in self._registered.values():  # before any load, which would be in vain
            await self._require_registered_model(model)
        for model_id, (name, _) in self._registered.items():
            began = self._guard.clock.now()
            with traces.span(f"load {name}", {"mathrag.model_id": model_id}):
                server = await self._drivers[name].start(wanted.parallel(model_id))
            self._servers[model_id] = server
            seconds = (self._guard.clock.now() - began).total_seconds()
            entry = {"model": model_id, "name": name, "pid": server.pid, "seconds": round(seconds, 3)}
            await self._write(partial(residencies.record_server, epoch=wanted.epoch, server=entry))
        return FlipEvent.LOADED

    async def _verify_resident(self) -> FlipEvent:
        """Verify that every server is alive and its model is still the registered one, then record its memory."""
        for model_id, server in self._servers.items():
            model = self._registered[model_id]
            await self._require_registered_model(model)
            if not server.alive:
                raise DriverError(f"the server of {model.name!r} died while it was loading")
        await self._record_figures(
            {"memory_mib": {str(model): server.memory_mib() for model, server in self._servers.items()}}
        )
        await self._verification.verify_resident()
        await self._write(
            partial(learned_memory.learn, epoch=self._require_wanted().epoch, driver=self._verification.driver)
        )
        return FlipEvent.RESIDENT

    async def _require_registered_model(self, model: ModelIdentityRow) -> None:
        """Verify that the model's driver would serve, or serves, the registered model.

        Raises:
            DriverError: it is another model now, or is not found.
        """
        identity = await self._drivers[model.name].identify()
        if identity.hash != model.hash:
            raise DriverError(f"model {identity.name!r} is not the one jobs were submitted with; restart the guard")

    async def _open(self) -> None:
        wanted = self._require_wanted()
        at = self._guard.clock.now()

        async def close_older(connection: AsyncConnection) -> None:
            """Close the rows of older residencies that ended while PostgreSQL was away."""
            for left in await residencies.find_unclosed(connection, self._device.id):
                if left.epoch < wanted.epoch:
                    await residencies.set_state(connection, left.epoch, "closed", at, "interrupted")

        await self._write(close_older)
        await self._move(wanted.epoch, "open")
        await self._write(partial(queue.end_outages, models=wanted.models))
        self._current, self._reason = wanted, None
        residents = {}
        for model_id, server in self._servers.items():
            name = self._registered[model_id].name
            model = self._models[name]
            slots = wanted.parallel(model_id) or model.parallel
            residents[model_id] = ServedModel(server, slots, model.call_timeout_s, name=name, driver=model.driver)
        self._guard.open(wanted.epoch, residents)
        await self._announce(wanted.epoch, Phase.OPEN, wanted.models)

    async def _quarantine(self) -> None:
        wanted = self._require_wanted()
        if self._current is not None and self._current.epoch != wanted.epoch:
            await self._move(self._current.epoch, "closed", self._reason)
        await self._report_phase("quarantined", Phase.QUARANTINED)
        device, reason = self._device.id, self._reason or "it was interrupted"

        async def note_outage(connection: AsyncConnection) -> None:
            """Record that the models could not be loaded: their calls wait until the device is tried again."""
            rest_s = policy.retry_wait_s(await residencies.count_failures(connection, device))
            await queue.note_outage(connection, wanted.models, f"device {device}", reason, rest_s)

        await self._write(note_outage)

    async def _record_figures(self, figures: Mapping[str, object]) -> None:
        await self._write(partial(residencies.record_figures, epoch=self._require_wanted().epoch, figures=figures))

    def _require_wanted(self) -> ResidencyRow:
        if self._wanted is None:
            raise RuntimeError("the orchestrator has not ordered a residency")
        return self._wanted

    async def _report_phase(self, state: str, phase: Phase) -> None:
        await self._move(self._require_wanted().epoch, state, self._reason)
        await self._announce(self._require_wanted().epoch, phase, ())

    async def _move(self, epoch: int, state: str, reason: str | None = None) -> None:
        at = self._guard.clock.now()
        await self._write(partial(residencies.set_state, epoch=epoch, state=state, at=at, reason=reason))

    async def _write(self, write: Callable[[AsyncConnection], Awaitable[object]]) -> None:
        """Commit a write, retrying up to `OUTAGE_S` while PostgreSQL is away: every write may be repeated."""

        async def once() -> None:
            async with self._database.transaction() as connection:
                await write(connection)

        await retry_through_outage(once, OUTAGE_S)

    async def _find_models(self, wanted: ResidencyRow) -> dict[int, ModelIdentityRow]:
        """Find the wanted models by id.

        Raises:
            DriverError: this guard does not serve one of them.
        """
        async with self._database.transaction() as connection:
            rows = (await connection.execute(MODELS, {"ids": list(wanted.models)})).all()
        unknown = [row.name for row in rows if row.name not in self._drivers]
        if unknown or len(rows) < len(wanted.models):
            raise DriverError(f"this guard does not serve {', '.join(unknown) or 'a wanted model'}; add it to `models`")
        return {row.id: ModelIdentityRow(row.name, row.hash) for row in rows}
