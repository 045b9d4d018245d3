import asyncio
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import redis.asyncio
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from mathrag.errors import Unavailable
from mathrag_gate.stack import postgres as postgres_module
from mathrag_gate.stack import process
from mathrag_gate.stack import redis as redis_module
from mathrag_gate.stack.postgres import migrate
from mathrag_gate.stack.redis import find_free_port
from mathrag_gate.stack.supervisor import build_stack
from shared.models import shipped
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.settings import Settings
from shared.storage.database import Database
from tests.integration.api import Api

# The embedded PostgreSQL and Redis are real, keep their state, and change nothing outside their folder.


pytestmark = pytest.mark.anyio


@asynccontextmanager
async def started(server: postgres_module.Postgres | redis_module.Redis) -> AsyncIterator[psutil.Process]:
    server.prepare()
    log = server.directory.with_name("server.log")
    stop = postgres_module.STOP_SIGNAL if isinstance(server, postgres_module.Postgres) else redis_module.STOP_SIGNAL
    child = process.spawn(server.command(), log=log, dies_by=stop)
    try:
        await process.wait_ready("server", child, server.is_ready, log=log)
        yield psutil.Process(child.pid)
    finally:
        await process.stop(child, by=stop)
    assert child.returncode == 0


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    folder.chmod(0o700)
    (folder / "data").mkdir()
    return folder / "data"


@pytest.fixture
def postgres(data_dir: Path) -> postgres_module.Postgres:
    return postgres_module.Postgres(
        data_dir / "postgres", port=find_free_port(), passwords=postgres_module.load_passwords(data_dir)
    )


async def _fetch(url: str, sql: str) -> list[tuple[object, ...]]:
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(sql))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        await engine.dispose()


async def test_nothing_outside_the_data_directory_changes(postgres: postgres_module.Postgres, data_dir: Path) -> None:
    before = _outside(data_dir)
    async with started(postgres):
        assert _outside(data_dir) == before
    assert _outside(data_dir) == before


def _outside(data_dir: Path) -> list[object]:
    binary = Path(postgres_module.find_binary("postgres"))
    watched = [data_dir, *data_dir.parents, binary, *binary.parents]
    return [Path("/etc/passwd").read_bytes(), *((path, _permissions(path)) for path in watched)]


def _permissions(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mode, status.st_uid, status.st_gid


async def test_roles_exist_and_rule_nothing(postgres: postgres_module.Postgres) -> None:
    async with started(postgres):
        await postgres.create_database()
        await postgres.create_database()
        roles = await _fetch(
            postgres.url(), "SELECT rolname, rolsuper FROM pg_roles WHERE rolname ~ '^mathrag' ORDER BY 1"
        )
        owner = await _fetch(
            postgres.owner_url(), "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'mathrag'"
        )
    assert roles == [("mathrag_app", False), ("mathrag_owner", False)]
    assert owner == [("mathrag_owner",)]


async def test_migrated_rows_survive_a_restart(postgres: postgres_module.Postgres) -> None:
    async with started(postgres):
        await postgres.create_database()
        await migrate(postgres.owner_url())
        await _fetch(postgres.url(), "INSERT INTO documents VALUES ('\\x01', 'problem', 'body')")
    async with started(postgres):
        await migrate(postgres.owner_url())
        assert await _fetch(postgres.url(), "SELECT problem, body FROM documents") == [("problem", "body")]


async def test_committed_rows_survive_kill(postgres: postgres_module.Postgres) -> None:
    postgres.prepare()
    log = postgres.directory.with_name("server.log")
    child = process.spawn(postgres.command(), log=log, dies_by=postgres_module.STOP_SIGNAL)
    await process.wait_ready("postgres", child, postgres.is_ready, log=log)
    await postgres.create_database()
    await _fetch(postgres.owner_url(), "CREATE TABLE kept AS SELECT 1 AS one")
    left = psutil.Process(child.pid).children()
    child.kill()
    child.wait()
    await asyncio.to_thread(psutil.wait_procs, left, timeout=10)
    async with started(postgres):
        assert await _fetch(postgres.owner_url(), "SELECT one FROM kept") == [(1,)]


@pytest.mark.parametrize("content", ["", "no number\n", "{foreign}\n/other\n"], ids=["empty", "broken", "foreign"])
async def test_a_pid_file_without_a_server_does_not_block_the_start(
    postgres: postgres_module.Postgres, content: str
) -> None:
    other = postgres_module.Postgres(
        postgres.directory.with_name("other"), port=find_free_port(), passwords=postgres.passwords
    )
    postgres.prepare()
    async with started(other) as foreign:
        (postgres.directory / "postmaster.pid").write_text(content.format(foreign=foreign.pid))
        async with started(postgres):
            assert await _fetch(
                postgres._make_url(postgres_module.SUPERUSER, postgres.passwords.superuser, "postgres"), "SELECT 1"
            )


async def test_data_of_another_major_version_are_refused_before_anything_changes(tmp_path: Path) -> None:
    stack = build_stack(Settings(), data_dir=tmp_path, port=0)
    stack.postgres.prepare()
    (stack.postgres.directory / "PG_VERSION").write_text("17\n")
    (stack.postgres.directory / "postmaster.pid").write_text("1\n")
    before = _list_files(tmp_path)
    for refuse in (stack.check_servers, stack.postgres.prepare):
        with pytest.raises(Unavailable, match=r"PostgreSQL 17 wrote .* cannot read; nothing was") as refused:
            refuse()
        assert "mathrag backup FILE" in str(refused.value.hint)
        assert "mathrag restore FILE --data-dir NEW" in str(refused.value.hint)
        assert _list_files(tmp_path) == before


def _list_files(folder: Path) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (status.st_mode, status.st_size, status.st_mtime_ns) for path, status in found.items()}


