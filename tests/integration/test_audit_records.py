"""The audit of requests, events and records: each test plants one violation and expects its name and its rows."""

from typing import Any

import pytest

from shared.audit import check
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.storage.database import Database
from tests.integration.conftest import Plant
from tests.integration.scene import advance, furnish, run_sql, scalar, submit_job
from tests.integration.test_audit import completed
from tests.integration.test_audit_violations import AN_ITEM, the_job

pytestmark = pytest.mark.anyio


async def found(database: Database, job: Any) -> tuple[set[str], set[str]]:
    violations = await check(database, job)
    return {each.invariant for each in violations}, {row for each in violations for row in each.rows}


async def the_events(database: Database) -> str:
    return (await the_job(database)).replace("jobs", "job_events")


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
    assert await found(database, job) == ({"I19"}, {"idempotency submit/k"})


async def test_i19_a_job_that_two_requests_made(database: Database) -> None:
    job = await completed(database, "closed-book")
    for key in ("k", "l"):
        await run_sql(
            database, "INSERT INTO idempotency (key, operation, body_hash, job_id, created_at)"
            " SELECT :k, 'submit', sha256(''), id, created_at FROM jobs", k=key)  # fmt: skip
    assert await found(database, job) == ({"I19"}, {"idempotency submit/k", "idempotency submit/l"})


async def test_i20_two_samples_with_one_key(database: Database, plant: Plant) -> None:
    await furnish(database)
    job = await submit_job(database, "closed-book")
    await plant("ALTER TABLE samples DROP CONSTRAINT samples_job_id_kind_ordinal_repeat_key", counted=False)
    try:
        await plant(
            "INSERT INTO samples (job_id, kind, ordinal, repeat, state)"
            " SELECT job_id, kind, 2, 0, 0 FROM samples LIMIT 1"
        )
        names, named = await found(database, job)
    finally:
        await plant("DELETE FROM samples")
        await plant(
            "ALTER TABLE samples ADD CONSTRAINT samples_job_id_kind_ordinal_repeat_key"
            " UNIQUE (job_id, kind, ordinal, repeat)",
            counted=False,
        )
    assert "I20" in names
    assert {"samples 3", "samples 6"} <= named


async def test_i21_a_change_without_its_event(database: Database, plant: Plant) -> None:
    job = await completed(database)
    await plant("DELETE FROM job_events WHERE version = 2")
    assert await found(database, job) == ({"I21"}, {await the_job(database)})


@pytest.mark.parametrize(
    ("change", "version"),
    [("state = 'running' WHERE version = 4", 4), ("at = at - interval '1 h' WHERE version = 3", 3)],
)
async def test_i21_an_event_that_does_not_fit(database: Database, plant: Plant, change: str, version: int) -> None:
    job = await completed(database)
    await plant("UPDATE job_events SET #".replace("#", change))
    assert await found(database, job) == ({"I21"}, {f"{await the_events(database)}/{version}"})


async def test_i21_a_life_after_the_end(database: Database, plant: Plant) -> None:
    job = await completed(database)
    await plant("UPDATE job_events SET state = 'failed' WHERE version = 2")
    names, named = await found(database, job)
    assert names == {"I21"}
    assert named == {f"{await the_events(database)}/{version}" for version in (3, 4)} | {await the_job(database)}


async def test_i21_a_reply_that_is_younger_than_who_consumed_it(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    attempt = await scalar(database, "SELECT min(id) FROM attempts")
    await plant("UPDATE attempts SET created_at = created_at + interval '1 h' WHERE id = :a", a=attempt)
    names, named = await found(database, job)
    assert names == {"I21", "I22"}
    assert f"attempts {attempt}" in named


async def test_i22_a_sample_without_its_record(database: Database, plant: Plant) -> None:
    job = await completed(database)
    await plant("DELETE FROM records WHERE seq = 3")
    missing, after = (
        await scalar(database, AN_ITEM.replace("min(id)", "min(id) + 3")),
        await scalar(database, AN_ITEM.replace("min(id)", "min(id) + 4")),
    )
    assert await found(database, job) == ({"I22"}, {f"samples {missing}", f"samples {after}"})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attempts SET worker = 'nobody' WHERE call_id = :call",
        "UPDATE attempts SET prompt_tokens = 7 WHERE call_id = :call",
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
    names, named = await found(database, job)
    assert names == {"I22"}
    assert f"samples {sample}" in named


@pytest.mark.parametrize("change", ["chain = sha256('')", "code = '{}'", "params = convert_to('{}', 'UTF8')"])
async def test_i22_a_job_that_is_not_what_its_chain_begins_and_ends_with(
    database: Database, plant: Plant, change: str
) -> None:
    job = await completed(database, "closed-book")
    await plant("UPDATE jobs SET _".replace("_", change))
    names, _ = await found(database, job)
    assert "I22" in names


async def test_i22_an_end_without_a_chain(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    await plant("UPDATE jobs SET chain = NULL")
    assert await found(database, job) == ({"I21", "I22"}, {await the_job(database)})


async def test_i22_a_job_that_ended_before_records_were_kept(database: Database, plant: Plant) -> None:
    job = await completed(database, "closed-book")
    await plant("DELETE FROM records")
    await plant("DELETE FROM job_events WHERE version < (SELECT version FROM jobs)")
    await plant("UPDATE job_events SET job = NULL")
    await plant("UPDATE jobs SET chain = NULL")
    assert await found(database, job) == (set(), set())


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
    assert await found(database, cancelled) == (set(), set())
    assert await found(database, early) == (set(), set())
