"""A test begins with empty tables and with the first numbers, whatever the test before it did to the database."""

from contextlib import suppress

import pytest
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from shared.storage.database import Database
from tests.integration.conftest import EmptyDatabase
from tests.integration.scene import ScriptedExecutor, drain, furnish, rows, submit_job

pytestmark = pytest.mark.anyio

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
# `gpu_epoch` is of no table, and only goes up.
DRAWN = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL AND sequencename <> 'gpu_epoch'"
DATASET = "INSERT INTO datasets (name, hash, items) VALUES ('a', '', 1)"
ROLLED_BACK = f"DO $$ BEGIN {DATASET}; RAISE unique_violation; END $$"
REFUSED = "INSERT INTO datasets (name, hash, items) VALUES ('a', NULL, 1)"
DOCUMENT = r"INSERT INTO documents VALUES ('\x00', 'problem', 'text')"


async def filled(database: Database) -> set[object]:
    tables = [name for (name,) in await rows(database, TABLES)]
    with_rows = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})" for name in tables)  # noqa: S608
    return {name for (name,) in [*await rows(database, with_rows), *await rows(database, DRAWN)]}


async def test_of_a_whole_job_nothing_is_left(database: Database, empty_database: EmptyDatabase) -> None:
    await furnish(database)
    await submit_job(database)
    await drain(database, ScriptedExecutor())
    assert {"datasets", "jobs", "samples", "calls", "steps", "attempts", "outcomes"} <= await filled(database)
    await to_thread.run_sync(empty_database)
    assert await filled(database) == set()


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        ((DATASET,), {"datasets", "datasets_id_seq"}),
        ((ROLLED_BACK,), {"datasets_id_seq"}),
        ((DOCUMENT,), {"documents"}),
        ((REFUSED,), {"datasets_id_seq"}),
        ((), set()),
    ],
    ids=["a row", "a row that was rolled back", "a row without a number", "a number without a row", "nothing"],
)
async def test_a_row_and_a_number_are_found_where_they_are(
    database: Database, empty_database: EmptyDatabase, statements: tuple[str, ...], left: set[str]
) -> None:
    for statement in statements:
        with suppress(IntegrityError):
            await run_alone(database, statement)
    assert await filled(database) == left
    await to_thread.run_sync(empty_database)
    assert await filled(database) == set()


async def run_alone(database: Database, statement: str) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.parametrize("time", ["first", "second"])
async def test_what_a_test_leaves_the_next_one_does_not_find(database: Database, time: str) -> None:
    assert await filled(database) == set()
    await run_alone(database, DATASET)
    assert await rows(database, "SELECT id FROM datasets") == [(1,)]
