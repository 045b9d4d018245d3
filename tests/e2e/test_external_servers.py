"""`mathrag up` on servers that somebody else runs: nothing is embedded, nobody but the migration is the owner."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from mathrag_gate.stack import postgres as postgres_module
from tests import servers
from tests.running import JUDGED, RunningStack, ended, mathrag, running_stack

WORKER = "somebody"
"""A login of the operator's choice."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("external")
    with servers.postgres(folder / "postgres") as database, servers.redis(folder / "redis") as redis:
        # Any name will do, and the rights come from the role.
        url = asyncio.run(_member(database))
        yield {
            "MATHRAG_DATABASE_URL": url,
            "MATHRAG_OWNER_URL": database.owner_url(),
            "MATHRAG_REDIS_URL": redis.url(),
        }


async def _member(server: postgres_module.Postgres) -> str:
    password = server.passwords.app
    async with server._connect_as_superuser() as connection:
        await connection.execute(f"CREATE ROLE {WORKER} LOGIN PASSWORD '{password}' IN ROLE {postgres_module.APP}")
    return server.url().replace(postgres_module.APP, WORKER)


@pytest.fixture(scope="module")
def stack(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("stack")
    with running_stack(folder / "data", **environment) as running:
        running.furnish(folder / "world", items=10)
        yield running


def test_no_server_of_our_own_is_started(stack: RunningStack) -> None:
    children = {child["name"] for child in stack.status()["stack"]["children"]}
    assert children == {"guard", "retriever", "judge", "generator", "orchestrator"}
    assert stack.get("/readyz")["ready"]
    assert not (stack.data_dir / "postgres").exists()


def test_a_job_completes_and_its_audit_is_clean(stack: RunningStack, environment: dict[str, str]) -> None:
    job = stack.submit("elsewhere", params=JUDGED)
    assert stack.wait(job, ended)["state"] == "completed"
    assert mathrag("audit", job, MATHRAG_URL=stack.url).returncode == 0
    assert asyncio.run(_users(environment["MATHRAG_OWNER_URL"])) == {WORKER}


def test_the_owners_address_reaches_no_service(stack: RunningStack, environment: dict[str, str]) -> None:
    secrets = [url.partition("@")[0].rpartition(":")[2].encode() for url in environment.values()]
    files = [file for file in stack.data_dir.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if any(secret in file.read_bytes() for secret in secrets)]


def test_an_owner_who_cannot_log_in_is_said_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    wrong = {**environment, "MATHRAG_OWNER_URL": environment["MATHRAG_DATABASE_URL"].replace(WORKER, "nobody")}
    started = mathrag("up", "--detach", "--data-dir", str(tmp_path / "data"), "--port", "0", **wrong)
    assert started.returncode != 0
    assert "the migration failed" in started.stderr


async def _users(owner_url: str) -> set[str]:
    engine = create_async_engine(owner_url)
    async with engine.connect() as connection:
        rows = await connection.scalars(
            text("SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name = 'mathrag'")
        )
        found = set(rows)
    await engine.dispose()
    return found
