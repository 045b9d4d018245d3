"""Processes of the stack: found again, stopped, started after a rest, and their logs."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest

from mathrag.client import address
from mathrag.errors import Unavailable
from mathrag_gate.stack import process
from mathrag_gate.stack.process import BackOff, Child, Keeper, Time, read_birth
from mathrag_gate.stack.redis import find_free_port, rotate
from shared.calls import Lane
from tests.faults.limits import room, small_disk
from tests.faults.recording import Seen

# What a child does decides whether it hangs, not how long it takes: real processes, and a clock that tests move.


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
    child = process.spawn([sys.executable, "-c", code], log=folder / "log")
    try:
        yield child
    finally:
        process.kill_tree(child)
        child.wait()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [BUSY, WITH_BUSY_CHILD])
async def test_a_child_that_works_is_waited_for_as_long_as_it_takes(tmp_path: Path, code: str) -> None:
    with running(code, tmp_path) as child:
        await until(lambda: len(psutil.Process(child.pid).children()) == code.count("Popen"))
        await process.wait_ready("slow", child, after(100), log=tmp_path / "log", time=make_clock())


@pytest.mark.parametrize("code", [IDLE, WITH_IDLE_CHILD])
async def test_a_child_that_does_nothing_is_given_up(tmp_path: Path, code: str) -> None:
    with running(code, tmp_path) as child:
        with pytest.raises(Unavailable, match="`deaf` is not ready, and has done nothing for 60 s"):
            await process.wait_ready("deaf", child, never, log=tmp_path / "log", time=make_clock())
        assert child.poll() is None


async def test_a_stopped_child_does_nothing_whatever_its_children_do(tmp_path: Path) -> None:
    with running(WITH_BUSY_CHILD, tmp_path) as child:
        await until(lambda: bool(psutil.Process(child.pid).children()))
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(Unavailable, match="has done nothing for"):
            await process.wait_ready("stopped", child, never, log=tmp_path / "log", time=make_clock())


async def test_a_child_that_works_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STARTING_S", 0.1)
    with running(BUSY, tmp_path) as child, pytest.raises(Unavailable, match="s of processor time"):
        await process.wait_ready("endless", child, never, log=tmp_path / "log", time=make_clock())


async def test_a_supervisor_that_did_not_run_itself_blames_nobody_for_that_time(tmp_path: Path) -> None:
    seconds = 0.0
    with running(IDLE, tmp_path) as child:
        await until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING)
        effort = process.Effort(child.pid, Time(now=lambda: seconds))
        seconds = 3600.0
        effort.measure()
        assert effort.idle_s <= process.LONGEST_LOOK_S


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
        assert "does not answer and was idle for" in caplog.text


async def test_a_child_that_works_without_answering_is_killed_after_much_processor_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(BUSY, tmp_path) as (found, time):
        assert await check_often(found, time, 100) == found.pid
        monkeypatch.setattr(process, "LOOPING_S", 0.0)
        assert await check_often(found, time, 2) is None
        assert "of processor time; killing it" in caplog.text


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
        # Stopped before it runs its own program, a forked child would hold its parent, which then cannot be killed.
        await until(lambda: any(each.cmdline()[-1:] == [IDLE] for each in root.children()))
        tree = [root, *root.children()]
        for each in tree:
            each.suspend()
        while await check_often(found, time, 1) is not None:
            pass
        assert psutil.wait_procs(tree[1:], timeout=60)[1] == []


# What an earlier supervisor left behind is waited for and killed; what is somebody else's is let alone.


@asynccontextmanager
async def living() -> AsyncIterator[asyncio.subprocess.Process]:
    sleeper = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    try:
        yield sleeper
    finally:
        if sleeper.returncode is None:
            sleeper.kill()
        await sleeper.wait()


def record(data_dir: Path, pid: int, born: str) -> None:
    child = address.ChildState(name="old", phase="ready", pid=pid, port=None, restarts=0, log="", born=born)
    address.write_state(data_dir, address.State(pid=1, url="", phase="running", children=(child,)))


def impatient() -> Time:
    seconds: Iterator[int] = iter(range(0, 10_000, 5))
    return Time(now=lambda: float(next(seconds)), sleep=lambda _: asyncio.sleep(0.01))


async def test_a_child_that_outlives_its_supervisor_is_killed(tmp_path: Path) -> None:
    async with living() as left:
        record(tmp_path, left.pid, read_birth(left.pid))
        await process.clear(tmp_path, time=impatient())
        assert await left.wait() == -signal.SIGKILL


@pytest.mark.fault("P14")
@pytest.mark.parametrize("born", ["of another process", ""], ids=["of another process", "of an older release"])
async def test_a_process_of_somebody_else_with_a_recorded_id_is_let_alone(
    tmp_path: Path, seen: Seen, born: str
) -> None:
    async with living() as foreign:
        seen.describe("the file of a killed supervisor names the id of a process that is older than the file")
        record(tmp_path, foreign.pid, read_birth(os.getpid()) if born else "")
        tomorrow = time.time() + 86_400
        os.utime(tmp_path / address.STATE_FILE, (tomorrow, tomorrow))
        await process.clear(tmp_path, time=impatient())
        assert foreign.returncode is None
        assert read_birth(foreign.pid)
    seen.note("the process lives, and the supervisor does not wait for it")


async def test_a_process_that_is_gone_has_no_birth() -> None:
    async with living() as sleeper:
        assert read_birth(sleeper.pid) == read_birth(sleeper.pid) != read_birth(os.getpid())
    assert read_birth(sleeper.pid) == ""


# Whether a service is ready, and whether one that was still answers.

NO_REDIS = "redis://127.0.0.1:1/0"


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "is_ready"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False), (b"", False)],
    ids=["well", "refuses", "closes"],
)
async def test_whoever_takes_the_request_answers_whatever_it_says(answer: bytes, is_ready: bool) -> None:
    async with listening(answer) as port:
        assert await process.make_http_answer_test(port)(0)
        assert await process.make_http_test(port)(0) is is_ready


async def test_a_service_that_says_nothing_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not await process.make_http_answer_test(silent.getsockname()[1])(0)


async def test_nor_does_one_that_does_not_listen() -> None:
    assert not await process.make_http_answer_test(find_free_port())(0)


async def test_a_worker_is_not_blamed_for_a_redis_that_is_away() -> None:
    assert await process.make_heartbeat_answer_test(NO_REDIS, Lane.JUDGE)(psutil.Process().pid)


@pytest.fixture
def stopped_child() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as forked:
        child = psutil.Process(forked.pid)
        child.suspend()
        while child.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        yield
        forked.kill()


@pytest.mark.usefixtures("stopped_child")
async def test_a_worker_whose_child_is_stopped_does_not_answer() -> None:
    assert not await process.make_heartbeat_answer_test(NO_REDIS, Lane.JUDGE)(psutil.Process().pid)


# How long a crashed child rests before its next start, and that children die with their supervisor.


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
        "from mathrag_gate.stack.process import spawn\n"
        f"print(spawn(['sleep', '60'], log=pathlib.Path({str(tmp_path / 'log')!r})).pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    psutil.wait_procs([child], timeout=5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


# A log that is too large is kept once beside itself and begins anew, whoever has it open.


def test_a_large_log_is_kept_once_and_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "judge.log"
    with log.open("ab", buffering=0) as writer:
        for lines in (b"first\n", b"second\n", b"third\n"):
            writer.write(lines)
            rotate(tmp_path, 3)
        writer.write(b"last\n")
    assert (tmp_path / "judge.log.1").read_bytes() == b"third\n"
    assert log.read_bytes() == b"last\n"


def test_a_small_log_is_let_alone(tmp_path: Path) -> None:
    (tmp_path / "guard.log").write_bytes(b"abc")
    (tmp_path / "notes.txt").write_bytes(b"longer than that")
    rotate(tmp_path, 3)
    assert {file.name for file in tmp_path.iterdir()} == {"guard.log", "notes.txt"}


def test_without_room_for_the_copy_nothing_is_lost(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "logs", 4) as disk:
            log = disk.folder / "redis.log"
            log.write_bytes(bytes(2 << 20))
            disk.fill()
            rotate(disk.folder, 1 << 20)
            assert log.stat().st_size == 2 << 20
            assert not log.with_name("redis.log.1").exists()
            disk.relieve()
            rotate(disk.folder, 1 << 20)
            assert (log.stat().st_size, log.with_name("redis.log.1").stat().st_size) == (0, 2 << 20)
            assert room(disk.folder) > 0
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")
