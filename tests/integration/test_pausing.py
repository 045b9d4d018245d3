"""Jobs that are paused and resumed, and what is refused when a job is submitted."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from mathrag.errors import Conflict, Invalid, NotFound, PreconditionFailed, Unavailable
from services.orchestrator.api.jobs import JobRequest
from shared.calls import Generate
from shared.params import Params
from shared.rag.provenance import make_outcome
from shared.replies import require
from shared.runtime import lifecycle
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, pause, resume
from shared.runtime.pins import ModelIdentity, register
from shared.runtime.queue import CLAIM, REVIVE, lanes_with_work, sweep
from shared.runtime.submit import INSERTED, copy_submission, submit
from shared.samples import Library, Pipeline, Sample, Steps
from shared.storage.database import Database
from shared.storage.jobs import JOB_COLUMNS, JOB_FIELDS, get
from tests.integration.scene import (
    SETTINGS,
    HeldDatabase,
    ScriptedExecutor,
    advance,
    answer,
    answer_preparations,
    claim,
    claim_some,
    commit_while_waited_for,
    die_before_commit,
    drain,
    furnish,
    install,
    job_states,
    processes,
    queue_job,
    repair,
    rows,
    run_sql,
    sample_states,
    scalar,
    stuck,
    submit_job,
    two_questions,
    without_gold,
)

# Pause and resume: nothing of a paused job is begun, nobody else is harmed, and it goes on exactly where it was.


pytestmark = pytest.mark.anyio

QUEUED = "SELECT count(*) FROM queue"


async def completes(database: Database, expected: list[str]) -> ScriptedExecutor:
    executor = ScriptedExecutor()
    await drain(database, executor)
    assert await job_states(database) == expected
    return executor


async def test_a_paused_job_leaves_no_work_behind(database: Database) -> None:
    job = await queue_job(database)
    await pause(database, job)
    assert (await job_states(database), await sample_states(database)) == (["paused"], [1, 1])
    assert await scalar(database, QUEUED) == 0
    await sweep(database, "sweeper")
    assert await lanes_with_work(database) == set()
    executor = ScriptedExecutor()
    await drain(database, executor)
    assert not executor.ran
    assert await job_states(database) == ["paused"]


async def test_a_resumed_job_goes_on_where_it_was(database: Database) -> None:
    job = await queue_job(database)
    await pause(database, job)
    await resume(database, job)
    assert await scalar(database, QUEUED) == 2
    executor = await completes(database, ["completed"])
    assert len(executor.ran) == await scalar(database, "SELECT count(*) FROM calls") == 2


async def test_pausing_and_resuming_again_is_harmless(database: Database) -> None:
    job = await queue_job(database)
    for verb, state in ((pause, "paused"), (resume, "running")):
        await verb(database, job)
        version = await scalar(database, "SELECT version FROM jobs")
        await verb(database, job)
        assert await rows(database, "SELECT state, version FROM jobs") == [(state, version)]


async def test_ready_samples_of_a_paused_job_are_not_advanced(database: Database) -> None:
    await furnish(database, items=2)
    job = await submit_job(database, "closed-book")
    await pause(database, job)
    assert await advance(database) == 0
    assert await scalar(database, "SELECT count(*) FROM calls") == 0
    await resume(database, job)
    assert await advance(database) == 2


async def test_a_job_paused_in_its_calibration_is_prepared_when_it_goes_on(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database)
    await answer_preparations(database)
    await pause(database, job)
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["paused"]
    await resume(database, job)
    assert await job_states(database) == ["preparing"]
    await repair(database)
    await completes(database, ["completed"])
    states = await rows(database, "SELECT state FROM job_events ORDER BY version")
    assert [state for (state,) in states] == [
        "preparing", "paused", "preparing", "running", "finalizing", "completed",
    ]  # fmt: skip


async def test_a_job_whose_samples_ended_while_it_was_paused_ends_when_it_goes_on(database: Database) -> None:
    job = await queue_job(database)
    await answer(database, await claim_some(database))
    assert await advance(database) == 2
    await pause(database, job)
    await repair(database)
    assert await job_states(database) == ["paused"]
    await resume(database, job)
    await repair(database)
    assert await job_states(database) == ["completed"]


async def test_calls_that_another_job_waits_for_stay_in_the_queue(database: Database) -> None:
    job = await queue_job(database, 3)
    await submit_job(database, "closed-book")
    await advance(database)
    await pause(database, job)
    assert await scalar(database, QUEUED) == 3
    await completes(database, ["paused", "completed"])
    await resume(database, job)
    executor = await completes(database, ["completed", "completed"])
    assert not executor.ran


async def test_a_new_job_revives_the_calls_of_a_paused_one(database: Database) -> None:
    await queue_job(database)
    await run_sql(database, "UPDATE jobs SET rank = 3")
    await pause(database, uuid.UUID(str(await scalar(database, "SELECT public_id FROM jobs"))))
    await submit_job(database, "closed-book", rank=50)
    await advance(database)
    assert await rows(database, "SELECT place >> 47 FROM queue") == [(50,), (50,)]
    await completes(database, ["paused", "completed"])


async def test_what_is_in_flight_may_end_and_its_replies_are_kept(database: Database) -> None:
    job = await queue_job(database)
    taken = await claim_some(database)
    await pause(database, job)
    assert len(await answer(database, taken)) == 2
    assert await sample_states(database) == [0, 0]
    assert await advance(database) == 0
    await resume(database, job)
    executor = await completes(database, ["completed"])
    assert not executor.ran


async def test_a_call_that_is_given_back_while_its_job_is_paused_is_parked(database: Database) -> None:
    job = await queue_job(database)
    taken = await claim_some(database)
    await pause(database, job)
    await run_sql(database, "UPDATE queue SET token = NULL, claim_until = NULL")
    assert await claim(database) is None
    assert await scalar(database, QUEUED) == 0
    assert await answer(database, taken) == []
    await resume(database, job)
    executor = await completes(database, ["completed"])
    assert len(executor.ran) == 2


async def test_a_claim_that_commits_after_the_pause_runs_what_it_took(database: Database) -> None:
    job = await queue_job(database)
    taking = {"lane": "generate", "model": await scalar(database, "SELECT max(model_id) FROM queue"), "n": 1}
    async with database.transaction() as claiming:
        await claiming.execute(CLAIM, {**taking, "token": uuid.uuid4(), "ttl": 60})
        await pause(database, job)
        assert await job_states(database) == ["paused"]
    assert await rows(database, "SELECT token IS NULL FROM queue") == [(False,)]


async def test_a_pause_waits_for_the_advance_that_holds_the_samples_and_parks_its_calls(database: Database) -> None:
    await furnish(database, items=2)
    await without_gold(database)
    job = await submit_job(database, "closed-book")
    await commit_while_waited_for(database, lambda held: Advancer(held).advance(), lambda two: pause(two, job))
    assert await scalar(database, "SELECT count(*) FROM calls") == 2
    assert await scalar(database, QUEUED) == 0
    assert await sample_states(database) == [1, 1]
    await resume(database, job)
    await completes(database, ["completed"])


async def test_a_revival_that_commits_after_the_pause_is_parked_again(database: Database) -> None:
    job = await queue_job(database)
    calls = sorted(int(str(call)) for (call,) in await rows(database, "SELECT call_id FROM queue"))
    await run_sql(database, "DELETE FROM queue")
    async with database.transaction() as reviving:
        await reviving.execute(REVIVE, {"calls": calls})
        await pause(database, job)
    assert await scalar(database, QUEUED) == 2
    assert await sweep(database, "sweeper") == set()
    assert await scalar(database, QUEUED) == 0


async def test_a_resume_that_comes_while_the_pause_parks_brings_every_call_back(database: Database) -> None:
    job = await queue_job(database)
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one, first=1)
        pausing = asyncio.create_task(pause(held, job))
        await held.reached.wait()
        await resume(two, job)
        held.go.set()
        await pausing
    assert await job_states(database) == ["running"]
    assert await scalar(database, QUEUED) == 2
    await completes(database, ["completed"])


async def test_a_pause_whose_process_died_half_way_is_finished_by_the_sweeper(database: Database) -> None:
    job = await queue_job(database)
    await die_before_commit(database, lambda held: pause(held, job), first=1)
    assert (await job_states(database), await scalar(database, QUEUED)) == (["paused"], 2)
    assert await sweep(database, "sweeper") == set()
    assert await scalar(database, QUEUED) == 0


async def test_a_resume_whose_process_died_half_way_is_finished_by_the_sweeper(database: Database) -> None:
    job = await queue_job(database)
    await pause(database, job)
    await die_before_commit(database, lambda held: resume(held, job), first=2)
    assert (await job_states(database), await scalar(database, QUEUED)) == (["running"], 0)
    assert await sweep(database, "sweeper") != set()
    await completes(database, ["completed"])


async def test_a_reply_between_pause_and_resume_leaves_nobody_stuck(database: Database) -> None:
    job = await queue_job(database)
    taken = await claim_some(database)
    await pause(database, job)
    async with database.transaction() as connection:
        accepted = text(
            "INSERT INTO attempts (call_id, accepted, outcome, reply) SELECT call_id, true, 'value',"
            ' convert_to(\'{"type":"generated","text":"x"}\', \'UTF8\') FROM queue'
        )
        await connection.execute(accepted)
        await connection.execute(text("DELETE FROM queue"))
    assert len(taken.calls) == 2
    await sweep(database, "sweeper")
    assert await sample_states(database) == [1, 1]
    await resume(database, job)
    await sweep(database, "sweeper")
    assert await sample_states(database) == [0, 0]
    assert await stuck(database) == []


async def test_a_paused_job_can_be_cancelled(database: Database) -> None:
    job = await queue_job(database)
    await pause(database, job)
    await cancel(database, job)
    await lifecycle.finish_due_jobs(database)
    assert (await job_states(database), await sample_states(database)) == (["cancelled"], [4, 4])
    with pytest.raises(Conflict, match="was cancelled"):
        await resume(database, job)


@pytest.mark.parametrize("verb", [pause, resume])
async def test_a_job_that_ends_can_be_neither_paused_nor_resumed(database: Database, verb: object) -> None:
    job = await queue_job(database)
    for state, words in (
        ("finalizing", "is finalizing"), ("cancelling", "is being cancelled"), ("failed", "has failed"),
        ("completed", "has completed"),
    ):  # fmt: skip
        await run_sql(database, "UPDATE jobs SET state = :s", s=state)
        with pytest.raises(Conflict, match=words):
            await verb(database, job)  # type: ignore[operator]
    with pytest.raises(NotFound):
        await verb(database, uuid.uuid4())  # type: ignore[operator]


async def test_of_two_who_saw_the_same_version_one_wins(database: Database) -> None:
    job = await queue_job(database)
    version = int(str(await scalar(database, "SELECT version FROM jobs")))
    async with processes(database, 2) as others:
        done = await asyncio.gather(
            pause(others[0], job, {version}), cancel(others[1], job, {version}), return_exceptions=True
        )
    assert sorted(type(each) for each in done if each) == [PreconditionFailed]
    assert await scalar(database, "SELECT version FROM jobs") == version + 1


# Submit: what cannot run is refused at once, and the message names the field.


async def test_what_does_not_exist_is_refused_by_name(database: Database, subtests: pytest.Subtests) -> None:
    await furnish(database, items=1)
    for fields, error, said in (
        ({"dataset": "no-such-dataset"}, NotFound, "no dataset 'no-such-dataset'"),
        ({"corpus": "no-such-corpus"}, NotFound, "no corpus 'no-such-corpus'"),
        ({"pipeline": "no-such-pipeline"}, Invalid, "`pipeline`.*no-such-pipeline.*closed-book"),
        ({"models": {"judge": "no-such-model"}}, Invalid, "`models.judge`.*no-such-model"),
        ({"models": {"no-such-role": "a-judge"}}, Invalid, "`models`.*no-such-role.*generate, judge"),
        ({"pipeline": "hybrid", "corpus": None}, Invalid, "`corpus`.*hybrid.*needs one"),
        ({"pipeline": "dense", "corpus": None}, Invalid, "`corpus`.*dense.*needs one"),
        ({"pipeline": "mathrag-gate", "corpus": None}, Invalid, "`corpus`.*mathrag-gate.*needs one"),
        ({"params": {"anchors": {"no_such_slot": "?"}}}, Invalid, "`params`.*reasoning-quality.*no_such_slot"),
    ):
        with subtests.test(fields=fields):
            with pytest.raises(error, match=said):
                await submit_job(database, **{"pipeline": "mathrag-gate", **fields})
            assert await job_states(database) == []
            assert await scalar(database, "SELECT count(*) FROM samples") == 0


@pytest.mark.parametrize("params", [{"no_such_param": 1}, {"gate": {"no_such_param": 1}}, {"candidates": "ten"}])
async def test_unknown_parameters_and_wrong_types_are_refused(database: Database, params: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        await submit_job(database, params=params)


async def test_an_empty_dataset_is_refused(database: Database) -> None:
    await furnish(database, items=0)
    with pytest.raises(Invalid, match="`dataset`: 'items' has no items"):
        await submit_job(database)


async def test_a_corpus_without_ready_indexes_is_refused(database: Database) -> None:
    await furnish(database, items=1)
    await run_sql(database, "UPDATE indexes SET state = 'building' WHERE kind = 'dense'")
    with pytest.raises(Unavailable, match="the indexes of corpus 'docs' are not ready") as raised:
        await submit_job(database)
    assert "wait" in str(raised.value.hint)


async def test_a_pipeline_without_retrieval_needs_no_corpus(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "closed-book", corpus=None)
    assert await rows(database, "SELECT state, corpus_id, total FROM jobs") == [("running", None, 2)]


async def test_a_pipeline_without_calibration_runs_at_once(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "hybrid", repeats=2)
    assert await rows(database, "SELECT state, total, repeats FROM jobs") == [("running", 6, 2)]
    found = await rows(database, "SELECT kind, ordinal, repeat, state, position FROM samples ORDER BY repeat, ordinal")
    assert found == [("item", ordinal, repeat, 0, 0) for repeat in (0, 1) for ordinal in (0, 1, 2)]


async def test_a_pipeline_with_a_calibration_starts_with_that_alone(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "mathrag-gate")
    assert await job_states(database) == ["preparing"]
    assert await rows(database, "SELECT kind, state FROM samples") == [("prepare", 0)]


async def test_a_job_keeps_the_models_it_was_submitted_with(database: Database) -> None:
    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    async with database.transaction() as connection:
        newer = await register(connection, ModelIdentity(name="a-generator", backend="scripted", digest="newer"))
    await submit_job(database, "closed-book")
    pinned = await rows(database, "SELECT (pins -> 'generate' ->> 'model_id')::int FROM jobs ORDER BY id")
    assert pinned[1] == (newer,)
    assert pinned[0] != pinned[1]


async def test_registering_the_same_model_again_is_the_same_row(database: Database) -> None:
    same = ModelIdentity(name="m", backend="scripted", digest="d", options={"context": 512})
    async with database.transaction() as connection:
        first = await register(connection, same)
        moved = await register(connection, msgspec.structs.replace(same, device="cuda:0", footprint_mib=7))
        other = await register(connection, msgspec.structs.replace(same, options={"context": 1024}))
    assert first == moved != other
    assert await scalar(database, "SELECT device FROM models WHERE id = :i", i=first) == "cuda:0"


async def test_a_model_named_by_the_job_replaces_the_operators_default(database: Database) -> None:
    await furnish(database, items=1)
    await submit_job(database, "closed-book", models={"generate": "a-judge"})
    generate, judge = await scalar(database, "SELECT ARRAY[pins -> 'generate', pins -> 'judge']::text[] FROM jobs")  # type: ignore[misc]
    assert msgspec.json.decode(generate) == msgspec.json.decode(judge)


async def test_what_a_job_is_fixed_by_is_stored_with_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "two-questions", two_questions)
    await furnish(database, items=1)
    await submit_job(database, "two-questions", params={"candidates": 7}, rank=3, reuse="none")
    [(params, pipeline_hash, rank, reuse)] = await rows(
        database, "SELECT convert_from(params, 'UTF8')::jsonb, pipeline_hash, rank, reuse FROM jobs"
    )
    stored = params if isinstance(params, dict) else msgspec.json.decode(str(params))
    assert (stored["candidates"], stored["rrf_k"], stored["gate"]["tau"]) == (7, 60, 0.45)
    assert len(bytes(pipeline_hash)) == 32  # type: ignore[call-overload]
    assert (rank, reuse) == (3, "none")


async def test_a_new_job_is_inserted_with_columns_that_the_table_has(database: Database) -> None:
    found = await rows(
        database,
        "SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
        " FROM information_schema.columns WHERE table_name = 'jobs' AND table_schema = 'public'",
    )
    types = {str(name): str(kind).replace("smallint", "integer") for name, kind, _ in found}
    # The id of another job goes in as its public id.
    assert INSERTED.items() - types.items() == {("requeued_from", "uuid")}
    assert {name for name, _, is_needed in found if is_needed} - INSERTED.keys() == {"state"}


async def test_what_a_request_says_of_a_job_is_stored_shown_and_requested_again(database: Database) -> None:
    await furnish(database, items=3)
    asked = {
        "name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": "dense", "limit": 2, "repeats": 3,
        "reuse": "none", "rank": 7, "metadata": {"run": "1"},
    }  # fmt: skip
    values = {"text": "words", "integer": 1, "boolean": True, "double precision": 0.5}
    asked |= {name: values[kind] for name, kind in JOB_COLUMNS.items() if name not in asked}
    job = await submit(database, SETTINGS, JobRequest(**asked).submission())
    shown, copy = await get(database, "a-job"), await copy_submission(database, job)
    assert {name: getattr(shown, name) for name in JOB_FIELDS} == asked
    assert {name: getattr(copy, name) for name in JOB_FIELDS} == {**asked, "name": "a-job-r2"}


async def test_a_pipeline_whose_sampled_calls_are_equal_is_refused_in_words(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(*steps: Sequence[int]) -> Pipeline:
        def run(sample: Sample, _params: Params, _library: Library) -> Steps:
            for draws in steps:
                generated = yield [Generate(template="cot", question=sample.question, draw=draw) for draw in draws]
            return make_outcome(require(generated[0]))

        return run

    install(monkeypatch, "equal", asking((0, 0, 0)))
    install(monkeypatch, "again", asking((0,), (0,)))
    install(monkeypatch, "drawn", asking((0, 1), (2,)))
    await furnish(database, items=1)
    sampled = {"generate": {"temperature": 0.8}}
    for name in ("equal", "again"):
        with pytest.raises(Invalid, match=rf"`pipeline`: '{name}': .*same sampled 'generate' call twice.*own `draw`"):
            await submit_job(database, name, params=sampled)
        await submit_job(database, name)
    await submit_job(database, "drawn", params=sampled)
    with pytest.raises(Invalid, match=r"`params`: draw 1 of a greedy generation"):
        await submit_job(database, "drawn")
