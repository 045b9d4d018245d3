"""The tools of the fault tests: what they do really happens, is over afterwards, and is told on a page."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mathrag.client import address
from shared.lease.policy import FlipState
from tests.faults import clocks, limits, network, real, report
from tests.faults.catalogue import FAULTS, Fault
from tests.faults.clocks import Clocks
from tests.faults.limits import Disk
from tests.faults.processes import until
from tests.faults.proxy import HOST, Proxy
from tests.faults.real import RealBackEnd, TooLate
from tests.faults.report import REAL, SIMULATOR, Place, Sight
from tests.faults.trial import stack_repaired
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

# A fault test that fails in its middle leaves nothing behind for the next one.

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
    result = pytester.runpytest("-p", "tests.faults.trial", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*test_it.py::test_fails_in_its_middle left behind, repaired now: the cable was cut*",
            "*test_it.py::test_forgets left behind, repaired now: the disk was full*",
        ]
    )


# What fault tests saw is kept and told: merged by test, rendered by id.

KILLS = "tests/faults/test_kills.py::test_a_killed_process_costs_at_most_what_was_in_flight[judge-judge-20]"
FLUSH = "tests/faults/test_kills.py::test_a_redis_flush_costs_nothing_but_time"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    file = tmp_path / "tests/faults/test_kills.py"
    file.parent.mkdir(parents=True)
    names = [test.partition("::")[2].partition("[")[0] for test in (KILLS, FLUSH)]
    file.write_text("".join(f"def {name}(\n" for name in names))
    return tmp_path


def test_a_run_of_a_part_leaves_the_other_rows_as_they_are(repository: Path) -> None:
    first = {Place("P1", "real processes", KILLS): Sight(notes=["old"]), Place("R2", "real processes", FLUSH): Sight()}
    kept = report.merge_sights({}, dict(first), repository)
    merged = report.merge_sights(kept, {Place("P1", "real processes", KILLS): Sight(notes=["new"])}, repository)
    assert merged["P1"]["real processes"][KILLS].notes == ["new"]
    assert merged["R2"] == kept["R2"]


def test_a_test_that_failed_loses_what_it_saw_before(repository: Path) -> None:
    kept = report.merge_sights({}, {Place("P1", "real processes", KILLS): Sight()}, repository)
    assert report.merge_sights(kept, {Place("P1", "real processes", KILLS): None}, repository) == {}


def test_the_sights_of_a_test_that_is_gone_go_too(repository: Path) -> None:
    gone = {Place("P1", "real processes", test): Sight() for test in ("tests/gone.py::test_a", f"{FLUSH}_twice")}
    kept = report.merge_sights({}, dict(gone), repository)
    assert report.merge_sights(kept, {}, repository) == {}


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    sight = Sight(produced=["kill -9"], notes=["whole"], figures={"calls lapsed": 3.0})
    file = tmp_path / "seen.json"
    report.write_sights({"P2": {"simulator": {"t": sight}}, "P1": {"real processes": {"t": sight}}}, file)
    assert report.read_sights(file)["P2"]["simulator"]["t"] == sight
    first = file.read_bytes()
    report.write_sights(report.read_sights(file), file)
    assert file.read_bytes() == first


def test_nothing_is_kept_before_the_first_run(tmp_path: Path) -> None:
    assert report.read_sights(tmp_path / "seen.json") == {}


def test_a_row_tells_what_where_and_which_range() -> None:
    fault = Fault("P1", "kill | of a worker", "the job ends")
    sights_of = {
        "real processes": {
            "a": Sight(produced=["SIGKILL"], notes=["whole"], figures={"calls lapsed": 3.0}),
            "b": Sight(produced=["SIGKILL"], notes=["whole"], figures={"calls lapsed": 16.0}),
        }
    }
    page = report.render({"P1": fault}, {"P1": sights_of})
    row = "| **P1** | kill \\| of a worker | SIGKILL | real processes | the job ends | whole; calls lapsed: 3 to 16 |"
    assert row in page.splitlines()
    both = report.render({"P1": fault}, {"P1": {**sights_of, "simulator": {"c": Sight()}}})
    assert "| SIGKILL | both | the job ends |" in both


def test_what_two_hosts_did_is_told_in_a_table_of_its_own() -> None:
    sights = {f"test_a[{pair}]": Sight(figures={"loads": 2.0}) for pair in ("judge-1 - redis", "no pair")}
    page = report.render({"N1": Fault("N1", "lost packets", "work goes on")}, {"N1": {REAL: sights}})
    assert "| id | between | loads |\n|---|---|---|\n| N1 | judge-1 - redis | 2 |\n\n" in page


def test_what_nobody_has_seen_is_said_to_be_missing() -> None:
    page = report.render({"P1": Fault("P1", "kill", "")}, {})
    assert "| **P1** | kill | not yet | not yet | not yet | not yet |" in page.splitlines()


def test_what_is_missing_is_said_by_id() -> None:
    promised = {id_: Fault(id_, "kill", "the job ends") for id_ in FAULTS}
    seen_by = {id_: {REAL: {"t": Sight()}} for id_ in FAULTS}
    assert report.list_missing(promised, seen_by) == []
    assert report.list_missing(promised | {"P1": Fault("P1", "kill", "")}, seen_by) == ["P1: no promise"]
    assert report.list_missing(promised, {**seen_by, "P2": {}}) == ["P2: no result"]
    ids = list(FAULTS)[: report.MOST_SIMULATED + 1]
    simulated = {id_: {SIMULATOR: {"t": Sight()}} for id_ in ids}
    [said] = report.list_missing(promised, {**seen_by, **simulated})
    assert said == f"more than 12 on the simulator alone: {', '.join(ids)}"
    assert (
        report.list_missing(promised, {**seen_by, **simulated, ids[0]: {**simulated[ids[0]], **seen_by[ids[0]]}}) == []
    )


def test_every_fault_belongs_to_a_family() -> None:
    page = report.render(FAULTS, {})
    assert [id_ for id_ in FAULTS if f"| **{id_}** |" not in page] == []


def test_every_fault_has_a_promise_and_was_seen_and_few_in_virtual_time_alone() -> None:
    assert report.list_missing(FAULTS, report.read_sights()) == []


def test_the_committed_page_is_what_rendering_gives() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.render(FAULTS, report.read_sights())


def run(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it="import pytest\n" + code)
    return pytester.runpytest("-p", "tests.faults.recording", "-p", "no:cacheprovider", *options)


def test_ids_choose_tests(pytester: pytest.Pytester) -> None:
    code = "\n".join(f"@pytest.mark.fault('{id_}')\ndef test_{id_}(seen): seen.describe('x')" for id_ in ("P1", "P10"))
    run(pytester, code, "--fault", "P1").assert_outcomes(passed=1, deselected=1)
    run(pytester, code).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("@pytest.mark.fault('P99')\ndef test_it(seen): pass", "P99"),
        ("@pytest.mark.fault('P1')\ndef test_it(): pass", "fixture `seen`"),
    ],
)
def test_a_marker_without_a_fault_or_a_sight_is_refused(pytester: pytest.Pytester, code: str, said: str) -> None:
    result = run(pytester, code)
    assert result.ret != 0
    assert said in result.stderr.str() + result.stdout.str()


RECORDED = """
@pytest.mark.fault("P1", "P5")
def test_holds(seen):
    seen.describe("SIGKILL")
    seen.figure("calls lapsed", 3.14159)

