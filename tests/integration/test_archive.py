"""Archived jobs: Parquet instead of rows, which every page, export and audit reads as before."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from sqlalchemy import text

from mathrag.errors import NotFound, Unavailable, Unreadable
from shared.audit import check
from shared.pipelines import registry
from shared.replies import Failure, FailureKind
from shared.runtime import archiving
from shared.runtime import purge as purging
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.runtime.queue import RETRIES, lapse_expired
from shared.storage import jobs
from shared.storage.archive import hash_part, show_archived
from shared.storage.database import Database, limit_to
from shared.storage.provenance import load_provenance
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.rule_banks import add_bank
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    add_dataset,
    advance,
    by_rule,
    claim_some,
    drain,
    furnish,
    job_states,
    let_pauses_pass,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    submit_job,
)
from tests.integration.test_audit import completed, staged
from tests.integration.test_measuring import measure
from tests.integration.test_storage import shelve

pytestmark = pytest.mark.anyio

ONCE = re.compile(r'name="once" value="\w+"')
"""What a form sends so that it counts once."""
COUNTS = "SELECT (SELECT count(*) FROM steps), (SELECT count(*) FROM calls), (SELECT count(*) FROM attempts)"


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts for a preparation and five samples."""
    monkeypatch.setattr(archiving, "ARCHIVED_AT_ONCE", 2)


async def keep_documents(database: Database) -> None:
    """Give the documents to their corpus, once; otherwise they go with the calls."""
    if not await scalar(database, "SELECT count(*) FROM corpus_documents"):
        await shelve(database)


async def archived(owner: Database, *references: str) -> None:
    await keep_documents(owner)
    for job in await purging.find_jobs(owner, references):
        await archiving.archive(owner, job, "a-test")
    await purging.remove_unused(owner, "a-test")


async def read_everything(api: Api, samples: int = 5, job: str = "a-job") -> dict[str, str]:
    """The answers of all that reads a job, without what archiving changes: the mark, version, and times of pages."""
    paths = [
        f"v1/jobs/{job}/report", f"v1/jobs/{job}/results?prompts=true", f"v1/jobs/{job}/results?format=csv",
        f"v1/jobs/{job}/samples", f"v1/jobs/{job}/samples?ending=logic", f"v1/jobs/{job}/samples?wrong=true",
        f"v1/jobs/{job}/provenance", *(f"v1/jobs/{job}/samples/{index}?prompts=true" for index in range(samples)),
        f"jobs/{job}/report", f"jobs/{job}/samples", *(f"jobs/{job}/samples/{index}" for index in range(samples)),
        f"compare/answers?jobs={job}", f"compare/cases?left={job}&left_index=0&right={job}&right_index=1",
    ]  # fmt: skip
    found = {}
    for path in paths:
        reply = await api.http.get(f"/{path}", headers={} if path.startswith("v1") else {"accept": "text/html"})
        assert reply.status_code == 200, f"{path}: {reply.text[-400:]}"
        found[path] = ONCE.sub("", reply.text)
    document = await api.get(f"/v1/jobs/{job}")
    found["job"] = str({name: value for name, value in document.items() if name not in ("archived", "version")})
    return found


def assert_same(after: dict[str, str], before: dict[str, str]) -> None:
    assert [path for path in before if after[path] != before[path]] == []


async def is_archived(api: Api) -> object:
    return (await api.get("/v1/jobs/a-job"))["archived"]


@pytest.mark.parametrize("pipeline", registry.list_offered())
async def test_a_job_of_any_pipeline_reads_the_same_afterwards(
    api: Api, database: Database, owner: Database, pipeline: str
) -> None:
    await add_bank(database)
    params = {} if registry.get(pipeline).ignores("rules") else {"rules": "bank"}
    job = uuid.UUID((await api.job(pipeline, repeats=2, params=params))["id"])
    await finished(database)
    await keep_documents(database)
    assert await job_states(database) == ["completed"]
    before, violations = await read_everything(api), await check(database, job)
    await archived(owner, "a-job")
    assert await rows(database, COUNTS) == [(0, 0, 0)]
    assert_same(await read_everything(api), before)
    assert await is_archived(api)
    assert await check(database, job) == violations


