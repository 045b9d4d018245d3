"""What is taken on a device, as NVML tells it, which sees what every process holds: no model server's word is enough.

Figures are the device's. Those of single processes go by process ids of the host, which are wrong or missing in
containers: they name who is in the way, and decide nothing alone.
"""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import psutil

from shared.device_settings import Device

MIB = 1 << 20


class Process(NamedTuple):
    """Somebody who computes on the device; `mib` is 0 where the driver does not tell."""

    pid: int
    name: str
    mib: float

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) holds {self.mib:.0f} MiB"


class Reading(NamedTuple):
    """A device's memory at one moment, in MiB."""

    total: float
    used: float
    free: float
    processes: tuple[Process, ...] = ()
    driver: str = ""
    """Its version: with another one the same load takes something else."""


class NotMeasured(Exception):
    """A device that is to be measured cannot be: nothing about it may be called verified."""


class Memory(Protocol):
    """Where a device's memory is read."""

    async def read(self) -> Reading | None:
        """Now; None on a device whose memory is declared.

        Raises:
            NotMeasured: no figure can be had, and why.
        """
        ...


class Declared:
    """Memory that nobody measures: a processor's, or a GPU whose operator says so."""

    async def read(self) -> None:
        """Nothing is known."""


class Nvml:
    """A GPU, by its UUID. The library stays open between readings, and is opened anew after an error."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._handle: Any = None
        self._driver = ""

    async def read(self) -> Reading:
        """Now.

        Raises:
            NotMeasured: no library, no driver, no such GPU, or it fell off the bus.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> Reading:
        try:
            import pynvml
        except ImportError as error:
            raise self._lost("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from error
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
            raise self._lost(f"NVML: {error} (see nvidia-smi)") from error
        processes = _processes(pynvml, self._handle)
        return Reading(found.total / MIB, found.used / MIB, found.free / MIB, processes, self._driver)

    def _lost(self, why: str) -> NotMeasured:
        return NotMeasured(f"the memory of {self._uuid} cannot be measured: {why}; or set `device.memory: declared`")


def memory_of(device: Device) -> Memory:
    """How a device's memory is read, as its settings say."""
    return Nvml(device.id) if device.measured else Declared()


def ours(processes: Iterable[Process]) -> tuple[Process, ...]:
    """Those that are children of this process."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    return tuple(process for process in processes if process.pid in children)


def kill(processes: Iterable[Process]) -> None:
    """End them, whatever they do."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _processes(nvml: Any, handle: Any) -> tuple[Process, ...]:
    """Who computes there; nobody, where a driver or a container does not tell."""
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # noqa: BLE001 - the library raises a class of its own where the driver is too old to tell
        return ()
    return tuple(Process(each.pid, _name(nvml, each.pid), (each.usedGpuMemory or 0) / MIB) for each in found)


def _name(nvml: Any, pid: int) -> str:
    """As the driver knows it: a process id of the host says nothing in a container."""
    with suppress(nvml.NVMLError):
        return str(nvml.nvmlSystemGetProcessName(pid)).rpartition("/")[2]
    return "a process"