@pytest.mark.fault("P2", back_end="simulator")
def test_does_not(seen):
    seen.describe("SIGKILL")
    assert False
"""


def test_a_recorded_run_keeps_what_passed_and_forgets_what_failed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: dict[Place, Sight | None] = {}
    monkeypatch.setattr(report, "write_sights", lambda _: None)
    monkeypatch.setattr(report, "write_page", lambda: None)
    monkeypatch.setattr(report, "merge_sights", lambda _, seen: fresh.update(seen))
    result = run(pytester, RECORDED, "--record")
    result.assert_outcomes(passed=1, failed=1)
    held = Sight(produced=["SIGKILL"], figures={"calls lapsed": 3.1})
    assert fresh == {
        Place("P1", REAL, "test_it.py::test_holds"): held,
        Place("P5", REAL, "test_it.py::test_holds"): held,
        Place("P2", SIMULATOR, "test_it.py::test_does_not"): None,
    }


# What the fault tests do to processes and hosts really happens, and is over afterwards.

HOUR = 3600.0
ECHO = """
import os, sys, time
many = [os.dup(0) for _ in range(20)]
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def talker(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with spawned({}) as process:
        yield process


def spawned(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def asked(process: "subprocess.Popen[str]", question: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_process_without_descriptors_can_open_nothing_until_it_is_relieved(talker: "subprocess.Popen[str]") -> None:
    assert asked(talker, "1 + 1") == "2"
    opens = "len([open(sys.executable)])"
    with limits.no_descriptor_left(psutil.Process(talker.pid)):
        assert asked(talker, "2 + 2") == "4"
        assert asked(talker, opens) == "Too many open files"
    assert asked(talker, opens) == "1"


def test_a_full_disk_has_no_room_until_it_is_relieved(tmp_path: Path) -> None:
    try:
        with limits.small_disk(tmp_path / "disk", 1) as disk:
            assert_full_and_relieved(disk)
        assert not (tmp_path / "disk" / "kept").exists()
    except PermissionError as error:
        pytest.skip(f"mounting needs root: {error}")


def assert_full_and_relieved(disk: Disk) -> None:
    disk.fill()
    assert limits.room(disk.folder) == 0
    with pytest.raises(OSError, match="No space left"):
        (disk.folder / "kept").write_bytes(b"x")
    disk.relieve()
    (disk.folder / "kept").write_bytes(b"x")


def test_an_evicted_file_still_says_what_it_said(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"weights")
    limits.evict(file)
    assert file.read_bytes() == b"weights"


def test_a_group_meets_its_limit_and_ends_with_its_block(talker: "subprocess.Popen[str]") -> None:
    try:
        with limits.run_in_group("mathrag-unit", [psutil.Process(talker.pid)]) as group:
            assert asked(talker, "len(bytearray(16 << 20))") == str(16 << 20)
            assert group.peak() > 8 << 20
            group.limit(48 << 20)
            assert group.count_hits() == 0
    except PermissionError as error:
        pytest.skip(str(error))
    assert not group.folder.exists()
    assert asked(talker, "1 + 1") == "2"


@pytest.mark.skipif(not clocks.LIBRARIES, reason="libfaketime is not installed (Debian: libfaketime)")
def test_a_clock_jumps_for_one_process_and_only_on_the_wall(tmp_path: Path) -> None:
    mine = Clocks(tmp_path)
    mine.set("guard", 0)
    with spawned(mine.environment("guard")) as process:
        assert abs(float(asked(process, "time.time()")) - time.time()) < 60
        mine.jump(Subject.GUARD, -HOUR)
        while abs(float(asked(process, "time.time()")) - (time.time() - HOUR)) > 60:
            time.sleep(0.1)
        assert abs(float(asked(process, "time.monotonic()")) - time.monotonic()) < 60


def test_a_jump_of_every_host_leaves_the_database_alone(tmp_path: Path) -> None:
    mine = Clocks(tmp_path)
    mine.jump(Subject.CLOCK, HOUR)
    assert not mine.file("postgres").exists()
    assert mine.file("guard").read_text() == mine.file("judge").read_text() == "+3600.0s\n"
    mine.set("guard", 0, 1.1)
    assert mine.file("guard").read_text() == "+0s x1.1\n"


# Hosts on one machine.

WELCOME = """
import socket
with socket.create_server(("0.0.0.0", 8000)) as server:
    print(socket.gethostname(), flush=True)
    for _ in range(3):
        client, _ = server.accept()
        client.sendall(b"welcome")
        kept = client.dup()  # open until the process ends
"""


def test_hosts_have_names_and_a_network_that_loses_forgets_and_delays(tmp_path: Path) -> None:
    if reason := network.explain_absence():
        pytest.skip(reason)
    with (
        network.run_network(("here", "there", "elsewhere"), tmp_path / "switch.log") as hosts,
        subprocess.Popen(hosts.command("there", [sys.executable, "-c", WELCOME]), stdout=subprocess.PIPE) as server,
        ExitStack() as stopping,
    ):
        stopping.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"there\n"

        def greet() -> socket.socket:
            client = socket.create_connection((hosts.addresses["there"], 8000), timeout=3)
            client.settimeout(1)
            assert client.recv(100) == b"welcome"
            return client

        with greet() as first:
            hosts.forget("here", "there")
            with greet() as second:  # a new connection passes
                server.kill()
                assert second.recv(100) == b""
            with pytest.raises(TimeoutError):
                first.recv(100)
        hosts.cut("here", "there")
        with pytest.raises(TimeoutError):
            greet()
        hosts.heal()
        hosts.disturb(delay_s=0.2, loss=0.0)
        began = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            greet()
        assert time.monotonic() - began >= 0.4
        assert hosts.list_pairs() == {frozenset(("here", "there"))}
