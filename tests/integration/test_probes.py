"""Probes against real servers: each finds what is wrong with them."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from services.orchestrator import probes
from services.orchestrator.deps import Deps
from services.orchestrator.probes import Probe, checks, list_readiness_probes
from shared.calls import Lane
from shared.check import NotReady
from shared.pipelines import registry
from shared.storage import devices
from shared.storage.database import Database
from tests.integration import scene

pytestmark = pytest.mark.anyio


@pytest.fixture
async def deps(database: Database, redis_url: str, tmp_path: Path) -> AsyncIterator[Deps]:
    settings = scene.SETTINGS.model_copy(
        update={"data_dir": tmp_path, "retriever_url": "http://retriever", "guard_url": "http://guard"}
    )
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json={}))
    async with Redis.from_url(redis_url) as redis, httpx2.AsyncClient(transport=transport) as http:
        yield Deps(settings=settings, database=database, admission=database, redis=redis, http=http, wake=lambda: None)


def found(deps: Deps, **settings: Any) -> Deps:
    changed = deps.settings.model_copy(update=settings)
    return Deps(
        settings=changed,
        database=deps.database,
        admission=deps.database,
        redis=deps.redis,
        http=deps.http,
        wake=deps.wake,
    )


async def test_readiness_is_well_when_everything_is_there(deps: Deps, database: Database) -> None:
    await scene.furnish(database)
    for lane in Lane:
        await deps.redis.set(f"mathrag:worker:{lane.value}:host:1", "alive")
    assert [check for check in await checks(list_readiness_probes(deps.settings), deps) if not check.ok] == []


async def test_every_check_that_is_not_well_says_what_to_do(deps: Deps) -> None:
    wrong = {
        check.name: check.fix for check in await checks(list_readiness_probes(deps.settings), deps) if not check.ok
    }
    assert set(wrong) == {"models", "judge worker", "generator worker"}
    assert all(wrong.values())


async def test_redis_must_keep_what_it_is_told(deps: Deps) -> None:
    before = {name: (await deps.redis.config_get(name))[name] for name in ("maxmemory-policy", "appendonly")}
    try:
        await deps.redis.config_set("appendonly", "yes")
        await deps.redis.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(NotReady, match="allkeys-lru") as evicting:
            await probes.check_redis_settings(deps)
        assert evicting.value.fix == "redis-cli CONFIG SET maxmemory-policy noeviction"
        await deps.redis.config_set("maxmemory-policy", "noeviction")
        assert "append-only" in await probes.check_redis_settings(deps)
        await deps.redis.config_set("appendonly", "no")
        with pytest.raises(NotReady, match="appendonly is no"):
            await probes.check_redis_settings(deps)
    finally:
        for name, value in before.items():
            await deps.redis.config_set(name, value)


async def test_a_clock_that_is_off_is_found(deps: Deps, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "within" in await probes.check_clock(deps)

    class Late(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) - timedelta(minutes=1)

    monkeypatch.setattr(probes, "datetime", Late)
    with pytest.raises(NotReady, match=r"(59|60)\.\d s ahead"):
        await probes.check_clock(deps)


async def test_a_database_of_another_version_is_found(deps: Deps, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(probes.find_head()) in await probes.check_schema(deps)
    monkeypatch.setattr(probes, "find_head", lambda: "9999")
    with pytest.raises(NotReady, match="the code at 9999"):
        await probes.check_schema(deps)


async def test_a_drained_device_is_not_ready_and_says_who_may_use_it_again(deps: Deps) -> None:
    await devices.drain_device(deps.database, "cpu:0", "driver update", "somebody")
    with pytest.raises(NotReady, match="driver update") as drained:
        await probes.check_state(deps)
    assert drained.value.fix == "mathrag gpu release cpu:0"
    await devices.release_device(deps.database, "cpu:0", "somebody")
    assert "cpu:0" in await probes.check_state(deps)


async def test_an_index_whose_files_were_changed_is_found(deps: Deps, tmp_path: Path) -> None:
    folder = tmp_path / "indexes" / "one"
    folder.mkdir(parents=True)
    (folder / "vectors.bin").write_bytes(b"vectors")
    manifest = msgspec.json.encode({"files": {"vectors.bin": hashlib.sha256(b"vectors").hexdigest()}})
    (folder / "manifest.json").write_bytes(manifest)
    await scene.furnish(deps.database)
    async with deps.database.transaction() as connection:
        values = {"path": "indexes/one", "hash": hashlib.sha256(manifest).digest()}
        await connection.execute(text("UPDATE indexes SET path = :path, file_hash = :hash"), values)
    assert await probes.check_indexes(deps) == "2 unchanged"
    (folder / "vectors.bin").write_bytes(b"others")
    with pytest.raises(NotReady, match=r"vectors\.bin was changed"):
        await probes.check_indexes(deps)
    (folder / "vectors.bin").unlink()
    with pytest.raises(NotReady, match="cannot be read"):
        await probes.check_indexes(deps)
    (folder / "manifest.json").write_bytes(b"{}")
    with pytest.raises(NotReady, match="not the one that was registered"):
        await probes.check_indexes(deps)


async def test_what_grows_is_told_with_its_size_and_what_to_run(deps: Deps, database: Database) -> None:
    (deps.settings.data_dir / "logs").mkdir()
    (deps.settings.data_dir / "logs" / "judge.log").write_bytes(bytes(3 << 20))
    assert await probes.report_logs(deps) == "3.0 MiB in 1 files, rotated at 16 MiB each"
    assert "mathrag purge" in await probes.report_database(deps)
    assert "append-only file" in await probes.report_redis_file(deps)
    assert "0.0 MiB in 0;" in await probes.index_files(deps)
    (lost := deps.settings.data_dir / "indexes" / "lost").mkdir(parents=True)
    (lost / "vectors").write_bytes(bytes(2 << 20))
    with pytest.raises(NotReady, match=r"2\.0 MiB in 1 unknown to the database") as found:
        await probes.index_files(deps)
    assert found.value.fix.endswith(f"rm -r {lost}")


async def test_a_data_folder_that_others_may_read_is_named(deps: Deps) -> None:
    for mode, well in ((0o700, True), (0o711, True), (0o755, False)):
        deps.settings.data_dir.chmod(mode)
        (check,) = await checks([Probe(name="privacy", run=probes.check_privacy, fix="")], deps)
        assert (check.ok, check.fix) == (well, "" if well else f"chmod 700 {deps.settings.data_dir}")


async def test_a_worker_of_another_source_is_named(deps: Deps) -> None:
    await deps.redis.set("mathrag:worker:judge:host:1", registry.source_hash())
    await deps.redis.set("mathrag:worker:judge:host:2", "alive")
    assert await probes.check_worker_sources(deps) == "as on disk"
    await deps.redis.set("mathrag:worker:generate:host:3", "f" * 64)
    with pytest.raises(NotReady, match="generate:host:3") as other:
        await probes.check_worker_sources(deps)
    assert "restart the stack" in other.value.fix
