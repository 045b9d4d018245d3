"""What an earlier supervisor left behind is waited for and killed; what is somebody else's is let alone."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mathrag.client import address
from mathrag.stack import process as process_module
from mathrag.stack.process import Time, read_birth
from tests.faults.recording import Seen

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def living() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def record(data_dir: Path, pid: int, born: str) -> None:
    child = address.ChildState(name="old", phase="ready", pid=pid, port=None, restarts=0, log="", born=born)
    address.write_state(data_dir, address.State(pid=1, url="", phase="running", children=(child,)))


def impatient() -> Time:
    seconds: Iterator[int] = iter(range(0, 10_000, 5))
    return Time(now=lambda: float(next(seconds)), sleep=lambda _: asyncio.sleep(0.01))


async def test_a_child_that_outlives_its_supervisor_is_killed(tmp_path: Path) -> None:
    async with living() as left:
        record(tmp_path, left.pid, read_birth(left.pid))
        await process_module.clear(tmp_path, time=impatient())
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
        await process_module.clear(tmp_path, time=impatient())
        assert foreign.returncode is None
        assert read_birth(foreign.pid)
    seen.note("the process lives, and nothing waits for it")


async def test_a_process_that_is_gone_has_no_birth() -> None:
    async with living() as process:
        assert read_birth(process.pid) == read_birth(process.pid) != read_birth(os.getpid())
    assert read_birth(process.pid) == ""