async def test_wrong_password_is_said_in_words(postgres: postgres_module.Postgres) -> None:
    async with started(postgres):
        stranger = postgres_module.Postgres(
            postgres.directory, port=postgres.port, passwords=postgres_module.Passwords()
        )
        with pytest.raises(Unavailable, match="rejects the password"):
            await stranger.is_ready()


async def test_passwords_are_hidden(postgres: postgres_module.Postgres, data_dir: Path) -> None:
    secrets = postgres_module.load_passwords(data_dir)
    async with started(postgres) as server:
        await postgres.create_database()
        shown = " ".join(server.cmdline()) + (data_dir / "server.log").read_text()
    assert not [secret for secret in (secrets.superuser, secrets.owner, secrets.app) if secret in shown]
    assert stat.S_IMODE((data_dir / "passwords.json").stat().st_mode) == 0o600


async def test_redis_keeps_its_state(data_dir: Path) -> None:
    server = redis_module.Redis(data_dir / "redis", port=find_free_port(), passwords=postgres_module.Passwords())
    async with started(server) as running, redis.asyncio.Redis.from_url(server.url()) as client:
        await client.set("key", "value")
        assert (await client.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        assert server.passwords.redis not in " ".join(running.cmdline())
        stranger = redis_module.Redis(server.directory, port=server.port, passwords=postgres_module.Passwords())
        with pytest.raises(Unavailable, match="rejects the password"):
            await stranger.is_ready()
    async with started(server), redis.asyncio.Redis.from_url(server.url()) as client:
        assert await client.get("key") == b"value"


async def test_application_may_not_change_history(database: Database) -> None:
    for statement in ("UPDATE attempts SET accepted = false", "DELETE FROM attempts", "TRUNCATE attempts"):
        with pytest.raises(DBAPIError, match="permission denied"):
            async with database.transaction() as connection:
                await connection.execute(text(statement))


async def test_database_fixture_is_empty_each_time(database: Database) -> None:
    await _one_document(database)


async def test_database_fixture_is_empty_each_time_again(database: Database) -> None:
    await _one_document(database)


async def _one_document(database: Database) -> None:
    async with database.transaction() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM documents")) == 0
        await connection.execute(text("INSERT INTO documents VALUES ('\\x01', 'problem', 'body')"))


async def test_redis_fixture_is_a_redis(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("left", "over")


# A model server whose version loses answers is warned of wherever models and jobs are shown, and used all the same.


async def register(database: Database, name: str, version: str) -> None:
    async with database.transaction() as connection:
        await pins.register(
            connection, ModelIdentity(name=name, backend="llama.cpp", digest="d", version=version, device="cpu:0")
        )


async def test_a_flawed_version_is_warned_of_and_not_refused(api: Api, database: Database) -> None:
    await register(database, "lossy", "10434 (7e4c0a9)")
    await register(database, "world-judge", "10434 (7e4c0a9)")
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "models": {"generate": "lossy"}}
    reply = await api.http.post("/v1/jobs", json=body)
    assert reply.status_code == 202
    (warning,) = reply.json()["warnings"]
    assert warning.startswith("model 'lossy': llama.cpp 10434 (7e4c0a9) ends an answer")
    listed = {each["name"]: each for each in await api.get("/v1/models")}
    assert (listed["world-judge"]["version"], "7e4c0a9" in listed["world-judge"]["warning"]) == (
        "10434 (7e4c0a9)",
        True,
    )


async def test_nothing_is_said_of_other_versions(api: Api, database: Database) -> None:
    await register(database, "whole", "11434 (1234567)")
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "models": {"generate": "whole"}}
    assert "warnings" not in (await api.http.post("/v1/jobs", json=body)).json()


