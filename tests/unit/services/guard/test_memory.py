"""What the guard knows of its device: memory, processes, and the time."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from services.guard import memory
from services.guard.drivers.ports import DriverError
from services.guard.memory import (
    MIN_READINGS,
    POLL_S,
    DeclaredMemory,
    DeviceProcess,
    MemoryReading,
    NotMeasured,
    NvmlMemory,
    Verification,
    make_meter,
)
from shared.settings import Device
from tests.doubles.gpu import STAND_IN, STRANGER, Gpu
from tests.doubles.puppets import StepClock

# Memory as NVML tells it: the real reading code on a stand-in of the library, which reads a GPU from a file.


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


# Verification of memory, on readings that a test writes down: what is waited for, what is remedied, what is said.

TOTAL = 4096
DEVICE = Device(id="GPU-1", budget_mib=3000, reserve_mib=200, free_timeout_s=2.0)
SOMEBODY = DeviceProcess(6_000_000, "somebody", 3000)


def full(used: float, *processes: DeviceProcess) -> MemoryReading:
    return MemoryReading(TOTAL, used, TOTAL - used, processes, "570.1")


class Scripted:
    def __init__(self, *readings: MemoryReading | Exception | None) -> None:
        self.readings = list(readings)
        self.reads = 0

    async def read(self) -> MemoryReading | None:
        self.reads += 1
        found = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(found, Exception):
            raise found
        return found


class Bench:
    def __init__(self, *readings: MemoryReading | Exception | None, device: Device = DEVICE) -> None:
        self.memory = Scripted(*readings)
        self.slept = 0.0
        self.remedies = 0
        self.after_remedy: list[MemoryReading] = []
        self.row: dict[str, int] = {}
        self.writes = 0
        self.verification = Verification(self.memory, device, StepClock(), self._record, self._sleep)  # type: ignore[arg-type]

    async def _sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def _record(self, figures: object) -> None:
        self.row |= figures  # type: ignore[operator]
        self.writes += 1

    async def _remedy(self) -> None:
        self.remedies += 1
        if self.after_remedy:
            self.memory.readings = list(self.after_remedy)

    async def free(self, needed: int | None) -> None:
        await self.verification.verify_free(needed, self._remedy)

    async def opened(self, *later: MemoryReading | Exception) -> None:
        self.memory.readings = [full(300)]
        await self.free(1000)
        self.memory.readings = [full(1300)]
        await self.verification.verify_resident()
        self.memory.readings = list(later) or [full(1300)]

    async def sampled(self, times: int = 1) -> None:
        reads = self.memory.reads
        while self.memory.reads < reads + times:
            await self.verification.sample()


async def test_room_is_found_by_three_looks_in_a_row() -> None:
    bench = Bench(full(300))
    await bench.free(3000)
    assert (bench.memory.reads, bench.remedies) == (MIN_READINGS, 0)
    assert bench.slept == pytest.approx((MIN_READINGS - 1) * POLL_S)


async def test_a_figure_that_changes_back_is_not_believed() -> None:
    bench = Bench(full(300), full(300), full(2000), full(300))
    await bench.free(3000)
    assert bench.memory.reads == 3 + MIN_READINGS


async def test_memory_that_lags_is_waited_for_without_a_remedy() -> None:
    bench = Bench(*[full(3300)] * 6, full(300))
    await bench.free(3000)
    assert (bench.memory.reads, bench.remedies) == (6 + MIN_READINGS, 0)


async def test_room_that_comes_at_the_last_look_is_looked_at_to_the_end() -> None:
    looks = round(DEVICE.free_timeout_s / POLL_S)
    bench = Bench(*[full(3300)] * (looks - 1), full(300))
    await bench.free(3000)
    assert (bench.memory.reads, bench.remedies) == (looks - 1 + MIN_READINGS, 0)


async def test_memory_that_does_not_come_back_is_remedied_once() -> None:
    bench = Bench(full(3300))
    bench.after_remedy = [full(300)]
    await bench.free(3000)
    assert bench.remedies == 1


async def test_a_child_that_stays_on_the_device_is_killed_after_the_remedy() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(3600)")
    bench = Bench(full(3300, DeviceProcess(child.pid, "vllm", 3000), SOMEBODY._replace(mib=0)))
    try:
        with pytest.raises(DriverError, match="1904 MiB are missing"):
            await bench.free(2500)
        with anyio.fail_after(60):
            assert await child.wait() == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            child.kill()


async def test_what_is_missing_is_said_in_mib_with_who_holds_it_and_what_to_do() -> None:
    bench = Bench(full(3300, SOMEBODY))
    with pytest.raises(DriverError) as caught:
        await bench.free(2500)
    said = str(caught.value)
    for part in ("1904 MiB are missing", "796 of 4096 are free", "2500 and a reserve of 200", "somebody (pid 6000000)"):
        assert part in said
    assert "nvidia-smi" in said
    assert bench.remedies == 1
    assert bench.slept == pytest.approx(2 * (DEVICE.free_timeout_s - POLL_S))


async def test_memory_that_nobody_admits_to_is_said_as_well() -> None:
    with pytest.raises(DriverError, match="names no process"):
        await Bench(full(3300)).free(2500)


@pytest.mark.parametrize(("held", "fits"), [(1000, True), (1200, False)])
async def test_others_may_hold_what_the_budget_leaves_and_no_more(held: float, fits: bool) -> None:
    bench = Bench(full(200 + held, SOMEBODY._replace(mib=held)))
    if fits:
        await bench.free(500)
        return
    with pytest.raises(
        DriverError, match=r"other processes use memory that `device.budget_mib` .3000 of 4096 MiB. reserves"
    ):
        await bench.free(500)


async def test_a_device_that_is_only_emptied_is_asked_for_nothing() -> None:
    bench = Bench(full(4000, SOMEBODY))
    await bench.free(None)
    assert bench.memory.reads == 0


async def test_a_declared_device_is_believed_at_once() -> None:
    bench = Bench(None)
    await bench.free(9999)
    await bench.verification.verify_resident()
    await bench.verification.sample()
    assert (bench.row, bench.slept, bench.verification.driver) == ({}, 0, "")


async def test_a_device_that_cannot_be_measured_is_not_called_free() -> None:
    bench = Bench(NotMeasured("GPU is lost"))
    with pytest.raises(NotMeasured):
        await bench.free(1000)
    assert bench.remedies == 0


async def test_a_load_is_what_came_on_top_of_the_free_device() -> None:
    bench = Bench()
    await bench.opened()
    assert bench.row == {
        "before_mib": 300, "loaded_mib": 1000, "budget_mib": 3000, "peak_mib": 1000, "strangers_mib": 0,
    }  # fmt: skip
    assert bench.verification.driver == "570.1"


async def test_a_load_beyond_the_budget_is_written_down_and_refused() -> None:
    bench = Bench(full(300))
    await bench.free(1000)
    bench.memory.readings = [full(3400)]
    with pytest.raises(DriverError, match=r"3100 MiB were loaded, the budget is 3000 MiB"):
        await bench.verification.verify_resident()
    assert bench.row["loaded_mib"] == 3100


async def test_the_peak_is_the_most_that_any_sample_found() -> None:
    bench = Bench()
    await bench.opened(full(1500), full(1400), full(1600), full(1300))
    await bench.sampled(6)
    assert bench.row["peak_mib"] == 1300
    assert bench.writes == 1 + 2


async def test_a_peak_over_the_budget_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    await bench.opened(full(3400))
    await bench.sampled()
    assert bench.row["peak_mib"] == 3100 > bench.row["budget_mib"]
    assert "hold 3100 MiB, the budget is 3000" in caplog.text


async def test_what_strangers_take_is_theirs() -> None:
    ours = DeviceProcess(5_000_000, "ollama", 1000)
    bench = Bench(full(300))
    await bench.free(1000)
    bench.memory.readings = [full(1300, ours)]
    await bench.verification.verify_resident()
    bench.memory.readings = [full(1400 + SOMEBODY.mib, ours._replace(mib=1100), SOMEBODY)]
    await bench.sampled()
    assert (bench.row["peak_mib"], bench.row["strangers_mib"]) == (1100, 3000)


async def test_a_sample_that_could_not_be_written_is_written_with_the_next() -> None:
    bench = Bench()
    await bench.opened(full(1500))
    record, outage = bench.verification._record, [ConnectionError("away")]

    async def unlucky(figures: object) -> None:
        if outage:
            raise outage.pop()
        await record(figures)  # type: ignore[arg-type]

    bench.verification._record = unlucky
    with pytest.raises(ConnectionError):
        await bench.sampled()
    await bench.sampled()
    assert bench.row["peak_mib"] == 1200


async def test_samples_are_taken_now_and_then_and_not_between_residencies() -> None:
    bench = Bench()
    await bench.opened()
    reads = bench.memory.reads
    for _ in range(9):
        await bench.verification.sample()
    assert 3 <= bench.memory.reads - reads <= 5
    await bench.free(None)
    reads = bench.memory.reads
    for _ in range(9):
        await bench.verification.sample()
    assert bench.memory.reads == reads


async def test_a_device_that_is_lost_while_it_is_open_is_told_at_the_next_sample() -> None:
    bench = Bench()
    await bench.opened(NotMeasured("GPU is lost"))
    with pytest.raises(NotMeasured):
        await bench.sampled()


# The guard's clock never goes back, whatever is done to the machine's.


class Hands:
    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.seconds = 100.0

    def now(self, zone: object) -> datetime:
        assert zone is UTC
        return self.wall


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(memory, "datetime", hands)
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: hands.seconds))
    return hands


def test_the_clock_starts_at_wall_time(hands: Hands) -> None:
    assert memory.GuardClock().now() == hands.wall


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_jump_of_the_wall_clock_changes_nothing(hands: Hands, jump: timedelta) -> None:
    guard_clock = memory.GuardClock()
    start = hands.wall
    hands.wall += jump
    hands.seconds += 2.5
    assert guard_clock.now() == start + timedelta(seconds=2.5)


def test_a_clock_that_is_set_goes_on_from_there(hands: Hands) -> None:
    guard_clock = memory.GuardClock()
    guard_clock.set(hands.wall + timedelta(hours=1))
    hands.seconds += 2.5
    assert guard_clock.now() == hands.wall + timedelta(hours=1, seconds=2.5)


def test_a_stamp_knows_its_zone() -> None:
    assert memory.GuardClock().now().utcoffset() == timedelta(0)
