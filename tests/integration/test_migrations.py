"""A migration there and back, with rows: jobs of before are audited, and what is written after is protected."""

import subprocess
import sys
import uuid
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.audit import check
from shared.settings import REPOSITORY
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.conftest import Plant
from tests.integration.scene import Uncommitted, attempt, rows, scalar
from tests.integration.tampering import uploaded

pytestmark = pytest.mark.anyio

# One process, as starting it takes longer than its migrations; back also where the first of them fails.
THERE_AND_BACK = """
import sys
from alembic.config import main
try:
    main(["-c", sys.argv[1], "downgrade", "0005"])
finally:
    main(["-c", sys.argv[1], "upgrade", "head"])
"""
COMMAND = "import sys; from alembic.config import main; main(['-c', sys.argv[1], '{}', '{}'])"


@pytest.fixture(scope="module")
async def before(emptied: None, connections: Database, owner_url: str) -> uuid.UUID:
    job = await uploaded(connections)
    await connections.engine.dispose()  # connections would keep plans of the older schema
    migrate(owner_url, THERE_AND_BACK)
    return job


def migrate(owner_url: str, program: str) -> None:
    command = [sys.executable, "-c", program, str(REPOSITORY / "migrations" / "alembic.ini")]
    done = subprocess.run(command, env={"MATHRAG_OWNER_URL": owner_url}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
async def database(owner_engine: AsyncEngine, before: uuid.UUID) -> AsyncIterator[Uncommitted]:
    """The rows as the transaction sees them in which a test changes them; it is rolled back."""
    async with owner_engine.connect() as connection:
        yield Uncommitted(connection)


@pytest.fixture
def plant(database: Uncommitted) -> Plant:
    return database.plant


async def test_a_job_of_before_is_audited(database: Database, before: uuid.UUID) -> None:
    assert await check(database, before) == []
    kept = "SELECT version, job IS NOT NULL FROM job_events WHERE job_id = 1 ORDER BY version"
    assert await rows(database, kept) == [(1, False), (2, False), (3, False), (4, True)]


@pytest.mark.parametrize(
    "change", ["reason = 'changed'", "ended_at = ended_at - interval '1 h'", "ended_at = ended_at + interval '1 h'"]
)
async def test_a_job_of_before_is_protected_from_now_on(
    database: Database, connections: Database, before: uuid.UUID, plant: Plant, change: str
) -> None:
    statement = "UPDATE jobs SET # WHERE id = 1".replace("#", change)
    with pytest.raises(DBAPIError, match="final"):
        await attempt(connections, statement)
    await plant(statement)
    assert await check(database, before) != []
    await plant("UPDATE job_events SET job = NULL")
    assert await check(database, before) != []


async def test_an_event_that_lacks_a_column_of_later_is_that_of_a_row_where_it_is_null(
    database: Database, before: uuid.UUID, plant: Plant
) -> None:
    await plant("UPDATE job_events SET job = job - 'reason'")
    assert await check(database, before) == []
    await plant("UPDATE job_events SET job = job - 'rank'")
    assert "I21" in {each.invariant for each in await check(database, before)}


async def test_a_dataset_of_before_counts_its_alternatives_no_more(
    database: Database, before: uuid.UUID, plant: Plant
) -> None:
    assert await scalar(database, "SELECT count(*) FROM items WHERE alternatives IS NOT NULL") == 0
    assert await check(database, before) == []
    await plant("DELETE FROM items WHERE dataset_id = 2 AND ordinal = 4")
    assert "I23" in {each.invariant for each in await check(database, before)}


# Must be the last test: it leaves rows behind.


async def test_calls_in_the_queue_keep_their_order_there_and_back(
    before: uuid.UUID, connections: Database, owner_url: str
) -> None:
    await scene.add_dataset(connections, 8, "questions")
    for key, rank in (("ann", 100), ("bob", 100), ("ann", 7), ("ann", 100)):
        await scene.submit_job(
            connections, "closed-book", dataset="questions", corpus=None, reuse="none", submitted_by=key, rank=rank
        )
        await scene.advance(connections)
    places = """
        SELECT place FROM queue JOIN steps USING (call_id) JOIN samples s ON s.id = sample_id
        JOIN jobs j ON j.id = job_id
        WHERE code ->> 'submitted_by' IS NOT NULL ORDER BY job_id, ordinal"""
    new = await rows(connections, places)
    await connections.engine.dispose()
    try:
        migrate(owner_url, COMMAND.format("downgrade", "0020"))
        # A rank has 40 bits below it, and a turn counts whole samples.
        assert [(place >> 40, place & 255) for (place,) in await rows(connections, places)] == [
            (rank, turn + sample) for rank, turn in ((100, 0), (100, 0), (7, 8), (100, 16)) for sample in range(8)
        ]
    finally:
        await connections.engine.dispose()
        migrate(owner_url, COMMAND.format("upgrade", "head"))
    assert await rows(connections, places) == new
