"""The supervisor, with small real processes as children."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mathrag.client import stack_state
from mathrag.stack import lock
from mathrag.stack.keeper import Child
from mathrag.stack.process import REAL, Time
from mathrag.stack.supervisor import Chore, StartupTask, Supervisor
from shared.errors import Conflict, Unavailable
from tests.faults.limits import Disk, small_disk

pytestmark = pytest.mark.anyio

LIVES = "import time; print('born', flush=True); time.sleep(60)"


def child(name: str, code: str = LIVES, **options: object) -> Child:
    """A Python one-liner as a child; ready as soon as it runs."""

    async def ready(pid: int) -> bool:
        return psutil.pid_exists(pid)

    return Child(**{"name": name, "command": lambda: [sys.executable, "-c", code], "ready": ready} | options)  # type: ignore[arg-type]


class Ran:
    """A running supervisor and what it has told."""

    def __init__(self, table: list[Child | StartupTask | Chore], data_dir: Path, time: Time = REAL) -> None:
        self.told: list[str] = []
        self.running = asyncio.Event()
        self.supervisor = Supervisor(
            table, data_dir=data_dir, url="http://here", ready=self._ready, running=self.running.set, time=time
        )

    def _ready(self, name: str, _seconds: float) -> None:
        self.told.append(name)

    def pids(self) -> dict[str, int | None]:
        """Process id of every child."""
        return {keeper.child.name: keeper.pid for keeper in self.supervisor.keepers}


@asynccontextmanager
async def supervised(table: list[Child | StartupTask | Chore], data_dir: Path, time: Time = REAL) -> AsyncIterator[Ran]:
    """Running inside the block, stopped after it."""
    ran = Ran(table, data_dir, time)
    task = asyncio.create_task(ran.supervisor.run())
    await asyncio.wait({task, asyncio.create_task(ran.running.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ran
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
            await asyncio.sleep(0.02)


async def test_starts_in_order(tmp_path: Path) -> None:
    """A row starts when all rows before it are ready."""
    alive_at_step: list[bool] = []

    async def step() -> None:
        alive_at_step.append((tmp_path / "logs" / "first.log").exists())
        alive_at_step.append((tmp_path / "logs" / "second.log").exists())

    async with supervised([child("first"), StartupTask(name="step", run=step), child("second")], tmp_path) as ran:
        assert ran.told == ["first", "step", "second"]
    assert alive_at_step == [True, False]


async def test_waits_until_ready(tmp_path: Path) -> None:
    """A child counts as ready when its check says so, not when its process exists."""
    answers = iter([False, False, True])

    async def ready(_pid: int) -> bool:
        return next(answers)

    async with supervised([child("slow", ready=ready)], tmp_path) as ran:
        assert ran.told == ["slow"]
    assert next(answers, None) is None


async def test_restarts_only_the_killed_child(tmp_path: Path) -> None:
    """A crash costs nobody else their process; the state says who was restarted."""
    async with supervised([child("one"), child("two")], tmp_path) as ran:
        before = ran.pids()
        os.kill(before["one"] or 0, signal.SIGKILL)
        await until(
            lambda: ran.pids()["one"] not in {before["one"], None} and ran.supervisor.keepers[0].phase == "ready"
        )
        assert ran.pids()["two"] == before["two"]
        told = stack_state.read(tmp_path)
        assert told is not None
        assert [one.restarts for one in told.children] == [1, 0]


async def test_kills_what_a_crashed_child_left(tmp_path: Path) -> None:
    """The children of a crashed child do not outlive it."""
    code = (
        "import subprocess, sys, time\n"
        f"print(subprocess.Popen([sys.executable, '-c', {LIVES!r}]).pid, flush=True)\n"
        "time.sleep(60)"
    )
    async with supervised([child("parent", code)], tmp_path) as ran:
        log = tmp_path / "logs" / "parent.log"
        await until(lambda: log.read_text().count("\n") >= 1)
        grandchild = int(log.read_text().split()[0])
        os.kill(ran.pids()["parent"] or 0, signal.SIGKILL)
        await until(lambda: _gone(grandchild))


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_stops_in_reverse(tmp_path: Path) -> None:
    """The last one started is the first one asked to stop, and gets the time to do so."""
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n    open({order!r}, 'a').write({name!r} + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nprint('born', flush=True)\ntime.sleep(60)"
    )
    names = ["one", "two", "three"]

    def ready(name: str) -> Callable[[int], object]:
        async def born(_pid: int) -> bool:
            return "born" in (tmp_path / "logs" / f"{name}.log").read_text()

        return born

    table: list[Child | StartupTask | Chore] = [
        child(name, code.format(order=str(order), name=name), ready=ready(name)) for name in names
    ]
    async with supervised(table, tmp_path):
        pass
    assert order.read_text().split() == ["three", "two", "one"]
    told = stack_state.read(tmp_path)
    assert told is not None
    assert (told.phase, {one.pid for one in told.children}) == ("stopped", {None})


async def test_kills_a_child_that_does_not_stop(tmp_path: Path) -> None:
    """Whoever ignores the request is killed after its grace."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('born', flush=True); time.sleep(60)"
    )
    async with supervised([child("deaf", code, grace_s=0.3)], tmp_path) as ran:
        await until(lambda: "born" in (tmp_path / "logs" / "deaf.log").read_text())
        pid = ran.pids()["deaf"] or 0
    assert _gone(pid)


