"""Another version, a migration there and back, a restored backup: the job in flight goes on, and nothing is lost."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import TextClause, text

from shared.settings import REPOSITORY, Workers
from shared.storage.database import Database
from tests import servers
from tests.running import JUDGED, Document, RunningStack, ended, running_stack

pytestmark = pytest.mark.slow

ITEMS = 300
JOB = {"reuse": "none", "repeats": 4, "params": JUDGED}
"""Every job and every repeat computes everything anew."""
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""
TWICE = text("""
    SELECT call_id FROM attempts WHERE accepted GROUP BY call_id HAVING count(*) > 1
    UNION ALL SELECT call_id FROM steps WHERE created GROUP BY call_id HAVING count(*) > 1
""")
ROWS = text("""
    SELECT count(*) FROM samples UNION ALL SELECT count(*) FROM calls UNION ALL SELECT count(*) FROM queue
    UNION ALL SELECT count(*) FROM steps UNION ALL SELECT count(*) FROM attempts UNION ALL SELECT count(*) FROM outcomes
""")


def half_judged(document: Document) -> bool:
    return bool(document["state"] == "running" and document["stages"]["judge"]["done"] >= ITEMS)


def interrupted(stack: RunningStack) -> str:
    job = stack.submit("interrupted", **JOB)
    stack.wait(job, half_judged)
    return job


def whole(stack: RunningStack, job: str, database_url: str) -> None:
    stack.assert_whole(job)
    assert stack.get(f"/v1/jobs/{job}/report")["calls_lapsed"] <= IN_FLIGHT
    assert asyncio.run(fetched(database_url, TWICE)) == []


async def fetched(database_url: str, query: TextClause) -> list[Any]:
    database = Database(database_url, pinned=False)
    async with database.transaction() as connection:
        found = list((await connection.scalars(query)).all())
    await database.close()
    return found


def alembic(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "alembic", "-c", str(REPOSITORY / "migrations" / "alembic.ini"), *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("servers")
    with servers.postgres(folder / "postgres") as database, servers.redis(folder / "redis") as redis:
        yield {
            "MATHRAG_DATABASE_URL": database.url(),
            "MATHRAG_OWNER_URL": database.owner_url(),
            "MATHRAG_REDIS_URL": redis.url(),
        }


def test_a_job_in_flight_survives_a_stop_of_everything(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data") as stack:
        stack.furnish(tmp_path / "world", items=ITEMS)
        job = interrupted(stack)
    with running_stack(tmp_path / "data") as stack:
        assert not ended(stack.get(f"/v1/jobs/{job}"))
        whole(stack, job, stack.database_url())
        assert stack.get(f"/v1/jobs/{job}/report")["calls_lapsed"] == 0


def test_a_job_in_flight_survives_a_migration_there_and_back(environment: dict[str, str], tmp_path: Path) -> None:
    url = environment["MATHRAG_DATABASE_URL"]
    with running_stack(tmp_path / "data", **environment) as stack:
        stack.furnish(tmp_path / "world", items=ITEMS)
        finished = stack.submit("finished", pipeline="hybrid")
        stack.wait(finished, ended)
        job = interrupted(stack)
    before = asyncio.run(fetched(url, ROWS))
    alembic(environment, "downgrade", "0001")
    alembic(environment, "upgrade", "head")
    assert asyncio.run(fetched(url, ROWS)) == before
    with running_stack(tmp_path / "data", **environment) as stack:
        assert not ended(stack.get(f"/v1/jobs/{job}"))
        whole(stack, job, url)
        assert stack.get(f"/v1/jobs/{finished}")["state"] == "completed"


def test_every_service_may_be_restarted_while_a_job_runs(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data") as stack:
        stack.furnish(tmp_path / "world", items=ITEMS)
        job = interrupted(stack)
        for name in ("retriever", "judge", "guard", "generator", "orchestrator"):
            stack.restart(name)
        whole(stack, job, stack.database_url())
