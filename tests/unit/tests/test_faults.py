"""A fault test that fails in its middle leaves nothing behind for the next one."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mathrag.client import address
from shared.lease.policy import FlipState
from tests.faults import real
from tests.faults.leftovers import stack_repaired
from tests.faults.processes import until
from tests.faults.proxy import HOST, Proxy
from tests.faults.real import RealBackEnd, TooLate
from tests.faults.vocabulary import (
    Action,
    Event,
    Scenario,
    Subject,
    at,
    at_flip_state,
    at_judged_share,
    freeze,
    kill,
    part,
    slow,
)
from tests.running import Document, RunningStack

LONG_S = 600.0
RUNNING: Document = {"id": "1", "name": "a-job", "state": "running", "stages": {"judge": {"done": 0}}}
ENDED = {**RUNNING, "state": "completed"}


class StandIn(RunningStack):
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.posted: list[str] = []
        self.gpu = {"device": "cpu:0", "state": "open", "drain": None}
        self.api = SimpleNamespace(post=self.posted.append)  # type: ignore[assignment]

    def wait(self, job: str, until: Callable[[Document], bool]) -> Document:
        assert job
        return RUNNING if until(RUNNING) else ENDED

    def get(self, path: str) -> object:
        known = {"/readyz": {"ready": True}, "/v1/jobs?limit=100": {"data": [RUNNING, ENDED]}, "/v1/gpus": [self.gpu]}
        return known[path]

    def restart(self, name: str) -> None:
        self.posted.append(f"restart {name}")


@pytest.fixture
def judge() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


@pytest.fixture
def stack(tmp_path: Path, judge: psutil.Process) -> StandIn:
    child = address.ChildState(name="judge", phase="ready", pid=judge.pid, port=None, restarts=0, log="")
    address.write_state(tmp_path, address.State(pid=judge.pid, url="", phase="running", children=(child,)))
    return StandIn(tmp_path)


@pytest.fixture
def cable() -> Iterator[Proxy]:
    with socket.create_server((HOST, 0)) as server, Proxy(server.getsockname()[1]) as proxy:
        yield proxy


def fail_after(stack: RunningStack, action: Action, **options: object) -> None:
    back_end = RealBackEnd(stack, "1", {"judge": 10}, **options)  # type: ignore[arg-type]
    scenario = Scenario("P6", (at(at_judged_share(0.0), action), at(at_judged_share(0.5), kill(Subject.JUDGE))))
    with pytest.raises(TooLate):
        asyncio.run(back_end.play(scenario))


def test_a_process_that_a_failed_trial_has_stopped_goes_on(stack: StandIn, judge: psutil.Process) -> None:
    fail_after(stack, freeze(Subject.JUDGE, LONG_S))
    assert judge.status() != psutil.STATUS_STOPPED


@pytest.mark.parametrize("action", [part(Subject.REDIS, LONG_S), slow(Subject.REDIS, LONG_S)], ids=str)
def test_a_cable_that_a_failed_trial_has_harmed_is_whole(stack: StandIn, cable: Proxy, action: Action) -> None:
    fail_after(stack, action, proxies={Subject.REDIS: cable})
    assert cable.repair() == []


def test_a_gate_that_a_failed_trial_has_shut_is_open(stack: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = []

    @contextmanager
    def held(*_: object) -> Iterator[None]:
        shut.append("gate")
        try:
            yield
        finally:
            shut.clear()

    def elsewhere(_: object) -> Document:
        assert shut
        return {"state": "open"}

    monkeypatch.setattr(real, "flip_held", held)
    monkeypatch.setattr(real, "guard_state", elsewhere)
    event = Event(at_flip_state(FlipState.LOADING), kill(Subject.GUARD))
    with pytest.raises(AssertionError):
        asyncio.run(RealBackEnd(stack, "1", {}).play(Scenario("P8", (event,))))
    assert not shut


def test_a_harmed_cable_is_repaired_and_named(cable: Proxy) -> None:
    cable.part()
    cable.silence()
    cable.delay_s = LONG_S
    cable.switch(1)
    said = " ".join(cable.repair())
    assert all(harm in said for harm in ("was cut", "was silent", "was slow", "led to another server"))
    assert cable.repair() == []


def test_a_stack_is_repaired_and_what_was_wrong_is_named(stack: StandIn, judge: psutil.Process) -> None:
    judge.suspend()
    until("the signal has arrived", lambda: judge.status() == psutil.STATUS_STOPPED)
    found = stack_repaired(stack)
    assert found == [f"process {judge.pid} was stopped", "the job 'a-job' was running"]
    assert judge.status() != psutil.STATUS_STOPPED
    assert stack.posted == ["/v1/jobs/1/cancel"]


def test_a_device_that_takes_no_model_is_freed(stack: StandIn) -> None:
    stack.gpu |= {"drain": {"reason": None}, "state": "quarantined"}
    found = stack_repaired(stack)
    assert found[0] == "cpu:0 was drained"
    assert not [said for said in found if "quarantined" in said]
    assert stack.posted[:2] == ["/v1/gpus/cpu:0/release", "restart guard"]


TESTS = """
import pytest

class Harmed:
    wrong = []

    def repair(self):
        found, self.wrong = self.wrong, []
        return found

@pytest.fixture(scope="module")
def thing():
    return Harmed()

def test_fails_in_its_middle(thing):
    thing.wrong = ["the cable was cut"]
    assert False

def test_forgets(thing):
    assert thing.wrong == []
    thing.wrong = ["the disk was full"]

def test_leaves_nothing(thing):
    assert thing.wrong == []
"""


def test_each_test_begins_with_everything_whole(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest("-p", "tests.faults.leftovers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*test_it.py::test_fails_in_its_middle left behind, repaired now: the cable was cut*",
            "*test_it.py::test_forgets left behind, repaired now: the disk was full*",
        ]
    )
