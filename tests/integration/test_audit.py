"""Whatever a job goes through in earnest, its audit is clean; what breaks an invariant is found."""

import asyncio
import threading
import uuid
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from mathrag.errors import NotFound
from shared import audit
from shared.audit import check
from shared.audit.finding import AuditedJob
from shared.calls import CALL_KINDS, Generate, Lane, Request
from shared.lease import residencies
from shared.lease.lease import DeviceLease, Phase
from shared.params import Params
from shared.pipelines import registry
from shared.replies import Failure, FailureKind, Reply, require
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.runtime.queue import RETRIES, lapse_expired
from shared.runtime.worker import LaneWorker
from shared.samples import Library, Pipeline, Sample, Steps
from shared.settings import Workers
from shared.storage.database import Database
from tests.integration.api import Api
from tests.integration.conftest import Plant
from tests.integration.rule_banks import add_bank
from tests.integration.scene import (
    Answer,
    ScriptedExecutor,
    SilentTicker,
    add_dataset,
    advance,
    by_rule,
    ended,
    furnish,
    install,
    rows,
    run_sql,
    scalar,
    submit_job,
)

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0"
LONGEST_WAIT_S = 20.0
"""Ends a test that would wait forever."""


class Device:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.lease: DeviceLease | None = None

    async def read_leases(self) -> dict[str, DeviceLease | None]:
        return {DEVICE: self.lease}

    async def flip(self, model: str, cause: str) -> None:
        model_id = await scalar(self.database, "SELECT id FROM models WHERE name = :name", name=model)
        assert isinstance(model_id, int)
        await self.close(None)
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, DEVICE)
            epoch = await residencies.insert_wanted(
                connection, DEVICE, newest.epoch if newest else 0, [model_id], cause
            )
            assert epoch is not None
            await residencies.set_state(connection, epoch, "open", datetime.now(UTC))
        self.lease = DeviceLease(epoch=epoch, phase=Phase.OPEN, models=(model_id,))

    async def close(self, reason: str | None) -> None:
        if self.lease is not None:
            async with self.database.transaction() as connection:
                await residencies.set_state(connection, self.lease.epoch, "closed", datetime.now(UTC), reason)
        self.lease = None

    async def drain(self, lane: Lane, executor: ScriptedExecutor) -> None:
        roles = dict.fromkeys(CALL_KINDS, executor)
        await LaneWorker(
            lane,
            self.database,
            roles,
            name=f"test-{lane.value}",
            guards=self,  # type: ignore[arg-type]
            ticker=SilentTicker(),  # type: ignore[arg-type]
            limits=Workers(window_ms=1),
        ).drain()


async def staged(database: Database, executor: ScriptedExecutor | None = None) -> None:
    executor = executor or ScriptedExecutor()
    device = Device(database)
    await device.flip("a-judge", "drained" if await scalar(database, "SELECT max(epoch) FROM residencies") else "first")
    await device.drain(Lane.JUDGE, executor)
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, executor)
    await device.drain(Lane.JUDGE, executor)
    await device.close("guard_stopped")


async def completed(database: Database, pipeline: str = "mathrag-gate", **fields: object) -> uuid.UUID:
    await furnish(database, items=5)
    job = await submit_job(database, pipeline, **fields)
    await staged(database)
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    return job


async def execute(database: Database, sql: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(sql))


@pytest.mark.parametrize("pipeline", registry.list_offered())
async def test_a_completed_job_is_clean(database: Database, pipeline: str) -> None:
    await add_bank(database)
    params = {} if registry.get(pipeline).ignores("rules") else {"rules": "bank"}
    job = await completed(database, pipeline, repeats=2, params=params)
    assert await check(database, job) == []


@pytest.mark.parametrize("tau", [-1.0, 1.0])
async def test_both_branches_of_the_gate_are_clean(database: Database, tau: float) -> None:
    job = await completed(database, params={"gate": {"tau": tau, "min_pairs": 5}})
    assert await check(database, job) == []


