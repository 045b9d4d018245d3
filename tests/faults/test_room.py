"""The data folder's disk is full, and processes end while it is: when there is room again, the job continues."""

from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from mathrag_gate.stack import control
from tests.faults import limits
from tests.faults.limits import Disk, small_disk
from tests.faults.processes import Processes, until
from tests.faults.real import done
from tests.faults.recording import Seen
from tests.faults.trial import JOB, SOONER
from tests.running import Document, RunningStack, running_stack

DISK_MIB = 400
"""A cluster takes 64, its log of committed changes up to 80 more."""
KILLED = ("orchestrator", "judge", "guard", "redis", "postgres")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    try:
        with small_disk(tmp_path_factory.mktemp("room") / "data", DISK_MIB) as mounted:
            yield mounted
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")


@pytest.fixture(scope="module")
def stack(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(disk.folder, **SOONER) as running:
        running.furnish(tmp_path_factory.mktemp("world"), items=150)
        yield running


@pytest.mark.fault("H5")
def test_a_full_disk_under_the_data_folder_is_waited_for(stack: RunningStack, disk: Disk, seen: Seen) -> None:
    seen.describe(f"the data folder's tmpfs is filled in the middle of a job, and {', '.join(KILLED)} are killed")
    supervisor = psutil.Process(Processes(stack).supervisor())
    job = stack.submit("H5", **JOB)
    stack.wait(job, partial(is_judged, 30))
    disk.fill()
    before = {process.pid for process in supervisor.children()}
    for name in KILLED:
        stack.kill(name)
    until("something was started again", lambda: list_children(supervisor) - before)
    assert limits.room(disk.folder) < control.NEEDED
    assert "is full" in stack.status()["warning"]
    assert supervisor.is_running()
    disk.relieve()
    stack.assert_whole(job)
    assert stack.status()["warning"] is None
    assert {child["name"] for child in stack.status()["stack"]["children"] if child["restarts"]} >= set(KILLED)
    seen.note("the supervisor reports the full disk and restarts the ended processes until they start")


def is_judged(goal: int, document: Document) -> bool:
    return done(document, "judge") >= goal


def list_children(supervisor: psutil.Process) -> set[int]:
    return {process.pid for process in supervisor.children()}