async def test_lapses_retries_and_a_failed_sample_read_the_same_afterwards(
    api: Api, database: Database, owner: Database
) -> None:
    job = uuid.UUID((await api.job("closed-book"))["id"])
    await advance(database)
    await claim_some(database, 1)
    await run_sql(database, "UPDATE queue SET claim_until = now() - interval '1 s' WHERE token IS NOT NULL")
    await lapse_expired(database, "sweeper")
    down = Failure(kind=FailureKind.BACKEND_ERROR, detail="down")
    for _ in range(RETRIES):
        await finished(database, lambda asked: down if "2 plus 2" in str(asked.values) else by_rule(asked))
        await let_pauses_pass(database)
    await finished(database)
    assert sorted(await sample_states(database)) == [2, 2, 2, 2, 3]
    before, violations = await read_everything(api), await check(database, job)
    await archived(owner, "a-job")
    assert await rows(database, COUNTS) == [(0, 0, 0)]
    assert_same(await read_everything(api), before)
    assert await check(database, job) == violations == []


async def test_what_is_made_of_an_archived_job_is_the_same(api: Api, database: Database, owner: Database) -> None:
    await api.job("mathrag-gate", params={"gate": {"tau": 1.0, "min_pairs": 5}})
    await api.job("mathrag-gate", name="other", repeats=2)
    await finished(database)
    await keep_documents(database)

    async def make(name: str) -> list[object]:
        labels = {"name": name, "job": "a-job", "what": "documents", "size": 3}
        replies = [
            await api.http.post("/v1/labels/sets", json=labels),
            await measure(api, "a-job", "faithfulness", name=f"{name}-measured"),
        ]
        assert [reply.text for reply in replies if not reply.is_success] == []
        tasks = "SELECT number, content, system FROM label_tasks JOIN label_sets s ON s.id = set_id WHERE s.name = :n"
        given = "SELECT ordinal, content FROM given g JOIN jobs j ON j.public_id = g.job WHERE j.name = :n ORDER BY 1"
        async with database.snapshot() as connection:
            both = [await jobs.resolve(connection, each) for each in ("a-job", "other")]
            costs = await jobs.load_costs(connection, both)
        return [
            await rows(database, f"{tasks} ORDER BY 1", n=name), await rows(database, given, n=f"{name}-measured"),
            costs, await api.get("/v1/comparison", job=["a-job", "other"]),
        ]  # fmt: skip

    before = await make("before")
    assert all(before)
    await archived(owner, "a-job")
    assert await make("after") == before


async def test_a_killed_archive_is_readable_and_the_next_completes_it(
    api: Api, database: Database, owner: Database
) -> None:
    await api.job("mathrag-gate", repeats=2)
    await finished(database)
    await keep_documents(database)
    job = uuid.UUID(str((await api.get("/v1/jobs/a-job"))["id"]))
    before, violations = await read_everything(api), await check(database, job)
    steps = await scalar(database, "SELECT count(*) FROM steps")
    (found,) = await purging.find_jobs(owner, ["a-job"])
    killed = asyncio.create_task(archiving.archive(held := HeldDatabase(owner, first=2), found, "killed"))
    await held.reached.wait()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    await purging.remove_unused(owner, "a-test")
    assert 0 < await scalar(database, "SELECT count(*) FROM steps") < steps  # type: ignore[operator]
    assert await scalar(database, "SELECT count(*) FROM archived_parts") == 2
    assert_same(await read_everything(api), before)
    assert await check(database, job) == violations
    await archived(owner, "a-job")
    assert await rows(database, COUNTS) == [(0, 0, 0)]
    assert await scalar(database, "SELECT count(*) FROM archived_parts") == 6
    assert_same(await read_everything(api), before)
    assert await check(database, job) == violations


