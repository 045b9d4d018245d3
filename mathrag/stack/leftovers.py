"""Children of a supervisor that was killed: the kernel has told them to end; wait for it before starting new ones."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil

from mathrag.client import stack_state
from mathrag.stack.birth import birth
from mathrag.stack.process import POLL_S, Time

PATIENCE_S = 10.0


async def clear(data_dir: Path, *, time: Time) -> None:
    """Return when no child of an earlier supervisor of this directory is left."""
    deadline = time.now() + PATIENCE_S
    while left := _alive(data_dir):
        if time.now() >= deadline:
            _kill(left)
        await time.sleep(POLL_S)


def _alive(data_dir: Path) -> list[psutil.Process]:
    last = stack_state.read(data_dir)
    recorded = last.children if last else ()
    return [process for child in recorded if (process := _process(child)) is not None]


def _process(child: stack_state.ChildState) -> psutil.Process | None:
    # A process id is used again sooner or later, so the id alone does not say that the process is ours.
    if child.pid is None or not child.born or birth(child.pid) != child.born:
        return None
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(child.pid)
        # A zombie only waits for its new parent to take note.
        return process if process.status() != psutil.STATUS_ZOMBIE else None
    return None


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