# A demonstration model is warned of wherever its answers to other questions could be believed.


async def test_a_demonstration_model_is_warned_of_where_it_is_asked_about_another_world(
    api: Api, database: Database
) -> None:
    async with database.transaction() as connection:
        await pins.register(
            connection,
            ModelIdentity(name="mine", backend="llama.cpp", digest=next(iter(shipped.DIGESTS)), device="cpu:0"),
        )
    made_up = [{"question": "What is the value of 2 zorlo 4?", "answer": "8"}, {"question": "Determine 3 kippo 1."}]
    await api.upload("datasets", "world", made_up)
    await api.upload("datasets", "handbook", [{"question": "What is 2 times 4?", "answer": "8"}, *made_up[1:]])
    await api.upload("datasets", "other", [{"question": "What is 2 times 4?", "answer": "8"}])
    said = "demonstration models (mine) only know a made-up world: their results with the questions of dataset"

    def list_said(warnings: Sequence[str]) -> list[str]:
        return [each for each in warnings if "demonstration" in each]

    asked = {"pipeline": "closed-book", "models": {"generate": "mine"}}
    for dataset, expected in (("world", 0), ("handbook", 0), ("other", 1)):
        job = await api.job(name=dataset, dataset=dataset, **asked)
        assert [each.startswith(f"{said} 'other'") for each in list_said(job.get("warnings", ()))] == [True] * expected
        assert len(list_said((await api.get(f"/v1/jobs/{job['id']}/report"))["notes"])) == expected
        assert (said in (await api.http.get(f"/jobs/{job['id']}", headers={"Accept": "text/html"})).text) == expected
    assert not list_said((await api.job(name="scripted", dataset="other", pipeline="closed-book")).get("warnings", ()))
    judged = await api.job(name="judged", dataset="other", pipeline="mathrag-gate", models={"judge": "mine"})
    assert not list_said(judged.get("warnings", ()))
    metrics = {"metrics": {"names": ["answer_relevance"]}}
    measured = await api.job(
        name="measured", dataset="other", pipeline="closed-book", params=metrics, models={"judge": "mine"}
    )
    assert [each.startswith(f"{said} 'other'") for each in list_said(measured["warnings"])] == [True]
    cells = {"datasets": [{"dataset": "world"}, {"dataset": "other"}], "variants": [{"name": "alone", **asked}]}
    made = (await api.http.post("/v1/experiments", json={"name": "e", **cells})).json()
    assert len(list_said(made["warnings"])) == 1
    assert len(list_said((await api.get(f"/v1/experiments/{made['id']}/report"))["notes"])) == 1
    compared = await api.get("/v1/comparison", job=["other", "scripted"])
    assert len(list_said(compared["notes"])) == 1
    chat = {"question": "Why is the sky blue?", "models": {"generate": "mine"}, "wait_s": 0}
    assert len(list_said((await api.http.post("/v1/chat", json=chat)).json()["warnings"])) == 1