async def test_a_job_whose_purge_was_killed_is_archived(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    (job,) = await purging.find_jobs(owner, ["a-job"])
    killed = asyncio.create_task(purging.purge(held := HeldDatabase(owner, first=2), job, "killed"))
    await held.reached.wait()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    assert await rows(database, "SELECT (SELECT count(*) FROM samples) FROM jobs") == [(0,)]
    await archived(owner, "a-job")
    assert await rows(database, COUNTS) == [(0, 0, 0)]


async def test_archiving_again_changes_nothing(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    await archived(owner, "a-job")
    before = await rows(database, "SELECT version, (SELECT count(*) FROM archived_parts) FROM jobs")
    await archived(owner, "a-job")
    assert await rows(database, "SELECT version, (SELECT count(*) FROM archived_parts) FROM jobs") == before
    assert await scalar(database, "SELECT count(*) FROM operations WHERE action = 'archive'") == 1


PLACE = "convert_to(format(E'%s %s %s\\n', job_id, first_sample, last_sample), 'UTF8')"
DAMAGES = {
    "content": "UPDATE archived_parts SET attempts = overlay(attempts PLACING '\\x00' FROM 9)",
    "hash": "UPDATE archived_parts SET sha256 = '\\x00'",
    "not-parquet": f"UPDATE archived_parts SET calls = 'x', sha256 = sha256({PLACE} || steps || 'x' || attempts)",  # noqa: S608
    "another-table": f"UPDATE archived_parts SET calls = steps, sha256 = sha256({PLACE} || steps || steps || attempts)",  # noqa: S608
    "range": "UPDATE archived_parts SET last_sample = first_sample - 1",
    "lost": "DELETE FROM archived_parts",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("part", ["min", "max"])
async def test_a_part_that_was_changed_or_lost_is_found(
    database: Database, owner: Database, plant: Plant, damage: str, part: str
) -> None:
    job = await completed(database)
    await archived(owner, "a-job")
    first = await scalar(database, f"SELECT {part}(first_sample) FROM archived_parts")  # noqa: S608
    await plant(f"{damage} WHERE first_sample = :first", first=first)
    found = await check(database, job)
    assert {each.invariant for each in found} >= {"I13", "I22"}
    assert not any("could not be checked" in each.message for each in found)
    damaged = [each.rows for each in found if each.message == "does not match its hash or cannot be read"]
    number = await scalar(database, "SELECT id FROM jobs")
    assert damaged == ([] if damage == DAMAGES["lost"] else [(f"archived_parts {number}/{first}",)])


def break_utf8(calls: pa.Table) -> pa.Table:
    place = calls.column_names.index("role")
    wrong = pa.array([b"\xff"] * len(calls), pa.binary()).view(pa.string())
    return calls.set_column(place, calls.field(place), wrong)


def leave_every_year(calls: pa.Table) -> pa.Table:
    place = calls.column_names.index("created_at")
    wrong = pa.array([2**62] * len(calls), pa.int64()).cast(calls.field(place).type)
    return calls.set_column(place, calls.field(place), wrong)


def repeat_keys(calls: pa.Table) -> pa.Table:
    place = calls.column_names.index("key")
    return calls.set_column(place, calls.field(place), pa.array([b""] * len(calls), pa.binary()))


REWRITINGS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no-utf-8": break_utf8,
    "no-year": leave_every_year,
    "no-keys": lambda calls: calls.drop_columns(["key"]),
    "other-keys": repeat_keys,
}


@pytest.mark.parametrize("rewrite", REWRITINGS.values(), ids=REWRITINGS)
async def test_a_part_that_was_written_anew_with_its_hash_is_found(
    database: Database, owner: Database, plant: Plant, rewrite: Callable[[pa.Table], pa.Table]
) -> None:
    job = await completed(database, "closed-book")
    await archived(owner, "a-job")
    async with database.snapshot() as connection:
        parts = await connection.execute(text("SELECT * FROM archived_parts ORDER BY first_sample DESC"))
        part = dict(parts.mappings().first() or {})
    sink = pa.BufferOutputStream()
    parquet.write_table(rewrite(parquet.read_table(pa.BufferReader(part["calls"]))), sink)
    part["calls"] = sink.getvalue().to_pybytes()
    changed = {"first": part["first_sample"], "calls": part["calls"], "hash": hash_part(part)}
    await plant("UPDATE archived_parts SET calls = :calls, sha256 = :hash WHERE first_sample = :first", **changed)
    found = await check(database, job)
    assert "I22" in {each.invariant for each in found}
    assert not any("could not be checked" in each.message for each in found)


async def test_a_page_of_a_damaged_part_says_so(database: Database, owner: Database, plant: Plant) -> None:
    await completed(database, "closed-book")
    await archived(owner, "a-job")
    last = await scalar(database, "SELECT max(first_sample) FROM archived_parts")
    await plant(f"{DAMAGES['content']} WHERE first_sample = :first", first=last)
    await load_provenance(database, "a-job", 0)
    with pytest.raises(Unreadable, match="the archive of this job is damaged"):
        await load_provenance(database, "a-job", 4)


async def test_a_call_that_another_job_shares_stays(database: Database, owner: Database) -> None:
    first = await completed(database)
    await add_dataset(database, 5, "changed", frozenset({1}))
    second = await submit_job(database, dataset="changed", name="second")
    await staged(database)
    await keep_documents(database)
    shown = await load_provenance(database, "second", 0)
    mine = "SELECT DISTINCT call_id FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
    needed = await rows(database, f"{mine} WHERE j.name = 'second' ORDER BY 1")
    kept = await load_provenance(database, "a-job", 0)
    await archived(owner, "a-job")
    assert await rows(database, "SELECT id FROM calls ORDER BY 1") == needed
    assert await load_provenance(database, "a-job", 0) == kept
    assert [each.attempt for each in (await load_provenance(database, "second", 0)).steps] == [
        each.attempt for each in shown.steps
    ]
    assert await check(database, first) == await check(database, second) == []
    before = await load_provenance(database, "second", 0)
    await archived(owner, "second")
    assert await rows(database, COUNTS) == [(0, 0, 0)]
    assert await load_provenance(database, "second", 0) == before
    assert await check(database, first) == await check(database, second) == []


async def test_a_reply_that_a_later_job_wanted_is_no_call_of_the_cancelled_one(
    database: Database, owner: Database
) -> None:
    await furnish(database)
    first = await submit_job(database, "closed-book", name="first")
    await advance(database)
    second = await submit_job(database, "closed-book", name="second")
    await advance(database)
    await cancel(database, first)
    await finish_due_jobs(database)
    await staged(database)
    assert await job_states(database) == ["cancelled", "completed"]
    for order in ("second", "first"):
        await archived(owner, order)
        assert await check(database, first) == await check(database, second) == []


async def test_whoever_attached_first_keeps_its_call(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    await submit_job(database, "closed-book", name="again")
    async with processes(database, 1) as [other]:
        attaching = asyncio.create_task(Advancer(held := HeldDatabase(other)).advance())
        await held.reached.wait()
        await archiving.archive(owner, (await purging.find_jobs(owner, ["a-job"]))[0], "a-test")
        assert await purging.remove_calls(owner) == (0, 0)
        held.go.set()
        await attaching
    await finish_due_jobs(database)
    assert await job_states(database) == ["completed", "completed"]


async def test_whoever_attaches_while_its_call_is_removed_asks_anew(database: Database, owner: Database) -> None:
    first = await completed(database, "closed-book")
    again = await submit_job(database, "closed-book", name="again")
    await archiving.archive(owner, (await purging.find_jobs(owner, ["a-job"]))[0], "a-test")
    removing = asyncio.create_task(purging.remove_calls(held := HeldDatabase(owner)))
    await held.reached.wait()
    async with processes(database, 1) as [other]:
        attaching = asyncio.create_task(Advancer(other).advance())
        await somebody_waits(database)
        held.go.set()
        assert await removing == (10, 10)
        assert (await attaching).samples == 5
    await staged(database)
    assert await check(database, first) == await check(database, again) == []


async def test_a_key_of_another_project_does_not_see_an_archived_job(database: Database, owner: Database) -> None:
    with limit_to("red"):
        await completed(database, "closed-book")
        before = await load_provenance(database, "a-job", 0)
    await archived(owner, "a-job")
    with limit_to("red"):
        assert await load_provenance(database, "a-job", 0) == before
    with limit_to("blue"), pytest.raises(NotFound):
        await load_provenance(database, "a-job", 0)


async def test_a_purge_deletes_the_parts_of_its_job_alone(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    await submit_job(database, "closed-book", name="other")
    await drain(database, ScriptedExecutor())
    before = await load_provenance(database, "other", 0)
    await archived(owner, "a-job", "other")
    (job,) = await purging.find_jobs(owner, ["a-job"])
    assert job.archived_parts == 3
    await purging.purge(owner, job, "a-test")
    assert await scalar(database, "SELECT count(*) FROM archived_parts") == 3
    after = await load_provenance(database, "other", 0)
    assert [each.attempt for each in after.steps] == [each.attempt for each in before.steps]


async def test_a_reader_sees_one_state_while_the_job_is_archived(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    async with database.snapshot() as connection:
        job = await jobs.resolve(connection, "a-job")
        async with show_archived(connection, job):
            await archiving.archive(owner, (await purging.find_jobs(owner, ["a-job"]))[0], "a-test")
            assert await purging.remove_calls(owner) == (10, 10)
            assert (await connection.execute(text(COUNTS))).all() == [(10, 10, 10)]
    async with database.snapshot() as connection, show_archived(connection, job):
        assert (await connection.execute(text(COUNTS))).all() == [(10, 10, 10)]


@pytest.fixture
async def connected(database: Database) -> AsyncIterator[Database]:
    """A process with a single connection, whose statements are prepared."""
    other = Database(database.engine.url.render_as_string(hide_password=False), pinned=True, size=1)
    yield other
    await other.close()


async def test_a_connection_reads_tables_and_archive_in_turns(connected: Database, owner: Database) -> None:
    await completed(connected, "closed-book")
    await add_dataset(connected, 7, "others", frozenset(range(7)))
    await submit_job(connected, "closed-book", name="other", dataset="others")
    await drain(connected, ScriptedExecutor())
    await archived(owner, "a-job")
    count = text("SELECT count(*) FROM steps")
    seen: list[Any] = []
    for _ in range(7):  # asyncpg and PostgreSQL keep plans after a few runs
        async with connected.snapshot() as connection:
            job = await jobs.resolve(connection, "a-job")
            seen.append((await connection.execute(count)).scalar())
            async with show_archived(connection, job):
                seen.append((await connection.execute(count)).scalar())
            seen.append((await connection.execute(count)).scalar())
    assert seen == [14, 10, 14] * 7


async def test_a_failure_while_an_archive_is_read_leaves_the_connection_usable(
    connected: Database, owner: Database
) -> None:
    await completed(connected, "closed-book")
    await archived(owner, "a-job")
    async with connected.snapshot() as connection:
        job = await jobs.resolve(connection, "a-job")
    count = text("SELECT count(*) FROM steps")

    async def fail() -> None:
        async with connected.snapshot() as connection, show_archived(connection, job):
            assert (await connection.execute(count)).scalar() == 10
            raise RuntimeError("meanwhile")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="meanwhile"):
            await fail()
        assert await scalar(connected, "SELECT count(*) FROM steps") == 0
    assert (await load_provenance(connected, "a-job", 0)).steps


async def test_a_role_that_may_not_make_temporary_tables_is_told_what_to_grant(
    database: Database, owner: Database, plant: Plant
) -> None:
    await completed(database, "closed-book")
    await archived(owner, "a-job")
    name = await scalar(database, "SELECT current_database()")
    await plant(f'REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC, mathrag_app', counted=False)
    try:
        with pytest.raises(Unavailable, match="temporary tables") as caught:
            await load_provenance(database, "a-job", 0)
        assert "GRANT TEMPORARY" in str(caught.value.hint)
        assert (await jobs.get(database, "a-job")).stages["generate"].done == 5
    finally:
        await plant(f'GRANT TEMPORARY ON DATABASE "{name}" TO PUBLIC', counted=False)
