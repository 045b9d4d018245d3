"""Whether a device is as free, and as full, as a flip claims: waited for, remedied once, and then said in MiB."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from services.guard import memory
from services.guard.clock import Clock
from services.guard.drivers.ports import DriverError
from services.guard.memory import Memory, Reading
from shared.device_settings import Device

LOOK_S = 0.2
LOOKS = 3
"""In a row that must find room: a driver frees in pieces, and a figure may be a moment old."""
SAMPLE_S = 2.0
"""Between two samples while a residency is open."""

Sleep = Callable[[float], Awaitable[None]]
Record = Callable[[Mapping[str, int]], Awaitable[None]]
"""Writes figures, in MiB, onto the row of the residency that is on its way or open."""

_log = logging.getLogger(__name__)


class Verification:
    """The memory of one device, against what its rows say of it. On a device that is not measured it finds nothing."""

    def __init__(
        self, memory: Memory, device: Device, clock: Clock, record: Record, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._memory = memory
        self._device = device
        self._clock = clock
        self._record = record
        self._sleep = sleep
        self._before: Reading | None = None
        """The last reading that was found free enough."""
        self._neighbours: frozenset[int] = frozenset()
        """Process ids on the device when its residency was verified: whoever comes later is a stranger."""
        self._most: dict[str, int] = {}
        """As it stands on the row."""
        self._due: datetime | None = None

    @property
    def driver(self) -> str:
        """The version of the driver that found the device free; empty where nothing is measured."""
        return self._before.driver if self._before else ""

    async def free(self, needed_mib: int | None, remedy: Callable[[], Awaitable[None]]) -> None:
        """Return when there is room for `needed_mib` (None: nothing is to come), if need be after one `remedy`.

        Raises:
            DriverError: how much is missing, who holds it, and what to do.
            NotMeasured: nobody can tell.
        """
        self._before = self._due = None
        self._most = {}
        if needed_mib is None or await self._in_the_way(needed_mib) is None:
            return
        await remedy()
        if reading := await self._memory.read():
            memory.kill(memory.ours(reading.processes))
        if (problem := await self._in_the_way(needed_mib)) is not None:
            raise DriverError(problem)

    async def resident(self) -> None:
        """Record what the load took; from now on samples are compared with it.

        Raises:
            DriverError: more than the budget.
            NotMeasured: nobody can tell.
        """
        if self._before is None or (reading := await self._memory.read()) is None:
            return
        budget, loaded = self._device.models_mib, round(reading.used - self._before.used)
        self._neighbours = frozenset(process.pid for process in reading.processes)
        most = {"peak_mib": loaded, "strangers_mib": 0}
        fixed = {"before_mib": round(self._before.used), "loaded_mib": loaded, "budget_mib": budget}
        await self._record({**fixed, **most})
        if loaded > budget:
            said = f"{loaded} MiB were loaded, the budget is {budget} MiB"
            raise DriverError(f"{said}; a smaller `context` or `parallel`, or a larger `device.budget_mib`")
        self._most, self._due = most, self._clock.now() + timedelta(seconds=SAMPLE_S)

    async def sample(self) -> None:
        """Every `SAMPLE_S`: the most that the residency holds, and that strangers do who came after it.

        Raises:
            NotMeasured: nobody can tell any more.
        """
        if self._before is None or self._due is None or (now := self._clock.now()) < self._due:
            return
        self._due = now + timedelta(seconds=SAMPLE_S)
        reading = await self._memory.read()
        if reading is None:
            return
        strangers = sum(process.mib for process in reading.processes if process.pid not in self._neighbours)
        found = {"peak_mib": reading.used - self._before.used - strangers, "strangers_mib": strangers}
        most = {name: max(round(found[name]), before) for name, before in self._most.items()}
        if most != self._most:
            if most["peak_mib"] > self._device.models_mib:
                _log.error("the models hold %d MiB, the budget is %d", most["peak_mib"], self._device.models_mib)
            await self._record(most)
            self._most = most

    async def _in_the_way(self, needed_mib: int) -> str | None:
        """None once some looks in a row found room; after the time limit, what the last one found instead."""
        problem: str | None = None
        found = looked = 0
        while found < LOOKS and (found or looked < max(1, self._device.free_timeout_s / LOOK_S)):
            if looked:
                await self._sleep(LOOK_S)
            reading = await self._memory.read()
            if reading is None:
                return None
            problem = self._problem(reading, needed_mib)
            found, looked = (0 if problem else found + 1), looked + 1
            self._before = reading
        return problem

    def _problem(self, reading: Reading, needed_mib: int) -> str | None:
        """Too little is free, or others hold what the budget promises to our models."""
        reserve, budget = self._device.reserve_mib, self._device.models_mib
        known = memory.ours(reading.processes)
        strangers = [process for process in reading.processes if process not in known]
        missing = needed_mib + reserve - reading.free
        if missing > 0:
            said = f"{missing:.0f} MiB are missing: {reading.free:.0f} of {reading.total:.0f} are free"
            said = f"{said}, {needed_mib} and a reserve of {reserve} are needed"
        elif sum(process.mib for process in strangers) > max(reading.total - budget, reserve):
            said = f"others hold more than the {budget} MiB of `device.budget_mib` leave of {reading.total:.0f}"
        else:
            return None
        who = "; ".join(map(str, strangers)) or "the driver names no process"
        return f"{said}; {who}; end it (nvidia-smi), or restart the model server that kept it"
