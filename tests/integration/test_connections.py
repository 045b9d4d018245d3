"""Connections of the pool: one that will never serve again is made anew."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.storage import database as storage
from shared.storage.database import Database, is_passing, retry_through_outage

pytestmark = pytest.mark.anyio

DEMOTE = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
WRITE = text("INSERT INTO operations (actor, action, target) VALUES ('me', 'drain', 'cpu:0')")


@pytest.fixture
async def database(database: Database, database_url: str) -> AsyncIterator[Database]:
    connections = Database(database_url, pinned=True)
    yield connections
    await connections.close()


async def demoted(database: Database) -> None:
    async with database.engine.connect() as connection:
        await connection.execute(text(DEMOTE))
        await connection.commit()


async def test_a_connection_that_may_only_read_is_given_up(database: Database) -> None:
    await demoted(database)
    with pytest.raises(DBAPIError) as raised:
        async with database.transaction() as connection:
            await connection.execute(WRITE)
    assert is_passing(raised.value)
    async with database.transaction() as connection:
        await connection.execute(WRITE)


async def test_what_is_tried_again_outlasts_it(database: Database) -> None:
    await demoted(database)

    async def write() -> None:
        async with database.transaction() as connection:
            await connection.execute(WRITE)

    await retry_through_outage(write, 10)
    async with database.transaction() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM operations"))).scalar() == 1


async def test_a_statement_that_is_not_answered_in_time_is_an_outage(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "STATEMENT_S", 0.2)
    impatient = Database(database_url, pinned=True)
    with pytest.raises(DBAPIError, match="did not answer in time") as raised:
        async with impatient.transaction() as connection:
            await connection.execute(text("SELECT pg_sleep(600)"))
    assert is_passing(raised.value)
    async with impatient.transaction() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    await impatient.close()
