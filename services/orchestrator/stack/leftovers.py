"""Children of a supervisor that was killed: the kernel has told them to end; wait for it before starting new ones."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil

from services.orchestrator.stack import state
from services.orchestrator.stack.process import POLL_S, Time

PATIENCE_S = 10.0


async def clear(data_dir: Path, *, time: Time) -> None:
    """Return when no child of an earlier supervisor of this directory is left."""
    deadline = time.now() + PATIENCE_S
    while left := _alive(data_dir):
        if time.now() >= deadline:
            _kill(left)
        await time.sleep(POLL_S)


def _alive(data_dir: Path) -> list[psutil.Process]:
    last = state.read(data_dir)
    pids = [child.pid for child in last.children if child.pid] if last else []
    # A process id is used again sooner or later: only one that was there when the file was written is ours.
    written = (data_dir / state.FILE).stat().st_mtime if last else 0.0
    return [process for pid in pids if (process := _process(pid, before=written)) is not None]


def _process(pid: int, *, before: float) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        # A zombie only waits for its new parent to take note.
        if process.create_time() <= before + 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
