"""What is only ever added to: the application has no right to change it, and the owner is refused unless it purges."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.storage.database import Database
from tests.integration.scene import force, rows, run_sql, scalar
from tests.integration.tampering import labelled
from tests.integration.test_audit import completed

pytestmark = pytest.mark.anyio

TABLES = {
    "archived_parts": "sha256 = 'x'",
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


@pytest.fixture(scope="module")
async def filled(emptied: None, connections: Database, owner_url: str) -> Database:
    """One job and a row of each table, which no test of this file changes."""
    job = await completed(connections, "closed-book")
    await labelled(connections, job)
    await run_sql(connections, "INSERT INTO operations (actor, action, target) VALUES ('a', 'b', 'c')")
    await run_sql(connections, "INSERT INTO given VALUES (gen_random_uuid(), 0, 0, '{}')")
    await force(owner_url, "INSERT INTO archived_parts SELECT id, 0, 0, '', '', '', '' FROM jobs")
    return connections


@pytest.fixture
def database(filled: Database) -> Database:
    return filled


def changes(table: str) -> list[str]:
    ways = ("UPDATE # SET ?", "DELETE FROM #", "TRUNCATE # CASCADE")
    return [way.replace("#", table).replace("?", TABLES[table]) for way in ways]


async def claiming_to_purge(database: Database, statement: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL mathrag.purge = 'on'"))
        await connection.execute(text(statement))


@pytest.mark.parametrize("table", TABLES)
async def test_the_application_may_not_change_it(database: Database, table: str) -> None:
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


async def test_events_cannot_be_deleted_by_way_of_their_job(database: Database) -> None:
    for table in ("jobs", "samples"):
        with pytest.raises(DBAPIError, match="permission denied"):
            await claiming_to_purge(database, "DELETE FROM #".replace("#", table))


async def test_every_change_of_a_job_leaves_an_event(database: Database) -> None:
    states = await rows(database, "SELECT version, state FROM job_events ORDER BY version")
    assert states == [(1, "preparing"), (2, "running"), (3, "finalizing"), (4, "completed")]
    assert await scalar(database, "SELECT version FROM jobs") == 4
