"""What fault tests saw is kept and told: merged by test, rendered by id."""

from pathlib import Path

import pytest

from tests.faults import report
from tests.faults.catalogue import FAULTS, Fault
from tests.faults.report import REAL, SIMULATOR, Place, Sight

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


def test_what_nobody_has_seen_is_said_to_be_missing() -> None:
    page = report.render({"P1": Fault("P1", "kill", "")}, {})
    assert "| **P1** | kill | not yet | not yet | not yet | not yet |" in page.splitlines()


def test_what_is_missing_is_said_by_id() -> None:
    promised = {id_: Fault(id_, "kill", "the job ends") for id_ in FAULTS}
    seen_by = {id_: {REAL: {"t": Sight()}} for id_ in FAULTS}
    assert report.list_missing(promised, seen_by) == []
    assert report.list_missing(promised | {"P1": Fault("P1", "kill", "")}, seen_by) == ["P1: no promise"]
    assert report.list_missing(promised, {**seen_by, "P2": {}}) == ["P2: nobody has seen it"]
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
