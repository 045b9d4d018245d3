"""What a child does decides whether it hangs, not how long it takes: real processes, and a clock that tests move."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest

from mathrag.stack import process as process_module
from mathrag.stack.process import Child, Keeper, Time
from shared.errors import Unavailable

pytestmark = pytest.mark.anyio

BUSY = "while True: pass"
IDLE = "import time; time.sleep(600)"
WITH_IDLE_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {IDLE!r}]); " + IDLE
WITH_BUSY_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}]); " + IDLE


def make_clock() -> Time:
    ticks = itertools.count()
    seconds = 0.0

    async def sleep(_seconds: float) -> None:
        nonlocal seconds
        seconds = 2.0 * next(ticks)
        await asyncio.sleep(0.01)

    return Time(now=lambda: seconds, sleep=sleep)


async def never(_pid: int = 0) -> bool:
    return False


def after(tries: int) -> Callable[[], Awaitable[bool]]:
    count = itertools.count()

    async def is_ready() -> bool:
        return next(count) >= tries

    return is_ready


@contextmanager
def running(code: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    child = process_module.spawn([sys.executable, "-c", code], log=folder / "log")
    try:
        yield child
    finally:
        process_module.kill_tree(child)
        child.wait()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [BUSY, WITH_BUSY_CHILD])
async def test_a_child_that_works_is_waited_for_as_long_as_it_takes(tmp_path: Path, code: str) -> None:
    with running(code, tmp_path) as child:
        await until(lambda: len(psutil.Process(child.pid).children()) == code.count("Popen"))
        await process_module.wait_ready("slow", child, after(100), log=tmp_path / "log", time=make_clock())


@pytest.mark.parametrize("code", [IDLE, WITH_IDLE_CHILD])
async def test_a_child_that_does_nothing_is_given_up(tmp_path: Path, code: str) -> None:
    with running(code, tmp_path) as child:
        with pytest.raises(Unavailable, match="`deaf` is not ready, and did nothing for 60 s"):
            await process_module.wait_ready("deaf", child, never, log=tmp_path / "log", time=make_clock())
        assert child.poll() is None


async def test_a_stopped_child_does_nothing_whatever_its_children_do(tmp_path: Path) -> None:
    with running(WITH_BUSY_CHILD, tmp_path) as child:
        await until(lambda: bool(psutil.Process(child.pid).children()))
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(Unavailable, match="did nothing"):
            await process_module.wait_ready("stopped", child, never, log=tmp_path / "log", time=make_clock())


async def test_a_child_that_works_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STARTING_S", 0.1)
    with running(BUSY, tmp_path) as child, pytest.raises(Unavailable, match="s of processor time"):
        await process_module.wait_ready("endless", child, never, log=tmp_path / "log", time=make_clock())


async def test_a_supervisor_that_did_not_run_itself_blames_nobody_for_that_time(tmp_path: Path) -> None:
    seconds = 0.0
    with running(IDLE, tmp_path) as child:
        await until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING)
        effort = process_module.Effort(child.pid, Time(now=lambda: seconds))
        seconds = 3600.0
        effort.look()
        assert effort.idle_s <= process_module.LONGEST_LOOK_S


@asynccontextmanager
async def kept(
    code: str, folder: Path, answers: Callable[[int], Awaitable[bool]] = never
) -> AsyncIterator[tuple[Keeper, Time]]:
    async def ready(_pid: int) -> bool:
        return True

    child = Child(name="one", command=lambda: [sys.executable, "-c", code], ready=ready, answers=answers)
    time = make_clock()
    found = Keeper(child, log=folder / "log", changed=lambda: None, time=time)
    await found.start()
    try:
        yield found, time
    finally:
        await found.stop()


async def check_often(found: Keeper, time: Time, times: int) -> int | None:
    for _ in range(times):
        await found.check()
        await time.sleep(2.0)
    pid = found.pid
    return pid if pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else None


@pytest.mark.parametrize("stop", [False, True], ids=["asleep", "stopped"])
async def test_a_child_that_neither_answers_nor_works_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stop: bool
) -> None:
    async with kept(BUSY if stop else IDLE, tmp_path) as (found, time):
        if stop:
            os.kill(found.pid or 0, signal.SIGSTOP)
        while await check_often(found, time, 1) is not None:
            pass
        assert "does not answer and did nothing for" in caplog.text


async def test_a_child_that_works_without_answering_is_killed_after_much_processor_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(BUSY, tmp_path) as (found, time):
        assert await check_often(found, time, 100) == found.pid
        monkeypatch.setattr(process_module, "LOOPING_S", 0.0)
        assert await check_often(found, time, 2) is None
        assert "of processor time; it is killed" in caplog.text


async def test_a_child_that_answers_again_is_forgiven_what_it_did_not(tmp_path: Path) -> None:
    tries = itertools.count()

    async def seldom(_pid: int) -> bool:
        return next(tries) % 10 == 9

    async with kept(IDLE, tmp_path, seldom) as (found, time):
        assert await check_often(found, time, 100) == found.pid


async def test_a_child_that_refuses_a_password_answers(tmp_path: Path) -> None:
    async def refuses(_pid: int) -> bool:
        raise Unavailable("the password is wrong")

    async with kept(IDLE, tmp_path, refuses) as (found, time):
        assert await check_often(found, time, 100) == found.pid


async def test_with_a_hung_child_ends_what_it_had_started(tmp_path: Path) -> None:
    code = WITH_IDLE_CHILD.replace("])", "], start_new_session=True)")
    async with kept(code, tmp_path) as (found, time):
        root = psutil.Process(found.pid)
        await until(lambda: bool(root.children()))
        tree = [root, *root.children()]
        for each in tree:
            each.suspend()
        while await check_often(found, time, 1) is not None:
            pass
        assert psutil.wait_procs(tree[1:], timeout=60)[1] == []
