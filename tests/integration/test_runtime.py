"""Jobs run to their end on a real database: every call once, every sample once, whatever is asked twice is reused."""

import pytest

from shared.storage.database import Database
from tests.integration.scene import (
    ScriptedExecutor,
    drain,
    furnish,
    rows,
    scalar,
    submit_job,
)

pytestmark = pytest.mark.anyio


async def test_a_job_ends_with_every_sample_completed(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert await rows(database, "SELECT kind, state, count(*) FROM samples GROUP BY 1, 2 ORDER BY 1") == [
        ("item", 2, 5),
        ("prepare", 2, 1),
    ]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_every_call_is_executed_once(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    executor = ScriptedExecutor()
    await drain(database, executor)
    assert set(executor.ran.values()) == {1}
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == len(executor.ran)
