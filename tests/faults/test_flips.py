"""Who decides a flip, who carries it out, and what it loads are killed in every state of it."""

import signal

import pytest

from shared.lease.policy import FlipState
from tests.faults.gates import Session, Write, gate
from tests.faults.processes import until
from tests.faults.real import guard_state
from tests.faults.trial import IN_FLIGHT, JOB, Trial
from tests.faults.vocabulary import Moment, Subject, at, at_flip_state, kill

STATES = (
    FlipState.DRAINING,
    FlipState.UNLOADING,
    FlipState.VERIFY_FREE,
    FlipState.LOADING,
    FlipState.VERIFY_RESIDENT,
)
HELD = (
    "while a gate in the database holds the guard in each of draining, unloading, verify_free, loading, verify_resident"
)
NEWEST = "SELECT state, reason FROM residencies ORDER BY epoch DESC LIMIT 1"


@pytest.mark.fault("P8")
@pytest.mark.parametrize("state", STATES)
def test_a_guard_that_dies_in_a_flip_is_followed_by_one_that_begins_anew(trial: Trial, state: FlipState) -> None:
    trial.seen.describe(f"SIGKILL of the guard {HELD}")
    trial.survives("P8", at(at_flip_state(state), kill(Subject.GUARD)))
    with Session(trial.stack) as session:
        assert session.rows("SELECT count(*) FROM residencies WHERE reason = 'guard_restart'")[0][0]
    trial.seen.note(
        "the next guard closes what was begun (`guard_restart`); its model servers have died with the first"
    )


@pytest.mark.fault("P9")
@pytest.mark.parametrize("state", STATES)
def test_a_scheduler_that_dies_in_a_flip_is_not_missed(trial: Trial, state: FlipState) -> None:
    trial.seen.describe(f"SIGKILL of the orchestrator {HELD}")
    report = trial.survives("P9", at(at_flip_state(state), kill(Subject.ORCHESTRATOR)))
    assert report["calls_lapsed"] <= IN_FLIGHT


@pytest.mark.fault("P9")
def test_a_scheduler_that_dies_while_it_decides_has_decided_nothing(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of the orchestrator while a gate holds the row of its decision")
    with gate(trial.stack, Write("residencies", "INSERT", "true")) as held:
        job = trial.stack.submit("P9", **JOB)
        held.wait_until_reached()
        before = epochs(trial)
        trial.processes.kill(Subject.ORCHESTRATOR)
        held.open()
        until("its decision is rolled back", lambda: not held.list_waiting())
        assert epochs(trial) == before
    trial.ends_whole(job)
    trial.seen.note("a decision that was not committed is none")


@pytest.mark.fault("P10")
@pytest.mark.parametrize("stage", ["judge", "generate"])
def test_a_model_server_that_dies_at_work_is_loaded_again(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGKILL of the model server at 30 % of a stage's calls")
    report = trial.survives("P10", at(Moment(stage, 0.3), kill(Subject.SERVER)))
    assert report["model_loads"] > 2
    with Session(trial.stack) as session:
        assert session.rows("SELECT count(*) FROM residencies WHERE reason = 'server_exit'")[0][0]
    trial.seen.note("its residency is closed (`server_exit`), and the model is loaded again")


@pytest.mark.fault("P10", "P8")
@pytest.mark.parametrize("guard_too", [False, True], ids=["server", "server and guard"])
def test_a_model_server_that_dies_while_it_loads_costs_a_quarantine(trial: Trial, guard_too: bool) -> None:
    trial.seen.describe("SIGKILL of the model server in the middle of its load")
    before = {server.pid for server in trial.processes.servers()}
    with gate(trial.stack, Write("residencies", "UPDATE", "NEW.state = 'quarantined'")) as held:
        job = trial.stack.submit("P10", **JOB)
        until("a model server comes", lambda: {server.pid for server in trial.processes.servers()} - before, 0.002)
        trial.processes.signal(Subject.SERVER, signal.SIGSTOP)  # it must not be up before we have looked
        assert guard_state(trial.stack)["state"] == FlipState.LOADING
        trial.processes.kill(Subject.SERVER)
        held.wait_until_reached()
        assert guard_state(trial.stack)["state"] == FlipState.QUARANTINED
        if guard_too:
            trial.seen.describe("and SIGKILL of the guard while a gate holds it in quarantined")
            trial.processes.kill(Subject.GUARD)
    trial.ends_whole(job)
    trial.seen.note(
        "the device is quarantined, in words, and tried again ten seconds later, or by the next guard at once"
    )


def epochs(trial: Trial) -> int:
    with Session(trial.stack) as session:
        found: int = session.rows("SELECT count(*) FROM residencies")[0][0]
        return found
