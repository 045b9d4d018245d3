"""The supervisor, with small real processes as children."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mathrag.cli.output import Exit
from mathrag.client import address
from mathrag.errors import Conflict, Unavailable
from mathrag_gate.stack import control
from mathrag_gate.stack.process import REAL, Child, Time
from mathrag_gate.stack.supervisor import Chore, StartupTask, Supervisor
from tests.faults.limits import Disk, small_disk
from tests.unit.commands import mathrag

pytestmark = pytest.mark.anyio

LIVES = "import time; print('born', flush=True); time.sleep(60)"


def child(name: str, code: str = LIVES, **options: object) -> Child:
    async def ready(pid: int) -> bool:
        return psutil.pid_exists(pid)

    return Child(**{"name": name, "command": lambda: [sys.executable, "-c", code], "ready": ready} | options)  # type: ignore[arg-type]


Workers = Mapping[str, Callable[[int], Child]]


class Ran:
    def __init__(
        self,
        table: list[Child | StartupTask | Chore],
        data_dir: Path,
        time: Time = REAL,
        workers: Workers | None = None,
    ) -> None:
        self.told: list[str] = []
        self.running = asyncio.Event()
        self.supervisor = Supervisor(
            table, data_dir=data_dir, url="http://here", ready=self._ready, running=self.running.set, time=time,
            workers=workers,
        )  # fmt: skip

    def _ready(self, name: str, _seconds: float) -> None:
        self.told.append(name)

    def pids(self) -> dict[str, int | None]:
        return {keeper.child.name: keeper.pid for keeper in self.supervisor.keepers}


@asynccontextmanager
async def supervised(
    table: list[Child | StartupTask | Chore], data_dir: Path, time: Time = REAL, workers: Workers | None = None
) -> AsyncIterator[Ran]:
    ran = Ran(table, data_dir, time, workers)
    task = asyncio.create_task(ran.supervisor.run())
    await asyncio.wait({task, asyncio.create_task(ran.running.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ran
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
            await asyncio.sleep(0.02)


async def test_starts_in_order(tmp_path: Path) -> None:
    alive_at_step: list[bool] = []

    async def step() -> None:
        alive_at_step.append((tmp_path / "logs" / "first.log").exists())
        alive_at_step.append((tmp_path / "logs" / "second.log").exists())

    async with supervised([child("first"), StartupTask(name="step", run=step), child("second")], tmp_path) as ran:
        assert ran.told == ["first", "step", "second"]
    assert alive_at_step == [True, False]


async def test_a_row_beside_another_starts_with_it_and_the_next_one_after_both(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def other_lives(name: str) -> bool:
        return (tmp_path / "logs" / f"{name}.log").exists()

    async def step() -> None:
        seen.append(sorted(ran.told))

    ran = Ran(
        [
            child("one", ready=lambda _: other_lives("two")),
            child("two", ready=lambda _: other_lives("one"), starts_with_previous=True),
            StartupTask(name="step", run=step),
        ],
        tmp_path,
    )
    task = asyncio.create_task(ran.supervisor.run())
    await until(ran.running.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == [["one", "two"]]


async def test_a_child_that_cannot_start_ends_those_that_start_beside_it(tmp_path: Path) -> None:
    async def never(_pid: int) -> bool:
        return False

    ran = Ran(
        [child("slow", ready=never), child("bad", "raise SystemExit(3)", ready=never, starts_with_previous=True)],
        tmp_path,
    )
    with pytest.raises(Unavailable, match="`bad` ended with status 3"):
        await ran.supervisor.run()
    assert ran.pids() == {"slow": None, "bad": None}


async def test_restarts_the_child_that_does_not_answer_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hung: list[int] = []
    quick = Time(now=lambda: REAL.now() * 200, sleep=lambda seconds: asyncio.sleep(seconds / 200))

    async def answers(pid: int) -> bool:
        return pid not in hung

    async with supervised([child("one", answers=answers), child("two", answers=answers)], tmp_path, quick) as ran:
        before = ran.pids()
        hung.append(before["one"] or 0)
        await until(lambda: ran.pids()["one"] not in {*hung, None} and ran.supervisor.keepers[0].phase == "ready")
        assert ran.pids()["two"] == before["two"]
        assert [keeper.restarts for keeper in ran.supervisor.keepers] == [1, 0]
    assert f"one: process {hung[0]} does not answer" in caplog.text


async def test_waits_until_ready(tmp_path: Path) -> None:
    answers = iter([False, False, True])

    async def ready(_pid: int) -> bool:
        return next(answers)

    async with supervised([child("slow", ready=ready)], tmp_path) as ran:
        assert ran.told == ["slow"]
    assert next(answers, None) is None


async def test_restarts_only_the_killed_child(tmp_path: Path) -> None:
    async with supervised([child("one"), child("two")], tmp_path) as ran:
        before = ran.pids()
        os.kill(before["one"] or 0, signal.SIGKILL)
        await until(
            lambda: ran.pids()["one"] not in {before["one"], None} and ran.supervisor.keepers[0].phase == "ready"
        )
        assert ran.pids()["two"] == before["two"]
        told = address.read_state(tmp_path)
        assert told is not None
        assert [one.restarts for one in told.children] == [1, 0]


async def test_kills_what_a_crashed_child_left(tmp_path: Path) -> None:
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
    told = address.read_state(tmp_path)
    assert told is not None
    assert (told.phase, {one.pid for one in told.children}) == ("stopped", {None})


async def test_kills_a_child_that_does_not_stop(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('born', flush=True); time.sleep(60)"
    )
    async with supervised([child("deaf", code, grace_s=0.3)], tmp_path) as ran:
        await until(lambda: "born" in (tmp_path / "logs" / "deaf.log").read_text())
        pid = ran.pids()["deaf"] or 0
    assert _gone(pid)


async def test_failed_first_start_stops_everything(tmp_path: Path) -> None:
    async def never(_pid: int) -> bool:
        return False

    ran = Ran([child("good"), child("bad", "raise SystemExit(3)", ready=never)], tmp_path)
    with pytest.raises(Unavailable, match="`bad` ended with status 3") as raised:
        await ran.supervisor.run()
    assert "bad.log" in (raised.value.hint or "")
    assert ran.pids() == {"good": None, "bad": None}


async def test_two_supervisors_refuse_each_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with supervised([child("one")], tmp_path):
        assert control.find_holder(tmp_path) == os.getpid()
        with pytest.raises(Conflict, match="a stack is already running in"):
            await Ran([], tmp_path).supervisor.run()
        async with supervised([child("one")], tmp_path / "other") as other:
            assert other.running.is_set()
    assert control.find_holder(tmp_path) is None


async def test_secrets_stay_out_of_sight(tmp_path: Path) -> None:
    secret = child("one", environment={"URL": "hidden"})
    async with supervised([secret], tmp_path) as ran:
        pid = ran.pids()["one"] or 0
        assert psutil.Process(pid).environ()["URL"] == "hidden"
        assert "hidden" not in (tmp_path / address.STATE_FILE).read_text()
    assert "hidden" not in repr(secret)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        with small_disk(tmp_path / "data", 48) as mounted:
            yield mounted
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")


async def test_a_full_disk_ends_nobody_and_the_killed_child_comes_back(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised([child("one"), child("two")], disk.folder) as ran:
        before = ran.pids()
        await until(lambda: all("born" in log.read_text() for log in (disk.folder / "logs").iterdir()))
        disk.fill()
        os.kill(before["one"] or 0, signal.SIGKILL)
        await until(lambda: "cannot be written" in caplog.text and "is full" in caplog.text)
        disk.relieve()
        await until(lambda: written(disk.folder) == ran.pids() and ran.pids()["one"] not in (None, before["one"]))
        await until(lambda: "has space again" in caplog.text)
        assert ran.pids()["two"] == before["two"]


async def test_a_start_without_room_waits_for_it(disk: Disk) -> None:
    tries: list[int] = []

    async def step() -> None:
        tries.append(1)
        (disk.folder / "large").write_bytes(bytes(1 << 20))

    with control.hold(disk.folder):
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
    told = address.read_state(data_dir)
    return {one.name: one.pid for one in told.children} if told else {}


async def test_a_chore_is_repeated_also_after_it_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    times: list[int] = []

    async def run() -> None:
        times.append(len(times))
        if len(times) == 1:
            raise ValueError("not today")

    async with supervised([Chore(name="sweeping", run=run, every_s=0.01), child("one")], tmp_path) as ran:
        await until(lambda: len(times) > 2)
        assert ran.told == ["one"]
    assert "sweeping: not today" in caplog.text


def judge(number: int, code: str = LIVES, **options: object) -> Child:
    return child("judge" if number == 1 else f"judge-{number}", code, service="judge", **options)


def ready_pids(ran: Ran) -> dict[str, int | None] | None:
    return ran.pids() if all(keeper.phase == "ready" for keeper in ran.supervisor.keepers) else None


async def until_ready(ran: Ran, *names: str) -> dict[str, int | None]:
    await until(lambda: list(ready_pids(ran) or ()) == list(names))
    return ran.pids()


async def test_workers_are_added_and_removed_while_the_others_run(tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        f"def end(*_):\n    open({str(order)!r}, 'a').write(sys.argv[1] + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nprint('born', flush=True)\ntime.sleep(60)"
    )

    def worker(number: int) -> Child:
        async def born(_pid: int) -> bool:
            return "born" in (tmp_path / "logs" / f"{made.name}.log").read_text()

        made = judge(number, ready=born, command=lambda: [sys.executable, "-c", code, made.name])
        return made

    async with supervised([worker(1), child("last")], tmp_path, workers={"judge": worker}) as ran:
        first = ran.pids()
        control.ask_for_workers(tmp_path, "judge", 3)
        more = await until_ready(ran, "judge", "judge-2", "judge-3", "last")
        control.ask_for_workers(tmp_path, "judge", 1)
        await until_ready(ran, "judge", "last")
        assert order.read_text().split() == ["judge-3", "judge-2"]
        assert _gone(more["judge-2"] or 0)
        assert _gone(more["judge-3"] or 0)
        assert ran.pids() == first
        told = address.read_state(tmp_path)
        assert told is not None
        assert told.wanted == {"judge": 1}
        assert [(one.name, one.service, one.restarts) for one in told.children] == [
            ("judge", "judge", 0), ("last", "", 0),
        ]  # fmt: skip


async def test_workers_are_added_where_there_was_none(tmp_path: Path) -> None:
    async with supervised([child("last")], tmp_path, workers={"judge": judge}) as ran:
        control.ask_for_workers(tmp_path, "judge", 2)
        await until_ready(ran, "last", "judge", "judge-2")


async def test_the_last_number_that_was_asked_for_counts(tmp_path: Path) -> None:
    async def ready(_pid: int) -> bool:
        return False

    def slow(number: int) -> Child:
        return judge(number, ready=ready)

    async with supervised([judge(1)], tmp_path, workers={"judge": slow}) as ran:
        control.ask_for_workers(tmp_path, "judge", 3)
        await until(lambda: None not in ran.pids().values() and len(ran.pids()) == 3)
        pids = ran.pids()
        control.ask_for_workers(tmp_path, "judge", 1)
        assert await until_ready(ran, "judge") == {"judge": pids["judge"]}
        assert _gone(pids["judge-2"] or 0)


async def test_a_new_worker_that_cannot_start_is_started_again_and_ends_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quick = Time(now=lambda: REAL.now() * 200, sleep=lambda seconds: asyncio.sleep(seconds / 200))
    mended = tmp_path / "mended"

    def worker(number: int) -> Child:
        async def ready(_pid: int) -> bool:
            return mended.exists()

        return judge(
            number, f"import os, time; os.path.exists({str(mended)!r}) or exit(3); time.sleep(60)", ready=ready
        )

    async with supervised([judge(1)], tmp_path, quick, {"judge": worker}) as ran:
        pids = ran.pids()
        control.ask_for_workers(tmp_path, "judge", 2)
        await until(lambda: ran.supervisor.keepers[-1].restarts > 1)
        mended.touch()
        assert (await until_ready(ran, "judge", "judge-2"))["judge"] == pids["judge"]
    assert "`judge-2` ended with status 3 before it was ready" in caplog.text


async def test_a_new_worker_that_lives_without_becoming_ready_is_started_again(tmp_path: Path) -> None:
    quick = Time(now=lambda: REAL.now() * 200, sleep=lambda seconds: asyncio.sleep(seconds / 200))

    async def never(_pid: int) -> bool:
        return False

    def worker(number: int) -> Child:
        return judge(number, ready=never)

    async with supervised([judge(1)], tmp_path, quick, {"judge": worker}) as ran:
        control.ask_for_workers(tmp_path, "judge", 2)
        await until(lambda: ran.supervisor.keepers[-1].restarts > 1)


async def test_a_worker_that_crashes_is_restarted_until_it_is_not_wanted_any_more(tmp_path: Path) -> None:
    crashing = tmp_path / "crashing"

    def worker(number: int) -> Child:
        return judge(number, f"import os, time; os.path.exists({str(crashing)!r}) and exit(3); {LIVES}")

    async with supervised([judge(1)], tmp_path, workers={"judge": worker}) as ran:
        control.ask_for_workers(tmp_path, "judge", 2)
        before = await until_ready(ran, "judge", "judge-2")
        os.kill(before["judge-2"] or 0, signal.SIGKILL)
        await until(lambda: ran.pids()["judge-2"] not in {before["judge-2"], None})
        crashing.touch()
        os.kill(ran.pids()["judge-2"] or 0, signal.SIGKILL)
        await until(lambda: ran.supervisor.keepers[-1].phase == "backing-off")
        control.ask_for_workers(tmp_path, "judge", 1)
        assert await until_ready(ran, "judge") == {"judge": before["judge"]}


async def test_a_stack_that_stops_while_it_scales_leaves_no_process(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('born', flush=True); time.sleep(60)"
    )

    def worker(number: int) -> Child:
        return judge(number, deaf, grace_s=0.5)

    def generator(number: int) -> Child:
        return child(f"generator-{number}", service="generator")

    workers = {"judge": worker, "generator": generator}
    async with supervised([judge(1), worker(2), generator(1)], tmp_path, workers=workers) as ran:
        await until(lambda: "born" in (tmp_path / "logs" / "judge-2.log").read_text())
        for service, count in (("judge", 1), ("generator", 2)):
            control.ask_for_workers(tmp_path, service, count)
        await until(lambda: "generator-2" in ran.pids() and ran.pids()["generator-2"] is not None)
        pids = ran.pids()
    assert len(pids) > 2
    assert all(_gone(pid or 0) for pid in pids.values())


async def test_what_an_earlier_stack_was_asked_for_is_forgotten(tmp_path: Path) -> None:
    control.ask_for_workers(tmp_path, "judge", 3)
    async with supervised([judge(1)], tmp_path, workers={"judge": judge}) as ran:
        assert control.read_wanted_workers(tmp_path, "judge") is None
        control.ask_for_workers(tmp_path, "judge", 2)
        await until_ready(ran, "judge", "judge-2")


@pytest.mark.parametrize("content", ["", "0", "-1", "65", "many", "[2]", "1e400"])
async def test_a_file_without_a_possible_number_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    def generator(number: int) -> Child:
        return child(f"generator-{number}", service="generator")

    async with supervised([judge(1)], tmp_path, workers={"judge": judge, "generator": generator}) as ran:
        (tmp_path / "scale-judge.json").write_text(content)
        control.ask_for_workers(tmp_path, "generator", 1)
        await until_ready(ran, "judge", "generator-1")
        await until(lambda: "did not contain a number from 1 to 64 and was removed" in caplog.text)
        assert control.read_wanted_workers(tmp_path, "judge") is None


async def run_scale(data_dir: Path, *arguments: str) -> tuple[int, str]:
    ended = await asyncio.to_thread(mathrag, "scale", *arguments, "--data-dir", str(data_dir))
    return ended.exit_code, " ".join(ended.output.split())


async def test_the_command_waits_until_so_many_workers_run_and_says_which(tmp_path: Path) -> None:
    async with supervised([judge(1), child("last")], tmp_path, workers={"judge": judge}) as ran:
        for _ in range(2):
            code, said = await run_scale(tmp_path, "judge=3")
            pids = await until_ready(ran, "judge", "judge-2", "judge-3", "last")
            assert code == 0
            assert f"judge-3 ready {pids['judge-3']} - 0" in said
            assert "last" not in said
        assert (tmp_path / "scale-judge.json").stat().st_mode & 0o077 == 0
        code, said = await run_scale(tmp_path, "judge=1", "--json")
        assert (code, list(ran.pids())) == (0, ["judge", "last"])
        assert json.loads(said) == {"workers": {"judge": 1, "generator": 0}, "data_dir": str(tmp_path)}


async def test_the_command_names_the_worker_that_does_not_start_and_its_log(tmp_path: Path) -> None:
    quick = Time(now=lambda: REAL.now() * 200, sleep=lambda seconds: asyncio.sleep(seconds / 200))

    async def never(_pid: int) -> bool:
        return False

    def broken(number: int) -> Child:
        return judge(number, "raise SystemExit(3)", ready=never)

    async with supervised([judge(1)], tmp_path, quick, {"judge": broken}):
        code, said = await run_scale(tmp_path, "judge=2")
    assert code == Exit.UNREACHABLE
    assert "error: `judge-2` failed to start" in said
    assert f"read {tmp_path}/logs/judge-2.log" in said


async def test_the_command_gives_up_waiting_and_the_stack_continues(tmp_path: Path) -> None:
    async def never(_pid: int) -> bool:
        return False

    async with supervised([judge(1)], tmp_path, workers={"judge": lambda number: judge(number, ready=never)}) as ran:
        code, said = await run_scale(tmp_path, "judge=2", "--timeout", "0")
        assert code == Exit.UNREACHABLE
        assert "judge=2 is not reached after 0 s; the stack keeps trying" in said
        assert f"mathrag status --data-dir {tmp_path}" in said
        await until(lambda: list(ran.pids()) == ["judge", "judge-2"])


async def test_the_command_says_that_another_one_has_asked_for_another_number(tmp_path: Path) -> None:
    async def never(_pid: int) -> bool:
        return False

    async with supervised([judge(1)], tmp_path, workers={"judge": lambda number: judge(number, ready=never)}) as ran:
        waiting = asyncio.create_task(run_scale(tmp_path, "judge=3"))
        await until(lambda: len(ran.pids()) == 3)
        control.ask_for_workers(tmp_path, "judge", 1)
        code, said = await waiting
    assert (code, "another `mathrag scale` has requested judge=1" in said) == (Exit.CONFLICT, True)


async def test_the_command_says_that_the_stack_has_stopped_meanwhile(tmp_path: Path) -> None:
    async def never(_pid: int) -> bool:
        return False

    async with supervised([judge(1)], tmp_path, workers={"judge": lambda number: judge(number, ready=never)}) as ran:
        waiting = asyncio.create_task(run_scale(tmp_path, "judge=2"))
        await until(lambda: len(ran.pids()) == 2)
    code, said = await waiting
    assert code == Exit.UNREACHABLE
    assert "the stack has stopped" in said or "is stopping" in said or "is stopped" in said
