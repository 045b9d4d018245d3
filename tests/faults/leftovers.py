"""What a test has left behind is repaired before the next one begins, and named: a test that fails leaves nothing.

A test that repairs what it broke leaves nothing to do here.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol, runtime_checkable

import psutil
import pytest

from mathrag.client import address
from tests.faults.processes import Processes, resume, until
from tests.running import RunningStack, ended


@runtime_checkable
class Repairable(Protocol):
    """What a fault test may break, with the stack that belongs to it."""

    def repair(self) -> list[str]:
        """Make it whole, and return what was wrong with it."""
        ...


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    used = request.node.funcargs.values()
    found = [said for value in used if isinstance(value, Repairable) for said in value.repair()]
    if not any(isinstance(value, Repairable) for value in used):
        found = [said for value in used if isinstance(value, RunningStack) for said in stack_repaired(value)]
    assert not found, f"{request.node.nodeid} left behind, repaired now: {'; '.join(found)}"


def stack_repaired(stack: RunningStack) -> list[str]:
    """Start what is down, let stopped processes go on, free the devices, and cancel jobs that still run.

    Returns what was wrong, once every service runs and a job could. A service that has died is no leftover: it is
    waited for until the supervisor has started it again.
    """
    found = [*_start_stack(stack), *_resume_processes(stack)]
    until("every service runs", lambda: _all_run(stack))
    found += _release_devices(stack)
    until("a job can run", lambda: stack.get("/readyz")["ready"])
    return [*found, *_cancel_jobs(stack)]


def _all_run(stack: RunningStack) -> bool:
    now = address.read_state(stack.data_dir)
    return now is not None and all(child.phase == "ready" for child in now.children)


def _start_stack(stack: RunningStack) -> Iterator[str]:
    if not psutil.pid_exists(Processes(stack).supervisor()):
        Processes(stack).start()
        yield "the stack was down"


def _resume_processes(stack: RunningStack) -> list[str]:
    """Resume stopped processes; servers that a test has put beside the stack are children of this process."""
    roots = [psutil.Process(Processes(stack).supervisor()), psutil.Process()]
    stopped = [process for root in roots for process in root.children(recursive=True) if _is_stopped(process)]
    messages = [f"process {process.pid} was stopped" for process in stopped]
    resume(stopped)
    return messages


def _is_stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def _release_devices(stack: RunningStack) -> Iterator[str]:
    """A drained device is a leftover. A quarantined one is not: many faults end so, and where no job needs the device
    any more it stays so; one that was quarantined too often is tried again only when its guard is restarted.
    """
    for device in stack.get("/v1/gpus"):
        if device["drain"] is not None:
            stack.api.post(f"/v1/gpus/{device['device']}/release")
            yield f"{device['device']} was drained"
        if device["state"] == "quarantined":
            stack.restart("guard")


def _cancel_jobs(stack: RunningStack) -> list[str]:
    live = [job for job in stack.get("/v1/jobs?limit=100")["data"] if not ended(job)]
    for job in live:
        stack.api.post(f"/v1/jobs/{job['id']}/cancel")
    for job in live:
        stack.wait(job["id"], ended)
    return [f"the job {job['name']!r} was {job['state']}" for job in live]
