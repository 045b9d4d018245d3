"""How long a crashed child rests before its next start, and that children die with their supervisor."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mathrag.stack import process
from mathrag.stack.process import BackOff, Child, Keeper, Time

pytestmark = pytest.mark.anyio


def test_pause_doubles_up_to_ten_seconds() -> None:
    back_off = BackOff()
    assert [back_off.choose_pause(0.0) for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_health_resets_the_pause() -> None:
    back_off = BackOff()
    for _ in range(5):
        back_off.choose_pause(0.0)
    assert [back_off.choose_pause(29.9), back_off.choose_pause(30.0), back_off.choose_pause(1.0)] == [10.0, 0.5, 1.0]


class FakeTime:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0.005)

    def time(self) -> Time:
        return Time(now=lambda: self.seconds, sleep=self.sleep)


@pytest.mark.anyio
async def test_keeper_backs_off(tmp_path: Path) -> None:
    fake = FakeTime()

    async def ready(_pid: int) -> bool:
        return True

    crashing = Child(name="crashing", command=lambda: [sys.executable, "-c", "raise SystemExit(1)"], ready=ready)
    keeper = Keeper(crashing, log=tmp_path / "log", changed=lambda: None, time=fake.time())
    await keeper.start()
    keeping = asyncio.create_task(keeper.keep())
    while keeper.restarts < 4:  # noqa: ASYNC110 - what is awaited happens in other processes
        await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await keeper.stop()
    pauses = [pause for pause in fake.slept if pause != process.POLL_S]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux")
def test_child_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from mathrag.stack.process import spawn\n"
        f"print(spawn(['sleep', '60'], log=pathlib.Path({str(tmp_path / 'log')!r})).pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    psutil.wait_procs([child], timeout=5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
