"""The sweeper: whatever a process that died has left undone is found from the rows alone."""

import pytest

from shared.calls import Lane, Request
from shared.replies import Failure, FailureKind
from shared.runtime import lifecycle, queue
from shared.runtime.queue import Claim, lanes_with_work
from shared.storage.database import Database
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    answer,
    by_rule,
    claim,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    repair,
    rows,
    run_sql,
    sample_states,
    scalar,
    stuck,
    submit_job,
    without_gold,
)

pytestmark = pytest.mark.anyio


async def pending(database: Database, items: int = 1) -> Claim:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim(database)
    assert taken is not None
    return taken


async def no_look(*_: object) -> list[int]:
    return []


async def test_a_reply_whose_process_died_before_it_looked_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await pending(database)
    monkeypatch.setattr(queue, "mark_ready_samples", no_look)
    await answer(database, taken)
    assert len(await stuck(database)) == 1
    assert await repair(database) == {Lane.JUDGE}
    assert await sample_states(database) == [0]


async def test_a_sample_that_still_lacks_a_reply_stays_waiting(database: Database) -> None:
    taken = await pending(database, items=2)
    await answer(database, taken, calls=taken.calls[:1])
    assert await repair(database) == {Lane.JUDGE}
    assert sorted(await sample_states(database)) == [0, 1]


async def test_a_claim_whose_worker_died_lapses(database: Database) -> None:
    await pending(database)
    await let_claims_expire(database)
    assert await repair(database) == {Lane.GENERATE}
    assert await rows(database, "SELECT token, lapses FROM queue") == [(None, 1)]


async def test_the_third_lapse_wakes_the_sample_in_the_same_sweep(database: Database) -> None:
    await pending(database)
    await run_sql(database, "UPDATE queue SET lapses = 2")
    await let_claims_expire(database)
    assert await repair(database) == {Lane.JUDGE}
    assert await sample_states(database) == [0]


async def test_a_parked_call_that_is_wanted_is_queued_again(database: Database) -> None:
    await pending(database)
    await run_sql(database, "DELETE FROM queue")
    assert await repair(database) == {Lane.GENERATE}
    assert await scalar(database, "SELECT count(*) FROM queue") == 1
    await drain(database, ScriptedExecutor())
    assert await sample_states(database) == [2]


async def test_a_parked_call_that_nobody_wants_stays_parked(database: Database) -> None:
    await pending(database)
    await run_sql(database, "DELETE FROM queue")
    await run_sql(database, "UPDATE samples SET state = 4")
    await run_sql(database, "UPDATE jobs SET state = 'cancelled'")
    assert await repair(database) == set()
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_an_answered_call_is_not_queued_again(database: Database) -> None:
    taken = await pending(database, items=2)
    await answer(database, taken)
    await repair(database)
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def prepared(database: Database, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    await furnish(database, items=3)
    await submit_job(database)

    async def died(_database: Database, _most: int) -> list[int]:
        return []

    with monkeypatch.context() as context:
        context.setattr(lifecycle, "finish_due_jobs", died)
        await drain(database, executor)


async def test_a_prepared_job_is_expanded_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepared(database, ScriptedExecutor(), monkeypatch)
    assert await job_states(database) == ["preparing"]
    assert await repair(database) == {Lane.JUDGE}
    await repair(database)
    assert await job_states(database) == ["running"]
    assert await rows(database, "SELECT ordinal, repeat, state FROM samples WHERE kind = 'item' ORDER BY 1") == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    decision = "SELECT prepared = (SELECT outcome FROM outcomes) FROM jobs"
    assert await scalar(database, decision) is True


async def test_a_failed_calibration_fails_the_job_with_its_reason(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(request: Request) -> object:
        return Failure(kind=FailureKind.UNPARSED, detail="no rating") if request.role == "judge" else by_rule(request)

    await prepared(database, ScriptedExecutor(mute), monkeypatch)  # type: ignore[arg-type]
    await repair(database)
    assert await job_states(database) == ["failed"]
    reason = str(await scalar(database, "SELECT reason FROM jobs"))
    assert "judge unusable" in reason
    assert "gate.on_unusable=rules" in reason
    assert await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'item'") == 0
    assert await scalar(database, "SELECT ended_at IS NULL FROM jobs") is False


async def test_a_mute_judge_may_be_passed_over_if_the_job_says_so(database: Database) -> None:
    def mute(request: Request) -> object:
        return Failure(kind=FailureKind.UNPARSED, detail="no rating") if request.role == "judge" else by_rule(request)

    await furnish(database, items=2)
    await submit_job(database, params={"gate": {"on_unusable": "rules"}})
    await drain(database, ScriptedExecutor(mute))  # type: ignore[arg-type]
    assert await job_states(database) == ["completed"]
    assert b'"strategy":"rules"' in bytes(await scalar(database, "SELECT prepared FROM jobs"))  # type: ignore[arg-type]


async def test_an_anchor_without_a_slot_fails_the_job_and_names_it(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, params={"anchors": {"negative": "?"}})
    await run_sql(
        database,
        "UPDATE jobs SET params = convert_to(replace(convert_from(params, 'UTF8'), '\"negative\"', '\"no_such_slot\"'),"
        " 'UTF8')",
    )
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["failed"]
    assert "no_such_slot" in str(await scalar(database, "SELECT reason FROM jobs"))


async def test_a_drained_job_is_completed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = await pending(database)
    await answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"]
    assert await repair(database) == set()
    assert await job_states(database) == ["completed"]
    ended = await rows(database, "SELECT ended_at, version FROM jobs")
    await repair(database)
    assert await rows(database, "SELECT ended_at, version FROM jobs") == ended


async def test_a_job_with_a_live_sample_is_not_completed(database: Database) -> None:
    taken = await pending(database, items=2)
    await answer(database, taken, calls=taken.calls[:1])
    await advance(database)
    await repair(database)
    assert await job_states(database) == ["running"]


async def test_a_job_all_of_whose_samples_failed_is_completed(database: Database) -> None:
    taken = await pending(database, items=2)
    await answer(database, taken, Failure(kind=FailureKind.REFUSED))
    await advance(database)
    await repair(database)
    assert await job_states(database) == ["completed"]
    assert await sample_states(database) == [3, 3]


async def test_lanes_with_work_are_those_with_pending_calls_or_ready_samples(database: Database) -> None:
    await furnish(database, items=1)
    assert await lanes_with_work(database) == set()
    await submit_job(database, "closed-book")
    assert await lanes_with_work(database) == {Lane.JUDGE}
    await advance(database)
    assert await lanes_with_work(database) == {Lane.GENERATE}
    await claim(database)
    assert await lanes_with_work(database) == set()


async def test_a_queue_row_of_an_answered_call_does_not_stop_the_sweeper(database: Database) -> None:
    taken = await pending(database)
    await answer(database, taken)
    await run_sql(
        database,
        "INSERT INTO queue (lane, model_id, place, call_id, lapses, token, claim_until)"
        " SELECT lane, model_id, 100, id, 2, gen_random_uuid(), now() - interval '1 s' FROM calls",
    )
    await repair(database)
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 1