async def test_a_job_that_reuses_another_jobs_calls_is_clean(database: Database) -> None:
    await completed(database)
    await add_dataset(database, 5, "changed", frozenset({1}))
    job = await submit_job(database, dataset="changed")
    await staged(database)
    assert await check(database, job) == []


async def test_a_job_is_clean_before_its_end(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    assert await check(database, job) == []
    device = Device(database)
    await device.flip("a-judge", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    assert await scalar(database, "SELECT state FROM jobs") == "running"
    assert await check(database, job) == []


async def test_a_cancelled_job_is_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    device = Device(database)
    await device.flip("a-judge", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await cancel(database, job)
    await finish_due_jobs(database)
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, ScriptedExecutor())
    assert await scalar(database, "SELECT state FROM jobs") == "cancelled"
    assert await scalar(database, "SELECT count(*) FROM attempts a JOIN calls c ON c.id = a.call_id"
                        " WHERE c.role = 'generate'") == 0  # fmt: skip
    assert await check(database, job) == []


async def test_a_job_whose_preparation_failed_is_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    unrated = Failure(kind=FailureKind.UNPARSED, detail="no rating")
    await staged(database, ScriptedExecutor(lambda request: unrated if request.role == "judge" else by_rule(request)))
    assert await scalar(database, "SELECT state FROM jobs") == "failed"
    assert await check(database, job) == []


async def test_lapses_and_retries_are_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database, "closed-book")
    device, broken = Device(database), Failure(kind=FailureKind.BACKEND_ERROR, detail="down")
    await device.flip("a-generator", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await execute(
        database, "UPDATE queue SET token = gen_random_uuid(), claim_until = now() - interval '1 s'"
        " WHERE call_id = (SELECT min(call_id) FROM queue)")  # fmt: skip
    await lapse_expired(database, "sweeper")
    for _ in range(RETRIES):
        await device.drain(Lane.GENERATE, ScriptedExecutor(_breaking(broken)))
        await execute(database, "UPDATE queue SET not_before = NULL")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.close("guard_stopped")
    assert await rows(database, "SELECT state, count(*) FROM samples GROUP BY 1 ORDER BY 1") == [(2, 4), (3, 1)]
    assert await check(database, job) == []


def _breaking(failure: Failure) -> Answer:
    def answer(request: Request) -> Reply:
        return failure if request.values["question"] == "What is 2 plus 2?" else by_rule(request)

    return answer


async def test_an_interruption_with_a_cause_explains_its_load(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    device = Device(database)
    await device.flip("a-judge", "first")
    await Device(database).drain(Lane.JUDGE, ScriptedExecutor())  # retrieves only: it holds no lease
    await execute(database, "UPDATE queue SET not_before = now() + interval '5 minutes' WHERE call_id % 2 = 0")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.close("guard_restart")
    await execute(database, "UPDATE queue SET not_before = NULL")
    await device.flip("a-judge", "guard_restart")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, ScriptedExecutor())
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    loads = (
        "SELECT count(DISTINCT (a.epoch, c.model_id)) FROM attempts a JOIN calls c ON c.id = a.call_id AND a.epoch > 0"
    )
    assert await scalar(database, loads) == 3
    assert await check(database, job) == []


async def test_a_job_that_is_not_there_cannot_be_audited(database: Database) -> None:
    with pytest.raises(NotFound, match="no job"):
        await check(database, uuid.uuid4())


async def test_samples_whose_judgements_are_there_already_may_be_generated_first(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "crag")
    await staged(database)
    await add_dataset(database, 5, "more")
    job = await submit_job(database, "crag", dataset="more", name="second", params={"generate": {"max_tokens": 99}})
    device, executor = Device(database), ScriptedExecutor()
    for model in ("a-generator", "a-judge", "a-generator"):
        await device.flip(model, "drained")
        for lane in (Lane.JUDGE, Lane.GENERATE, Lane.JUDGE):
            await device.drain(lane, executor)
    await device.close("guard_stopped")
    assert await scalar(database, "SELECT count(*) FROM jobs WHERE state = 'completed'") == 2
    assert await check(database, job) == []


# Violations that other jobs are needed for than the one of `test_audit_violations.py`.

GENERATED_OF_ITEM_6 = """
    SELECT min(a.id) FROM attempts a JOIN steps t ON t.call_id = a.call_id JOIN calls c ON c.id = a.call_id
    JOIN samples s ON s.id = t.sample_id WHERE c.role = 'generate' AND s.ordinal = 6"""
AN_ITEM = "SELECT min(id) FROM samples WHERE kind = 'item'"


async def found(database: Database, job: uuid.UUID, *, records: bool = False) -> tuple[set[str], set[str]]:
    """The names of the broken invariants, and all rows named.

    Without `records`, I22 does not count: whatever was changed after the end is not what its record says either. A
    change of the job's row is I21, too: no event tells of it.
    """
    violations = [each for each in await check(database, job) if records or each.invariant != "I22"]
    assert all(violation.message for violation in violations)
    return {each.invariant for each in violations}, {row for each in violations for row in each.rows}


async def the_job(database: Database) -> str:
    id_ = await scalar(database, "SELECT id FROM jobs")
    return f"jobs {id_}"


async def test_i5_a_call_with_two_accepted_attempts(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    call = await scalar(database, "SELECT min(call_id) FROM attempts")
    await plant("DROP INDEX attempts_accepted", counted=False)
    try:
        await plant(
            "INSERT INTO attempts (call_id, accepted, token, outcome, reply, device, epoch, started_at, ended_at)"
            " SELECT call_id, true, token, outcome, reply, device, epoch, started_at, ended_at"
            " FROM attempts WHERE call_id = :c",
            c=call,
        )
        violations = await check(database, job)
    finally:
        await plant("DELETE FROM attempts")
        await plant("CREATE UNIQUE INDEX attempts_accepted ON attempts (call_id) WHERE accepted", counted=False)
    assert {each.rows for each in violations if each.invariant == "I5"} == {(f"calls {call}",)}
    assert {each.invariant for each in violations} == {"I5", "I13", "I18", "I21", "I22"}


async def test_i12_a_sample_that_was_never_inserted(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database, "hybrid", repeats=2)
    await plant("DELETE FROM samples WHERE ordinal = 3 AND repeat = 1")
    assert await found(database, job) == ({"I12"}, {"items 3 repeat 1"})


async def test_i12_a_sample_of_no_item(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database, "hybrid")
    await plant("INSERT INTO samples (job_id, kind, ordinal, repeat, state) SELECT id, 'item', 0, 1, 0 FROM jobs")
    last = await scalar(database, "SELECT max(id) FROM samples")
    assert await found(database, job) == ({"I12"}, {f"samples {last}"})


@pytest.mark.parametrize("change", ["total = total + 1", "repeats = 2, total = 5"])
async def test_i12_a_total_that_is_not_items_times_repeats(database: Database, plant: Plant, change: str) -> None:
    await furnish(database)
    job = await submit_job(database)
    await plant("UPDATE jobs SET _".replace("_", change, 1))
    assert await found(database, job) == ({"I12", "I21"}, {await the_job(database)})


async def test_i12_a_preparation_that_was_never_inserted(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database)
    await plant("DELETE FROM samples")
    assert await found(database, job) == ({"I12"}, {await the_job(database)})


async def test_i13_a_step_without_its_reply(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    sample = await scalar(database, AN_ITEM)
    await plant(
        "DELETE FROM attempts a USING steps t WHERE t.call_id = a.call_id AND t.sample_id = :s AND t.position = 1",
        s=sample,
    )
    names, named = await found(database, job)
    assert names == {"I13", "I18"}
    assert named == {f"steps {sample}/1/0", f"samples {sample}"}


async def test_i13_a_missing_step(database: Database, plant: Plant) -> None:
    job = await completed(database, "hybrid")
    sample = await scalar(database, AN_ITEM)
    await plant("DELETE FROM steps WHERE sample_id = :s AND position = 0 AND slot = 0", s=sample)
    assert await found(database, job) == ({"I13", "I18"}, {f"samples {sample}"})


async def test_i17_a_call_after_cancelled(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database, "hybrid")
    await _cancelled(database, job)
    await plant(
        "INSERT INTO attempts (call_id, accepted, token, outcome, reply) SELECT min(call_id), true, gen_random_uuid(),"
        " 'value', convert_to('{\"type\":\"retrieved\",\"hits\":[]}', 'UTF8') FROM steps"
    )
    attempt = await scalar(database, "SELECT id FROM attempts")
    assert await found(database, job) == ({"I17"}, {f"attempts {attempt}"})


async def _cancelled(database: Database, job: uuid.UUID) -> None:
    await advance(database)
    await cancel(database, job)
    await finish_due_jobs(database)
    assert await scalar(database, "SELECT state FROM jobs") == "cancelled"


async def test_i18_a_pipeline_that_is_not_installed(database: Database, plant: Plant) -> None:
    job = await completed(database, "hybrid")
    await plant("UPDATE jobs SET pipeline = 'gone'")
    assert await found(database, job) == ({"I18", "I21"}, {await the_job(database)})


async def test_a_violation_names_the_first_items_and_counts_them(database: Database, plant: Plant) -> None:
    await furnish(database, items=8)
    job = await submit_job(database)
    await staged(database)
    await plant("UPDATE outcomes SET correct = NOT correct FROM samples s WHERE s.id = sample_id AND s.ordinal > 0")
    (replayed,) = [each for each in await check(database, job) if each.invariant == "I18"]
    assert (replayed.items, replayed.item_count) == ((1, 2, 3, 4, 5), 7)
    generated = await scalar(database, GENERATED_OF_ITEM_6)
    await plant("UPDATE attempts SET epoch = NULL WHERE id = :attempt", attempt=generated)
    named = [each.items for each in await check(database, job) if any(row.startswith("attempts") for row in each.rows)]
    assert named == [(6,)] * len(named) != []


@pytest.mark.parametrize(
    "values",
    ["'k', 'submit', sha256(''), id, created_at + interval '1 ms'", "'k', 'submit', 'short', id, created_at"],
)
async def test_i19_a_key_that_was_not_stored_with_its_job(database: Database, values: str) -> None:
    job = await completed(database, "closed-book")
    await run_sql(
        database,
        "INSERT INTO idempotency (key, operation, body_hash, job_id, created_at) SELECT _ FROM jobs".replace(
            "_ ", f"{values} "
        ),
    )
    assert await found(database, job, records=True) == ({"I19"}, {"idempotency submit/k"})


async def test_i19_a_job_that_two_requests_made(database: Database) -> None:
    job = await completed(database, "closed-book")
    for key in ("k", "l"):
        await run_sql(
            database, "INSERT INTO idempotency (key, operation, body_hash, job_id, created_at)"
            " SELECT :k, 'submit', sha256(''), id, created_at FROM jobs", k=key)  # fmt: skip
    assert await found(database, job, records=True) == ({"I19"}, {"idempotency submit/k", "idempotency submit/l"})


async def test_i20_two_samples_with_one_key(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database, "closed-book")
    await plant("ALTER TABLE samples DROP CONSTRAINT samples_job_id_kind_ordinal_repeat_key", counted=False)
    try:
        await plant(
            "INSERT INTO samples (job_id, kind, ordinal, repeat, state)"
            " SELECT job_id, kind, 2, 0, 0 FROM samples LIMIT 1"
        )
        names, named = await found(database, job, records=True)
    finally:
        await plant("DELETE FROM samples")
        await plant(
            "ALTER TABLE samples ADD CONSTRAINT samples_job_id_kind_ordinal_repeat_key"
            " UNIQUE (job_id, kind, ordinal, repeat)",
            counted=False,
        )
    assert "I20" in names
    assert {"samples 3", "samples 6"} <= named


async def test_i21_a_reply_that_is_younger_than_who_consumed_it(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    attempt = await scalar(database, "SELECT min(id) FROM attempts")
    await plant("UPDATE attempts SET created_at = created_at + interval '1 h' WHERE id = :a", a=attempt)
    names, named = await found(database, job, records=True)
    assert names == {"I21", "I22"}
    assert f"attempts {attempt}" in named


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attempts SET worker = 'nobody' WHERE call_id = :call",
        "UPDATE attempts SET prompt_tokens = 7 WHERE call_id = :call",
        "UPDATE attempts SET cached_tokens = 7 WHERE call_id = :call",
        "UPDATE samples SET failure = 'none' WHERE id = :sample",
        "UPDATE records SET hash = sha256('') WHERE sample_id = :sample AND :call > 0",
    ],
)
async def test_i22_a_receipt_that_was_changed_after_the_end(database: Database, plant: Plant, change: str) -> None:
    job = await completed(database, "closed-book")
    sample = await scalar(database, AN_ITEM)
    call = await scalar(database, "SELECT min(call_id) FROM steps WHERE sample_id = :s", s=sample)
    values = {name: value for name, value in (("sample", sample), ("call", call)) if f":{name}" in change}
    await plant(change, **values)
    names, named = await found(database, job, records=True)
    assert names == {"I22"}
    assert f"samples {sample}" in named


@pytest.mark.parametrize("change", ["chain = sha256('')", "code = '{}'", "params = convert_to('{}', 'UTF8')"])
async def test_i22_a_job_that_is_not_what_its_chain_begins_and_ends_with(
    database: Database, plant: Plant, change: str
) -> None:
    job = await completed(database, "closed-book")
    await plant("UPDATE jobs SET _".replace("_", change))
    names, _ = await found(database, job, records=True)
    assert "I22" in names


async def test_i22_an_end_without_a_chain(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    await plant("UPDATE jobs SET chain = NULL")
    assert await found(database, job, records=True) == ({"I21", "I22"}, {await the_job(database)})


async def test_i22_a_job_that_ended_before_records_were_kept(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    await plant("DELETE FROM records")
    await plant("DELETE FROM job_events WHERE version < (SELECT version FROM jobs)")
    await plant("UPDATE job_events SET job = NULL")
    await plant("UPDATE jobs SET chain = NULL")
    assert await found(database, job, records=True) == (set(), set())


async def test_a_cancelled_job_and_one_that_failed_have_whole_chains(database: Database) -> None:
    await furnish(database)
    cancelled = await submit_job(database, "hybrid")
    await advance(database)
    await cancel(database, cancelled)
    await finish_due_jobs(database)
    assert await scalar(database, "SELECT count(*) FROM records") == 5
    early = await submit_job(database)
    await cancel(database, early)
    await finish_due_jobs(database)
    assert await scalar(database, "SELECT count(*) FROM jobs WHERE chain IS NOT NULL AND state = 'cancelled'") == 2
    assert await found(database, cancelled, records=True) == (set(), set())
    assert await found(database, early, records=True) == (set(), set())


# The audit of a job whose pipeline has another version by now: what it can say, and what it must not.

UNREPLAYED = "pipeline changed: cannot be replayed by this version ({}); audit it with the one that ran it"


def asking(sample: Sample, _params: Params, _library: Library) -> Steps:
    return ended(require((yield Generate(template="cot", question=sample.question))).text)


def rewritten(sample: Sample, _params: Params, _library: Library) -> Steps:
    reply = yield Generate(template="cot", question=sample.question)
    return ended(require(reply).text)


def answering_otherwise(sample: Sample, _params: Params, _library: Library) -> Steps:
    reply = yield Generate(template="cot", question=sample.question)
    return replace(ended(require(reply).text), truncated=True)


def asking_otherwise(sample: Sample, _params: Params, _library: Library) -> Steps:
    return ended(require((yield Generate(template="cot", question=f"{sample.question}?"))).text)


@pytest.fixture
async def asking_job(database: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    install(monkeypatch, "asking", asking)
    await furnish(database)
    job = await submit_job(database, "asking")
    await staged(database)
    return str(job)


def change_pipeline(monkeypatch: pytest.MonkeyPatch, run: Pipeline) -> None:
    install(monkeypatch, "asking", run)
    known = registry.pipeline_hash
    monkeypatch.setattr(
        registry, "pipeline_hash", lambda name, params=None: "f" * 64 if name == "asking" else known(name, params)
    )


async def audit_over_http(api: Api, job: str) -> tuple[bool, list[tuple[str, bool]], str | None]:
    found = await api.get(f"/v1/jobs/{job}/audit")
    messages = [(each["message"], each["source_changed"]) for each in found["violations"] if each["invariant"] == "I18"]
    return found["clean"], messages, found["source_changed"]


async def test_other_requests_are_answered_during_an_audit(
    empty_api: Api, asking_job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, answered = threading.Event(), threading.Event()

    async def compute_until_answered(_: AuditedJob) -> list[audit.Violation]:
        """I1: a computation that returns only after another request was answered."""
        began.set()
        assert answered.wait(LONGEST_WAIT_S)
        return []

    monkeypatch.setattr(audit, "CHECKS", (compute_until_answered,))
    auditing = asyncio.create_task(audit_over_http(empty_api, asking_job))
    await asyncio.to_thread(began.wait, LONGEST_WAIT_S)
    assert (await empty_api.get("/v1/jobs"))["data"]
    answered.set()
    assert (await auditing)[0]


async def test_the_same_version_is_not_mentioned(empty_api: Api, asking_job: str) -> None:
    assert await audit_over_http(empty_api, asking_job) == (True, [], None)


async def test_a_changed_pipeline_with_the_same_outcomes_is_noted_and_clean(
    empty_api: Api, asking_job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = registry.pipeline_hash("asking")
    change_pipeline(monkeypatch, rewritten)
    note = f"pipeline changed: the job ran version {ran[:12]} of `asking`, this program has ffffffffffff"
    assert await audit_over_http(empty_api, asking_job) == (True, [], note)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (answering_otherwise, "its replay has another outcome"),
        (asking_otherwise, "its replay fails: replay_diverged"),
    ],
)
async def test_a_changed_pipeline_with_other_outcomes_cannot_be_replayed_and_forges_nothing(
    empty_api: Api, asking_job: str, monkeypatch: pytest.MonkeyPatch, run: Pipeline, said: str
) -> None:
    change_pipeline(monkeypatch, run)
    clean, messages, note = await audit_over_http(empty_api, asking_job)
    assert (clean, messages[0]) == (False, (UNREPLAYED.format(said), True))
    assert all(source_changed for _, source_changed in messages)
    assert note is not None


async def test_other_outcomes_of_the_same_version_violate_the_invariant(
    empty_api: Api, asking_job: str, plant: Plant
) -> None:
    await plant("UPDATE outcomes SET outcome = 'null'")
    clean, messages, note = await audit_over_http(empty_api, asking_job)
    assert (clean, messages, note) == (False, [("its replay has another outcome", False)], None)


async def test_a_changed_pipeline_excuses_no_row_that_contradicts_another(
    empty_api: Api, asking_job: str, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    change_pipeline(monkeypatch, rewritten)
    await plant("UPDATE outcomes SET answer = 'forged'")
    clean, messages, _ = await audit_over_http(empty_api, asking_job)
    assert (clean, messages) == (False, [("its columns differ from its outcome", False)])
