"""A trial: a job on a stack, its faults, and the check that it ends complete; leftovers of a test are repaired.

A test that fails leaves no defect for the next one, and the repair names each defect. A test that repairs what it broke
leaves nothing to do here.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import psutil
import pytest

from mathrag.client import address
from shared.settings import Workers
from tests.faults.processes import Processes, resume, until
from tests.faults.real import RealBackEnd, TooLate
from tests.faults.recording import Seen
from tests.faults.vocabulary import Event, Scenario
from tests.running import JUDGED, Document, RunningStack, ended


@runtime_checkable
class Repairable(Protocol):
    """The parts that a fault test may break, with their stack."""

    def repair(self) -> list[str]:
        """Repair it, and return its defects."""
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
    """Start ended services, resume stopped processes, free the devices, and cancel running jobs.

    Returns the defects, once every service runs and a job can run. A service that has died is no leftover: it is
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
    """Resume stopped processes; servers that a test has added to the stack are children of this process."""
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


JOB = {"reuse": "none", "params": JUDGED}
"""Every job runs without reuse."""
SOONER = {"MATHRAG_WORKERS__CLAIM_TTL_S": "5", "MATHRAG_SWEEP_S": "1"}
"""Less than the defaults, 15 s and 5 s, so that lost work is repeated sooner."""
TRIES = 3
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""


@dataclass(frozen=True)
class Trial:
    """A test's access to the stack: it submits jobs, kills processes and checks the end."""

    stack: RunningStack
    whole: Mapping[str, int]
    """Calls that each stage makes when nothing goes wrong."""
    seen: Seen

    @property
    def processes(self) -> Processes:
        return Processes(self.stack)

    def repair(self) -> list[str]:
        """Repair its stack, and return the defects."""
        return stack_repaired(self.stack)

    def survives(self, fault: str, *events: Event) -> Document:
        """A job that these events happen to; its report, once it has come out whole."""
        return self.ends_whole(self.play(fault, events, lambda job: RealBackEnd(self.stack, job, self.whole)))

    def play(self, fault: str, events: Sequence[Event], back_end: Callable[[str], RealBackEnd]) -> str:
        """Submit a job that these events happen to; its id, once they have. A job that ended too soon is repeated."""
        for _ in range(TRIES):
            job = self.stack.submit(fault, **JOB)
            with suppress(TooLate):
                asyncio.run(back_end(job).play(Scenario(fault, events)))
                return job
        raise TooLate

    def ends_whole(self, job: str) -> Document:
        """The job ends by itself, with every sample and a clean audit; its report."""
        self.stack.assert_whole(job)
        report: Document = self.stack.get(f"/v1/jobs/{job}/report")
        for name, figure in (("calls lapsed", "calls_lapsed"), ("loads", "model_loads"), ("seconds", "seconds")):
            self.seen.figure(name, report[figure])
        return report


def measure_calls(stack: RunningStack) -> dict[str, int]:
    """Count the calls that each stage of an undisturbed job makes."""
    job = stack.submit("undisturbed", **JOB)
    stack.wait(job, ended)
    made: dict[str, int] = stack.get(f"/v1/jobs/{job}/report")["calls_made"]
    return made