async def test_failed_first_start_stops_everything(tmp_path: Path) -> None:
    """A child that ends before it is ready ends the start, with its name and where to look."""

    async def never(_pid: int) -> bool:
        return False

    ran = Ran([child("good"), child("bad", "raise SystemExit(3)", ready=never)], tmp_path)
    with pytest.raises(Unavailable, match="`bad` ended with status 3") as raised:
        await ran.supervisor.run()
    assert "bad.log" in (raised.value.hint or "")
    assert ran.pids() == {"good": None, "bad": None}


async def test_two_supervisors_refuse_each_other(tmp_path: Path) -> None:
    """One data directory, one supervisor; a second directory is free."""
    (tmp_path / "other").mkdir()
    async with supervised([child("one")], tmp_path):
        assert lock.find_holder(tmp_path) == os.getpid()
        with pytest.raises(Conflict, match="already runs"):
            await Ran([], tmp_path).supervisor.run()
        async with supervised([child("one")], tmp_path / "other") as other:
            assert other.running.is_set()
    assert lock.find_holder(tmp_path) is None


async def test_secrets_stay_out_of_sight(tmp_path: Path) -> None:
    """The environment of a child shows neither in the state nor in a representation."""
    secret = child("one", environment={"URL": "hidden"})
    async with supervised([secret], tmp_path) as ran:
        pid = ran.pids()["one"] or 0
        assert psutil.Process(pid).environ()["URL"] == "hidden"
        assert "hidden" not in (tmp_path / stack_state.FILE).read_text()
    assert "hidden" not in repr(secret)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small disk under the data folder."""
    try:
        with small_disk(tmp_path / "data", 48) as mounted:
            yield mounted
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")


async def test_a_full_disk_ends_nobody_and_the_killed_child_comes_back(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """The state finds no room for as long as the disk is full; afterwards it is as it should be, without a restart."""
    async with supervised([child("one"), child("two")], disk.folder) as ran:
        before = ran.pids()
        await until(lambda: all("born" in log.read_text() for log in (disk.folder / "logs").iterdir()))
        disk.fill()
        os.kill(before["one"] or 0, signal.SIGKILL)
        await until(lambda: "cannot be written" in caplog.text and "is full" in caplog.text)
        disk.relieve()
        await until(lambda: written(disk.folder) == ran.pids() and ran.pids()["one"] not in (None, before["one"]))
        await until(lambda: "has room again" in caplog.text)
        assert ran.pids()["two"] == before["two"]


async def test_a_start_without_room_waits_for_it(disk: Disk) -> None:
    """What fails while the disk is full is not the end of the start."""
    tries: list[int] = []

    async def step() -> None:
        tries.append(1)
        (disk.folder / "large").write_bytes(bytes(1 << 20))

    with lock.hold(disk.folder):
        pass  # a supervisor that ran here before
    disk.fill()
    ran = Ran([StartupTask(name="step", run=step)], disk.folder, Time(sleep=lambda _: asyncio.sleep(0.01)))
    running = asyncio.create_task(ran.supervisor.run())
    await until(lambda: bool(tries))
    disk.relieve()
    await until(ran.running.is_set)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert ran.told == ["step"]


def written(data_dir: Path) -> dict[str, int | None]:
    """Process ids as the state tells them."""
    told = stack_state.read(data_dir)
    return {one.name: one.pid for one in told.children} if told else {}


async def test_a_chore_is_repeated_also_after_it_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What can wait ends nobody."""
    times: list[int] = []

    async def run() -> None:
        times.append(len(times))
        if len(times) == 1:
            raise ValueError("not today")

    async with supervised([Chore(name="sweeping", run=run, every_s=0.01), child("one")], tmp_path) as ran:
        await until(lambda: len(times) > 2)
        assert ran.told == ["one"]
    assert "sweeping: not today" in caplog.text
