import asyncio
import os
import uuid
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from services.guard import ownership
from services.guard.ownership import DatabaseLock, DeviceTaken
from shared.settings import Device, Settings
from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.scene import run_sql, scalar

# One guard per device, whatever dies and wherever the other one runs.


pytestmark = pytest.mark.anyio

# Without its timeout in milliseconds the function returns before the session, and with it its lock, has ended.
CUT = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'mathrag-guard'"

HELD = """
    SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'mathrag-guard'"""

WAITING = HELD.replace("l.granted", "NOT l.granted")

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mathrag-guard'"


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
def settings(database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setitem(ownership.SESSION, "lock_timeout", "100ms")
    monkeypatch.setattr(ownership, "POLL_S", 0.01)
    return Settings(database_url=database_url, data_dir=tmp_path)


def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"data_dir": tmp_path / "elsewhere"})


async def test_two_guards_of_one_database_refuse_each_other_on_whatever_hosts(
    settings: Settings, tmp_path: Path
) -> None:
    async with ownership.own_in_database(settings):
        with pytest.raises(DeviceTaken, match="'cpu:0' has a guard already"):
            await DatabaseLock(elsewhere(settings, tmp_path)).take()
    async with ownership.own_in_database(elsewhere(settings, tmp_path)):
        pass


async def test_guards_of_two_devices_do_not_meet(settings: Settings) -> None:
    other = settings.model_copy(update={"device": Device(id="cpu:1")})
    async with ownership.own_in_database(settings), ownership.own_in_database(other):
        pass


async def test_a_guard_that_died_leaves_the_device_free(settings: Settings, tmp_path: Path, database: Database) -> None:
    dead = DatabaseLock(settings)
    await dead.take()
    await run_sql(database, CUT)
    async with ownership.own_in_database(elsewhere(settings, tmp_path)):
        pass


async def test_a_guard_whose_connection_is_cut_takes_the_device_again(settings: Settings, database: Database) -> None:
    async with ownership.own_in_database(settings) as lock:
        keeping = asyncio.create_task(lock.keep())
        await run_sql(database, CUT)
        async with asyncio.timeout(30):
            while not await scalar(database, HELD):  # noqa: ASYNC110 - a lock tells nobody that it is taken
                await asyncio.sleep(0.01)
        assert not keeping.done()
        await cancel(keeping)


async def test_a_guard_that_stops_while_it_takes_the_device_leaves_no_session(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ownership.SESSION, "lock_timeout", "30s")
    async with ownership.own_in_database(settings):
        taking = asyncio.create_task(DatabaseLock(settings).take())
        async with asyncio.timeout(30):
            while not await scalar(database, WAITING):  # noqa: ASYNC110 - a lock tells nobody that it is awaited
                await asyncio.sleep(0.01)
        await cancel(taking)
        assert await scalar(database, SESSIONS) == 1


async def test_a_connection_that_ends_while_it_is_asked_does_not_end_the_watch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def execute(_: asyncpg.Connection, query: str) -> None:
        asked.append(query)
        raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")

    monkeypatch.setattr(asyncpg.Connection, "execute", execute)
    async with ownership.own_in_database(settings) as lock:
        keeping = asyncio.create_task(lock.keep())
        async with asyncio.timeout(30):
            while len(asked) < 3 and not keeping.done():  # noqa: ASYNC110 - nobody tells that it was asked
                await asyncio.sleep(0.01)
        assert not keeping.done()
        await cancel(keeping)


async def test_a_guard_that_lost_the_device_to_another_is_told(
    settings: Settings, tmp_path: Path, database: Database
) -> None:
    async with ownership.own_in_database(settings) as lock:
        await run_sql(database, CUT)
        async with ownership.own_in_database(elsewhere(settings, tmp_path)), asyncio.timeout(30):
            await lock.keep()


def test_a_gpu_has_one_guard_on_its_host_whatever_the_databases(settings: Settings, tmp_path: Path) -> None:
    card = Device(id=f"GPU-{tmp_path.name}")
    one = settings.model_copy(update={"device": card})
    with ownership.own_on_host(one), pytest.raises(DeviceTaken), ownership.own_on_host(elsewhere(one, tmp_path)):
        pass
    with ownership.own_on_host(elsewhere(one, tmp_path)):
        pass


def test_nobody_else_can_open_the_lock(settings: Settings) -> None:
    path = ownership.host_lock_path(settings)
    path.touch(0o644)  # of an earlier release
    with ownership.own_on_host(settings):
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


@pytest.mark.fault("H6")
@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user can be made by root alone")
def test_a_device_of_another_user_is_refused_with_the_users_name(
    settings: Settings, tmp_path: Path, seen: Seen
) -> None:
    seen.describe("a process of another user starts a guard for a GPU whose lock belongs to root")
    device = f"GPU-{uuid.uuid4()}"
    path = ownership.host_lock_path(settings.model_copy(update={"device": Device(id=device)}))
    read, write = os.pipe()
    with ownership.own_on_host(settings.model_copy(update={"device": Device(id=device)})):
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            os.write(write, said(path, device).encode())
            os._exit(0)
        os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        refusal = answer.read()
    assert "belongs to a MathRAG-Gate of another user, root" in refusal
    assert str(path) in refusal
    seen.note("the refusal names the user and the file")


def said(path: Path, device: str) -> str:
    try:
        ownership._lock_file(path, device)
    except DeviceTaken as error:
        return str(error)
    except OSError as error:
        return repr(error)
    return "taken"


def test_a_link_in_the_place_of_the_lock_is_not_followed(settings: Settings, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    ownership.host_lock_path(settings).symlink_to(precious)
    with pytest.raises(DeviceTaken, match="another user"), ownership.own_on_host(settings):
        pass
    assert precious.read_text() == "kept"


# Who mistypes a name is told the one that was meant.

JOB = {"name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": "closed-book"}


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await empty_api.job()
    return empty_api


async def test_a_submit_with_a_mistyped_name_is_refused_with_the_right_one(api: Api, subtests: pytest.Subtests) -> None:
    for fields, meant in (
        ({"pipeline": "closed-bok"}, "closed-book"),
        ({"dataset": "item"}, "items"),
        ({"corpus": "doc"}, "docs"),
        ({"models": {"jugde": "a-judge"}}, "judge"),
        ({"models": {"judge": "a-jugde"}}, "a-judge"),
        ({"params": {"candidtes": 3}}, "candidates"),
        ({"params": {"gate": {"tua": 0.3}}}, "tau"),
        ({"repeat": 2}, "repeats"),
    ):
        with subtests.test(fields=fields):
            refused = await api.http.post("/v1/jobs", json={**JOB, "name": "another", **fields})
            assert refused.status_code in (404, 422)
            assert f"did you mean {meant!r}?" in refused.json()["hint"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/jobs/a-jbo", "a-job"),
        ("/v1/datasets/itms", "items"),
        ("/v1/corpora/dosc", "docs"),
        ("/v1/corpora/docs/contamination?dataset=itms", "items"),
        ("/v1/jobs?pipline=dense", "pipeline"),
    ],
)
async def test_what_is_asked_for_under_a_mistyped_name_is_suggested(api: Api, path: str, meant: str) -> None:
    refused = await api.http.get(path)
    assert refused.status_code in (404, 422)
    assert f"did you mean {meant!r}?" in refused.json()["hint"]


async def test_where_nothing_is_alike_the_hint_says_what_lists_all(api: Api) -> None:
    assert (await api.http.get("/v1/jobs/zzzzzz")).json()["hint"] == "mathrag job list"
