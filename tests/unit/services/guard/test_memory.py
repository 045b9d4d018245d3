"""Memory as NVML tells it: the real reading code on a stand-in of the library, which reads a GPU from a file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.guard import memory
from services.guard.memory import DeclaredMemory, DeviceProcess, MemoryReading, NotMeasured, NvmlMemory, make_meter
from shared.settings import Device
from tests.doubles.gpu import STAND_IN, STRANGER, Gpu

pytestmark = pytest.mark.anyio

UUID = "GPU-8f9c"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu(tmp_path / "gpu.json", UUID)
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setitem(os.environ, "NVML_STAND_IN", str(tmp_path / "gpu.json"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return made


async def test_a_reading_is_the_devices_and_names_who_is_there(gpu: Gpu) -> None:
    gpu.take(3072)
    found = await NvmlMemory(UUID).read()
    assert found == MemoryReading(4096, 3272, 824, (DeviceProcess(STRANGER, "somebody", 3072),), "0.0 (stand-in)")
    assert str(found.processes[0]) == f"somebody (pid {STRANGER}) holds 3072 MiB"


@pytest.fixture
def python_program() -> Iterator[int]:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", "secret", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        yield program.pid
        program.kill()


async def test_a_python_program_is_named_by_its_module_and_not_by_its_secrets(gpu: Gpu, python_program: int) -> None:
    gpu.show({python_program: (sys.executable, 100), STRANGER: (sys.executable, 200)})
    named = [process.name for process in (await NvmlMemory(UUID).read()).processes]
    python = Path(sys.executable).name
    assert named == [f"{python} -m http.server", python]


@pytest.mark.parametrize("error", ["Driver Not Loaded", "GPU is lost"])
async def test_a_gpu_that_cannot_be_read_is_an_error_with_its_reason_and_is_read_again_once_it_can(
    gpu: Gpu, error: str
) -> None:
    nvml = NvmlMemory(UUID)
    await nvml.read()
    gpu.hide(error)
    with pytest.raises(NotMeasured, match=rf"{UUID} cannot be measured: NVML: {error} .*nvidia-smi.*memory: declared"):
        await nvml.read()
    gpu.relieve()
    assert (await nvml.read()).free == 3896


async def test_the_library_stays_open_until_it_fails(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    opened: list[None] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: opened.append(None))
    nvml = NvmlMemory(UUID)
    for _ in range(3):
        await nvml.read()
    assert len(opened) == 1
    gpu.hide("Driver/library version mismatch")
    with pytest.raises(NotMeasured):
        await nvml.read()
    gpu.relieve()
    await nvml.read()
    assert len(opened) == 2


async def test_another_gpu_is_not_taken_for_it(gpu: Gpu) -> None:
    with pytest.raises(NotMeasured, match="GPU-other cannot be measured: NVML: Not Found"):
        await NvmlMemory("GPU-other").read()


async def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotMeasured, match="pip install nvidia-ml-py"):
        await NvmlMemory(UUID).read()


async def test_a_driver_that_does_not_tell_processes_still_tells_memory(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    def too_old(_: str) -> None:
        raise RuntimeError("the versions do not match")

    gpu.take(1000)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", too_old)
    found = await NvmlMemory(UUID).read()
    assert (found.used, found.processes) == (1200, ())


async def test_a_process_that_nobody_can_name_is_still_there(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def unknown(_: int) -> None:
        raise pynvml.NVMLError("Not Found")

    gpu.take(1000)
    monkeypatch.setattr(pynvml, "nvmlSystemGetProcessName", unknown)
    assert [each.name for each in (await NvmlMemory(UUID).read()).processes] == ["a process"]


@pytest.mark.parametrize(
    ("device", "measured"),
    [
        (Device(id="cpu:0"), False),
        (Device(id="gpu:0"), False),
        (Device(id="GPU-1"), True),
        (Device(id="MIG-1"), True),
        (Device(id="GPU-1", memory="declared"), False),
        (Device(id="gpu:0", memory="measured"), True),
    ],
)
async def test_a_gpu_named_by_its_uuid_is_measured_unless_its_operator_says_otherwise(
    device: Device, measured: bool
) -> None:
    assert isinstance(make_meter(device), NvmlMemory) is measured
    assert measured or await DeclaredMemory().read() is None


def test_only_children_are_ours_and_only_they_are_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        listed = [DeviceProcess(pid, "?", 0) for pid in (child.pid, os.getpid(), os.getppid(), STRANGER)]
        ours = memory.find_children(listed)
        child.kill()
    assert [each.pid for each in ours] == [child.pid]
    memory.kill(ours)  # gone already
