"""The memory of a device, as the driver reports it, and its verification around a flip; and the guard's clock.

NVML counts every process, unlike the reports of model servers. Decisions rest on the figures of the device. Figures per
process go by process ids of the host, which are wrong or missing in containers: they only name the processes in
messages and let the guard kill its own children.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import psutil

from services.guard.drivers.ports import DriverError
from shared.settings import Device

MIB = 1 << 20


class DeviceProcess(NamedTuple):
    """A process that uses the device; `mib` is 0 if the driver does not tell."""

    pid: int
    name: str
    mib: float

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) holds {self.mib:.0f} MiB"


class MemoryReading(NamedTuple):
    """Holds a device's memory at one moment, in MiB."""

    total: float
    used: float
    free: float
    processes: tuple[DeviceProcess, ...] = ()
    driver: str = ""
    """Version of the driver, on which the memory of a load depends."""


class NotMeasured(Exception):
    """The memory of a device that is to be measured cannot be read, so nothing about it is verified."""


class MemoryMeter(Protocol):
    """Reads a device's memory."""

    async def read(self) -> MemoryReading | None:
        """Read the memory now; None on a device whose memory is declared.

        Raises:
            NotMeasured: the memory cannot be read; the message says why.
        """
        ...


class DeclaredMemory:
    """Memory that is not measured: a processor's, or that of a GPU with `memory: declared`."""

    async def read(self) -> None:
        """Return None."""


class NvmlMemory:
    """Reads the memory of the GPU with this UUID. NVML stays open, and is opened again after an error."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._handle: Any = None
        self._driver = ""

    async def read(self) -> MemoryReading:
        """Read the memory now.

        Raises:
            NotMeasured: no library, no driver, no such GPU, or it fell off the bus.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> MemoryReading:
        try:
            import pynvml
        except ImportError as error:
            raise self._make_error("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from error
        try:
            if self._handle is None:
                pynvml.nvmlInit()
                self._driver = str(pynvml.nvmlSystemGetDriverVersion())
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
            found = pynvml.nvmlDeviceGetMemoryInfo(self._handle)
        except pynvml.NVMLError as error:
            self._handle = None
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            raise self._make_error(f"NVML: {error} (see nvidia-smi)") from error
        processes = _read_processes(pynvml, self._handle)
        return MemoryReading(found.total / MIB, found.used / MIB, found.free / MIB, processes, self._driver)

    def _make_error(self, why: str) -> NotMeasured:
        return NotMeasured(f"the memory of {self._uuid} cannot be measured: {why}; or set `device.memory: declared`")


def make_meter(device: Device) -> MemoryMeter:
    """Return the meter that the device's settings select."""
    return NvmlMemory(device.id) if device.measured else DeclaredMemory()


def find_children(processes: Iterable[DeviceProcess]) -> tuple[DeviceProcess, ...]:
    """Return those that are descendants of this process."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    return tuple(process for process in processes if process.pid in children)


def kill(processes: Iterable[DeviceProcess]) -> None:
    """Send SIGKILL to all of them."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _read_processes(nvml: Any, handle: Any) -> tuple[DeviceProcess, ...]:
    """Read the processes that use the device; empty if the driver or the container does not tell."""
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # noqa: BLE001 - the library raises its own class where the driver is too old to tell
        return ()
    return tuple(DeviceProcess(each.pid, _read_name(nvml, each.pid), (each.usedGpuMemory or 0) / MIB) for each in found)


def _read_name(nvml: Any, pid: int) -> str:
    """Ask the driver for a process's name, since process ids of the host mean nothing in a container.

    Of a Python program the module is added, and nothing else of its command line, which may hold secrets.
    """
    try:
        path = str(nvml.nvmlSystemGetProcessName(pid))
    except nvml.NVMLError:
        return "a process"
    name = path.rpartition("/")[2]
    with suppress(psutil.Error):
        match psutil.Process(pid).cmdline():
            case [program, "-P", "-m", module, *_] | [program, "-m", module, *_] if program == path:
                return f"{name} -m {module}"
    return name


class GuardClock:
    """The database's time at the guard's start plus the monotonic time since; the host's time until it is set.

    It never goes back: neither a jump of the host's wall clock nor a restart on a host with a wrong clock can make a
    stamp earlier than an older one.
    """

    def __init__(self) -> None:
        self.set(datetime.now(UTC))

    def set(self, at: datetime) -> None:
        """Set the present time to `at`."""
        self._wall = at
        self._monotonic = time.monotonic()

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return self._wall + timedelta(seconds=time.monotonic() - self._monotonic)


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
    """Verifies that a device's memory is free before a load and within the budget after it, if it is measured."""

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
            DriverError: too little memory is free; the message says how much is missing, who holds it, and what to do.
            NotMeasured: the memory cannot be read.
        """
        self._before = self._due = None
        self._maxima = {}
        if needed_mib is None or await self._wait_for_room(needed_mib) is None:
            return
        await remedy()
        if reading := await self._memory.read():
            kill(find_children(reading.processes))
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
        """Record the memory of the load, as the base of later samples.

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
        known = find_children(reading.processes)
        strangers = [process for process in reading.processes if process not in known]
        missing = needed_mib + reserve - reading.free
        if missing > 0:
            problem = f"{missing:.0f} MiB are missing: {reading.free:.0f} of {reading.total:.0f} are free"
            problem = f"{problem}, but {needed_mib} and a reserve of {reserve} are needed"
        elif sum(process.mib for process in strangers) > max(reading.total - budget, reserve):
            problem = (
                f"other processes use memory that `device.budget_mib` ({budget} of {reading.total:.0f} MiB) reserves"
            )
        else:
            return None
        who = "; ".join(map(str, strangers)) or "the driver names no process"
        return f"{problem}; {who}; end the process (nvidia-smi), or restart the model server that holds the memory"
