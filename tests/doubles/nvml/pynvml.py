"""As much of nvidia-ml-py as we use, of the one GPU in the file that `NVML_STAND_IN` names (`tests.doubles.gpu`)."""
# ruff: noqa: N802 - the library's names

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


class NVMLError(Exception):
    """As the library's; its text is what NVML says."""


def nvmlInit() -> None:
    """Open it."""
    _gpu()


def nvmlShutdown() -> None:
    """Close it."""


def nvmlSystemGetDriverVersion() -> str:
    return "0.0 (stand-in)"


def nvmlDeviceGetCount() -> int:
    """Return 1: the stand-in has one device."""
    return 1


def nvmlDeviceGetHandleByIndex(_index: int) -> str:
    """Return the UUID of the only device."""
    return str(_gpu()["uuid"])


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    """The one, if it is asked for."""
    if uuid != _gpu()["uuid"]:
        raise NVMLError("Not Found")
    return uuid


def nvmlDeviceGetMemoryInfo(_handle: str) -> SimpleNamespace:
    """Return total, used and free memory in bytes."""
    gpu = _gpu()
    used = gpu["base"] + sum(held["mib"] for held in _list_held(gpu).values())
    return SimpleNamespace(total=gpu["total"] * MIB, used=used * MIB, free=(gpu["total"] - used) * MIB)


def nvmlDeviceGetComputeRunningProcesses(_handle: str) -> list[SimpleNamespace]:
    """Whoever holds something."""
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=held["mib"] * MIB) for pid, held in _list_held(_gpu()).items()]


def nvmlSystemGetProcessName(pid: int) -> str:
    """Return the command of a process that holds memory."""
    held = _list_held(_gpu()).get(str(pid))
    if held is None:
        raise NVMLError("Not Found")
    return str(held["name"])


def _list_held(gpu: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    return {pid: held for pid, held in gpu["held"].items() if held.get("until", now + 1) > now}


def _gpu() -> dict[str, Any]:
    gpu: dict[str, Any] = json.loads(Path(os.environ["NVML_STAND_IN"]).read_text())
    if gpu["error"]:
        raise NVMLError(gpu["error"])
    return gpu
