"""Wait for the children of a killed supervisor: the kernel has signalled them to end, but they may still run."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil

from mathrag.client import stack_state
from mathrag.stack.birth import read_birth
from mathrag.stack.process import POLL_S, Time

PATIENCE_S = 10.0


async def clear(data_dir: Path, *, time: Time) -> None:
    """Wait until no child of an earlier supervisor of this directory is left; kill them after `PATIENCE_S`."""
    deadline = time.now() + PATIENCE_S
    while left := _find_alive(data_dir):
        if time.now() >= deadline:
            _kill(left)
        await time.sleep(POLL_S)


def _find_alive(data_dir: Path) -> list[psutil.Process]:
    last = stack_state.read(data_dir)
    recorded = last.children if last else ()
    return [process for child in recorded if (process := _process(child)) is not None]


def _process(child: stack_state.ChildState) -> psutil.Process | None:
    # Process ids are reused, so the id alone does not prove that the process is ours.
    if child.pid is None or not child.born or read_birth(child.pid) != child.born:
        return None
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(child.pid)
        # A zombie has ended; it only waits to be reaped by its new parent.
        return process if process.status() != psutil.STATUS_ZOMBIE else None
    return None


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
