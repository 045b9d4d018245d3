"""Verify a device's memory around a flip: free before the load, within the budget after it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from services.guard import memory
from services.guard.clock import GuardClock
from services.guard.drivers.ports import DriverError
from services.guard.memory import MemoryMeter, MemoryReading
from shared.settings import Device

POLL_S = 0.2
MIN_READINGS = 3
"""Readings in a row that must find room: a driver frees in pieces, and a figure may be a moment old."""
SAMPLE_S = 2.0
"""Between two samples while a residency is open."""

Sleep = Callable[[float], Awaitable[None]]
Record = Callable[[Mapping[str, int]], Awaitable[None]]
"""Writes figures in MiB onto the row of the residency that is loading or open."""

_log = logging.getLogger(__name__)


class Verification:
    """Compares the memory of one device with what its residencies may hold; does nothing if it is not measured."""

    def __init__(
        self, memory: MemoryMeter, device: Device, clock: GuardClock, record: Record, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._memory = memory
        self._device = device
        self._clock = clock
        self._record = record
        self._sleep = sleep
        self._before: MemoryReading | None = None
        """The last reading before the load."""
        self._neighbours: frozenset[int] = frozenset()
        """Process ids on the device when its residency was verified; processes that come later are strangers."""
        self._maxima: dict[str, int] = {}
        """The maxima that the row of the residency holds."""
        self._due: datetime | None = None

    @property
    def driver(self) -> str:
        """Version of the driver before the load; empty if nothing is measured."""
        return self._before.driver if self._before else ""

    async def verify_free(self, needed_mib: int | None, remedy: Callable[[], Awaitable[None]]) -> None:
        """Wait until there is room for `needed_mib` (None: nothing will be loaded), if need be after one `remedy`.

        Raises:
            DriverError: there is no room; the message says how much is missing, who holds it, and what to do.
            NotMeasured: the memory cannot be read.
        """
        self._before = self._due = None
        self._maxima = {}
        if needed_mib is None or await self._wait_for_room(needed_mib) is None:
            return
        await remedy()
        if reading := await self._memory.read():
            memory.kill(memory.find_children(reading.processes))
        if (problem := await self._wait_for_room(needed_mib)) is not None:
            raise DriverError(problem)

    async def find_shortage(self, needed_mib: int) -> str | None:
        """Return what one reading finds wrong with the free memory; None if there is room, or nothing is measured.

        Raises:
            NotMeasured: the memory cannot be read.
        """
        reading = await self._memory.read()
        return None if reading is None else self._find_problem(reading, needed_mib)

    async def verify_resident(self) -> None:
        """Record what the load took, as the base of later samples.

        Raises:
            DriverError: it took more than the budget.
            NotMeasured: the memory cannot be read.
        """
        if self._before is None or (reading := await self._memory.read()) is None:
            return
        budget, loaded = self._device.models_mib, round(reading.used - self._before.used)
        self._neighbours = frozenset(process.pid for process in reading.processes)
        most = {"peak_mib": loaded, "strangers_mib": 0}
        fixed = {"before_mib": round(self._before.used), "loaded_mib": loaded, "budget_mib": budget}
        await self._record({**fixed, **most})
        if loaded > budget:
            problem = f"{loaded} MiB were loaded, the budget is {budget} MiB"
            raise DriverError(f"{problem}; set a smaller `context` or `parallel`, or a larger `device.budget_mib`")
        self._maxima, self._due = most, self._clock.now() + timedelta(seconds=SAMPLE_S)

    async def sample(self) -> None:
        """Record, every `SAMPLE_S`, the maximum that the residency holds, and that later processes (strangers) hold.

        Raises:
            NotMeasured: the memory cannot be read any more.
        """
        if self._before is None or self._due is None or (now := self._clock.now()) < self._due:
            return
        self._due = now + timedelta(seconds=SAMPLE_S)
        reading = await self._memory.read()
        if reading is None:
            return
        strangers = sum(process.mib for process in reading.processes if process.pid not in self._neighbours)
        found = {"peak_mib": reading.used - self._before.used - strangers, "strangers_mib": strangers}
        most = {name: max(round(found[name]), before) for name, before in self._maxima.items()}
        if most != self._maxima:
            if most["peak_mib"] > self._device.models_mib:
                _log.error("the models hold %d MiB, the budget is %d", most["peak_mib"], self._device.models_mib)
            await self._record(most)
            self._maxima = most

    async def _wait_for_room(self, needed_mib: int) -> str | None:
        """Return None once `MIN_READINGS` in a row found room; after the time limit, the problem of the last one."""
        problem: str | None = None
        found = looked = 0
        while found < MIN_READINGS and (found or looked < max(1, self._device.free_timeout_s / POLL_S)):
            if looked:
                await self._sleep(POLL_S)
            reading = await self._memory.read()
            if reading is None:
                return None
            problem = self._find_problem(reading, needed_mib)
            found, looked = (0 if problem else found + 1), looked + 1
            self._before = reading
        return problem

    def _find_problem(self, reading: MemoryReading, needed_mib: int) -> str | None:
        """Describe the problem if too little is free, or if others hold memory that the budget grants to our models."""
        reserve, budget = self._device.reserve_mib, self._device.models_mib
        known = memory.find_children(reading.processes)
        strangers = [process for process in reading.processes if process not in known]
        missing = needed_mib + reserve - reading.free
        if missing > 0:
            problem = f"{missing:.0f} MiB are missing: {reading.free:.0f} of {reading.total:.0f} are free"
            problem = f"{problem}, {needed_mib} and a reserve of {reserve} are needed"
        elif sum(process.mib for process in strangers) > max(reading.total - budget, reserve):
            problem = f"others hold more than the {budget} MiB of `device.budget_mib` leave of {reading.total:.0f}"
        else:
            return None
        who = "; ".join(map(str, strangers)) or "the driver names no process"
        return f"{problem}; {who}; end the process (nvidia-smi), or restart the model server that holds the memory"
