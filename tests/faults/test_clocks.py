"""Clocks that lie: of one host, of the database, of everybody; the rows stay in order, and the job ends."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import pytest

from tests.faults import clocks
from tests.faults.clocks import Clocks, clocked_stack
from tests.faults.conftest import ITEMS
from tests.faults.gates import Session
from tests.faults.real import RealBackEnd
from tests.faults.recording import Seen
from tests.faults.trial import JOB, SOONER, Trial, measure_calls
from tests.faults.vocabulary import Event, Subject, at, at_judged_share, jump, kill
from tests.running import RunningStack, ended

HOUR = 3600.0
STAMPED_WRONG = """
    SELECT count(*) FROM attempts
    WHERE worker LIKE 'judge@%' AND epoch IS NULL AND started_at < created_at - interval '30 minutes'"""

pytestmark = pytest.mark.skipif(not clocks.LIBRARIES, reason="libfaketime is not installed (Debian: libfaketime)")


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningStack, Clocks]]:
    folder = tmp_path_factory.mktemp("clocks")
    with clocked_stack(folder / "data", **SOONER) as (running, times):
        running.furnish(folder / "world", items=ITEMS)
        yield running, times


@pytest.fixture(scope="module")
def calls(clocked: tuple[RunningStack, Clocks]) -> dict[str, int]:
    return measure_calls(clocked[0])


@pytest.fixture
def times(clocked: tuple[RunningStack, Clocks]) -> Iterator[Clocks]:
    yield clocked[1]
    for subject in (Subject.CLOCK, Subject.POSTGRES):
        clocked[1].jump(subject, 0)


@pytest.fixture
def trial(clocked: tuple[RunningStack, Clocks], times: Clocks, calls: dict[str, int], seen: Seen) -> Trial:
    return Trial(clocked[0], calls, seen)


@pytest.mark.fault("T1", "T5")
@pytest.mark.parametrize("subject", [Subject.GUARD, Subject.JUDGE, Subject.ORCHESTRATOR], ids=str)
def test_a_wall_clock_that_jumps_is_believed_by_nobody(trial: Trial, times: Clocks, subject: Subject) -> None:
    trial.seen.describe(
        "libfaketime sets the wall clock of guard, judge worker or orchestrator an hour ahead at 30 % of the judge's "
        "calls, and an hour back at 80 %; its monotonic clock keeps running"
    )
    trial.ends_whole(
        play_events(
            trial,
            times,
            "T1",
            at(at_judged_share(0.3), jump(subject, HOUR)),
            at(at_judged_share(0.8), jump(subject, -HOUR)),
        )
    )
    if subject is Subject.JUDGE:
        with Session(trial.stack) as session:
            assert session.rows(STAMPED_WRONG)[0][0], "its clock was never wrong"
    else:
        assert_ahead(trial.stack, subject, -HOUR)


@pytest.mark.fault("T1", "T5")
def test_guards_that_start_under_wrong_clocks_keep_the_order_of_the_rows(trial: Trial, times: Clocks) -> None:
    trial.seen.describe("SIGKILL of the guard after either jump, so that the next one starts under that clock")
    events = (
        at(at_judged_share(0.2), jump(Subject.GUARD, HOUR)),
        at(at_judged_share(0.3), kill(Subject.GUARD)),
        at(at_judged_share(0.6), jump(Subject.GUARD, -HOUR)),
        at(at_judged_share(0.7), kill(Subject.GUARD)),
    )
    trial.ends_whole(play_events(trial, times, "T1", *events))
    assert_ahead(trial.stack, Subject.GUARD, -HOUR)


@pytest.mark.fault("T2")
def test_clocks_of_different_speed_do_no_harm(trial: Trial, times: Clocks) -> None:
    trial.seen.describe("libfaketime runs the guard's clock 10 % too fast and the judge worker's 10 % too slow")
    for name, rate in (("guard", 1.1), ("judge", 0.9)):
        times.set(name, 0, rate)
    trial.ends_whole(trial.stack.submit("T2", **JOB))


@pytest.mark.fault("T3")
def test_a_leap_ahead_of_the_databases_clock_costs_claims_at_most(trial: Trial, times: Clocks) -> None:
    trial.seen.describe("libfaketime sets PostgreSQL's clock an hour ahead at 30 % of the judge's calls")
    job = play_events(trial, times, "T3", at(at_judged_share(0.3), jump(Subject.POSTGRES, HOUR)))
    trial.ends_whole(job)
    assert abs(ahead_of(trial.stack) - HOUR) < 60


@pytest.mark.fault("T3")
def test_nobody_waits_until_the_databases_clock_has_caught_up(trial: Trial, times: Clocks) -> None:
    trial.seen.describe("SIGKILL of the judge worker, and PostgreSQL's clock is set an hour back")
    events = (at(at_judged_share(0.3), kill(Subject.JUDGE)), at(at_judged_share(0.0), jump(Subject.POSTGRES, -HOUR)))
    job = play_events(trial, times, "T3", *events)
    document = trial.stack.wait(job, ended)
    counts = document["request_counts"]
    assert (document["state"], counts["completed"]) == ("completed", counts["total"])
    assert abs(ahead_of(trial.stack) + HOUR) < 60
    found = {violation["invariant"] for violation in trial.stack.get(f"/v1/jobs/{job}/audit")["violations"]}
    # I17: of a sample that ended just before the leap, the end is later than the job's.
    assert found <= {"I17", "I21"}
    trial.seen.note("after a leap back, the audit's only finding is that times went back (I21, I17), which is true")


def play_events(trial: Trial, times: Clocks, fault: str, *events: Event) -> str:
    return trial.play(fault, events, lambda job: RealBackEnd(trial.stack, job, trial.whole, clocks=times))


def assert_ahead(stack: RunningStack, subject: Subject, seconds: float) -> None:
    url = stack.url if subject is Subject.ORCHESTRATOR else stack.service_url("guard")
    said = httpx2.get(f"{url}/healthz", timeout=60, trust_env=False).headers["date"]
    assert abs((parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds() - seconds) < 60


def ahead_of(stack: RunningStack) -> float:
    with Session(stack) as session:
        found: datetime = session.rows("SELECT clock_timestamp()")[0][0]
        return (found - datetime.now(UTC)).total_seconds()
