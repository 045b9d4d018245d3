from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.calls import Generate
from shared.params import Params
from shared.pipelines import registry
from shared.replies import require
from shared.samples import Library, Pipeline, Sample, Steps
from shared.storage.database import Database
from tests.integration.api import serving
from tests.integration.conftest import Plant
from tests.integration.scene import ended, furnish, install, rows, run_sql, scalar, submit_job
from tests.integration.tampering import labelled
from tests.integration.test_audit import completed, staged

# What is only ever added to: the application has no right to change it, and the owner is refused unless it purges.


pytestmark = pytest.mark.anyio

TABLES = {
    "attempts": "outcome = 'x'",
    "documents": "body = 'x'",
    "given": "content = 'x'",
    "job_events": "state = 'failed'",
    "label_tasks": "system = '5'",
    "labels": "value = '5'",
    "operations": "actor = 'x'",
    "outcomes": "answer = 'x'",
    "records": "seq = 99",
    "steps": "created = false",
}


@pytest.fixture
async def owner(owner_url: str, database: Database) -> AsyncIterator[Database]:
    job = await completed(database, "closed-book")
    await labelled(database, job)
    await run_sql(database, "INSERT INTO operations (actor, action, target) VALUES ('a', 'b', 'c')")
    await run_sql(database, "INSERT INTO given VALUES (gen_random_uuid(), 0, 0, '{}')")
    owner = Database(owner_url, pinned=False)
    yield owner
    await owner.close()


def changes(table: str) -> list[str]:
    ways = ("UPDATE # SET ?", "DELETE FROM #", "TRUNCATE # CASCADE")
    return [way.replace("#", table).replace("?", TABLES[table]) for way in ways]


async def claiming_to_purge(database: Database, statement: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL mathrag.purge = 'on'"))
        await connection.execute(text(statement))


@pytest.mark.parametrize("table", TABLES)
async def test_the_application_may_not_change_it(database: Database, owner: Database, table: str) -> None:
    for statement in changes(table):
        with pytest.raises(DBAPIError, match="permission denied"):
            await claiming_to_purge(database, statement)


@pytest.mark.parametrize("table", TABLES)
async def test_the_owner_is_refused_by_the_trigger(owner: Database, table: str) -> None:
    for statement in changes(table)[:2]:
        with pytest.raises(DBAPIError, match=f"{table} is append-only"):
            await run_sql(owner, statement)


@pytest.mark.parametrize("table", TABLES)
async def test_a_purge_may_delete_and_never_change(owner: Database, table: str) -> None:
    update, delete, _ = changes(table)
    allowed = table != "operations"
    for statement in (update, delete):
        async with owner.engine.connect() as connection:
            await connection.execute(text("SET LOCAL mathrag.purge = 'on'"))
            if statement is delete and allowed:
                assert (await connection.execute(text(statement))).rowcount > 0
            else:
                with pytest.raises(DBAPIError, match=f"{table} is append-only"):
                    await connection.execute(text(statement))
            await connection.rollback()


async def test_events_cannot_be_deleted_by_way_of_their_job(database: Database, owner: Database) -> None:
    for table in ("jobs", "samples"):
        with pytest.raises(DBAPIError, match="permission denied"):
            await claiming_to_purge(database, "DELETE FROM #".replace("#", table))


async def test_every_change_of_a_job_leaves_an_event(database: Database, owner: Database) -> None:
    states = await rows(database, "SELECT version, state FROM job_events ORDER BY version")
    assert states == [(1, "preparing"), (2, "running"), (3, "finalizing"), (4, "completed")]
    assert await scalar(database, "SELECT version FROM jobs") == 4


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
async def job(database: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    install(monkeypatch, "asking", asking)
    await furnish(database)
    job = await submit_job(database, "asking")
    await staged(database)
    return str(job)


def changed(monkeypatch: pytest.MonkeyPatch, run: Pipeline) -> None:
    install(monkeypatch, "asking", run)
    known = registry.pipeline_hash
    monkeypatch.setattr(registry, "pipeline_hash", lambda name: "f" * 64 if name == "asking" else known(name))


async def audited(database: Database, redis_url: str, job: str) -> tuple[bool, list[tuple[str, bool]], str | None]:
    async with serving(database, redis_url) as api:
        found = await api.get(f"/v1/jobs/{job}/audit")
    messages = [(each["message"], each["source_changed"]) for each in found["violations"] if each["invariant"] == "I18"]
    return found["clean"], messages, found["source_changed"]


async def test_the_same_version_is_not_mentioned(database: Database, redis_url: str, job: str) -> None:
    assert await audited(database, redis_url, job) == (True, [], None)


async def test_a_changed_pipeline_with_the_same_outcomes_is_noted_and_clean(
    database: Database, redis_url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = registry.pipeline_hash("asking")
    changed(monkeypatch, rewritten)
    note = f"pipeline changed: the job ran version {ran[:12]} of `asking`, this program has ffffffffffff"
    assert await audited(database, redis_url, job) == (True, [], note)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (answering_otherwise, "its replay has another outcome"),
        (asking_otherwise, "its replay fails: replay_diverged"),
    ],
)
async def test_a_changed_pipeline_with_other_outcomes_cannot_be_replayed_and_forges_nothing(
    database: Database, redis_url: str, job: str, monkeypatch: pytest.MonkeyPatch, run: Pipeline, said: str
) -> None:
    changed(monkeypatch, run)
    clean, messages, note = await audited(database, redis_url, job)
    assert (clean, messages[0]) == (False, (UNREPLAYED.format(said), True))
    assert all(source_changed for _, source_changed in messages)
    assert note is not None


async def test_other_outcomes_of_the_same_version_violate_the_invariant(
    database: Database, redis_url: str, job: str, plant: Plant
) -> None:
    await plant("UPDATE outcomes SET outcome = 'null'")
    clean, messages, note = await audited(database, redis_url, job)
    assert (clean, messages, note) == (False, [("its replay has another outcome", False)], None)


async def test_a_changed_pipeline_excuses_no_row_that_contradicts_another(
    database: Database, redis_url: str, job: str, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    changed(monkeypatch, rewritten)
    await plant("UPDATE outcomes SET answer = 'forged'")
    clean, messages, _ = await audited(database, redis_url, job)
    assert (clean, messages) == (False, [("its columns differ from its outcome", False)])
