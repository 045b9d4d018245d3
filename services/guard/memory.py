"""Device memory as NVML reports it, which counts every process, unlike the reports of model servers.

Decisions rest on the figures of the device. Figures per process go by process ids of the host, which are wrong or
missing in containers: they only name the processes in messages and let the guard kill its own children.
"""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import psutil

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
    except Exception:  # noqa: BLE001 - the library raises a class of its own where the driver is too old to tell
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
            case [program, "-m", module, *_] if program == path:
                return f"{name} -m {module}"
    return name
