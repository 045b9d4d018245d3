import asyncio
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

from mathrag.check import NotReady
from services.orchestrator import probes
from services.orchestrator.deps import Deps
from services.orchestrator.probes import Probe, checks, list_readiness_probes
from shared.audit import check
from shared.calls import Lane
from shared.params import Params
from shared.pipelines import registry
from shared.storage import devices
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

# The configuration is changed while everything runs: validated, written down, and never for jobs that are accepted.


pytestmark = pytest.mark.anyio

PATH = "/v1/configuration"
DEFAULTS = "SELECT code -> 'defaults' FROM jobs ORDER BY id"


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 2)
    return empty_api


async def patch(api: Api, params: dict[str, Any], if_match: str = "*") -> httpx2.Response:
    return await api.http.patch(PATH, json={"params": params}, headers={"If-Match": if_match})


async def changed(api: Api, **params: Any) -> Any:
    reply = await patch(api, params)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_before_the_first_change_nothing_is_configured(api: Api) -> None:
    reply = await api.http.get(PATH)
    assert reply.json() == {"version": 0, "params": {}, "changed_by": None, "changed_at": None}
    assert (await patch(api, {"seed": 1}, reply.headers["etag"])).json()["version"] == 1


async def test_the_next_job_gets_what_it_does_not_name(api: Api, database: Database) -> None:
    await api.job()
    await changed(api, gate={"tau": 0.3, "top": 3}, candidates=7)
    job = await api.job("mathrag-gate", params={"gate": {"tau": 0.9}})
    assert (job["params"]["candidates"], job["params"]["gate"]["top"], job["params"]["gate"]["tau"]) == (7, 3, 0.9)
    assert await scene.rows(database, DEFAULTS) == [(0,), (1,)]


async def test_a_running_job_is_unaffected(api: Api, database: Database) -> None:
    body = {
        "name": "n",
        "dataset": "items",
        "corpus": "docs",
        "pipeline": "mathrag-gate",
        "params": {"gate": {"tau": 1}},
    }
    headers = {"Idempotency-Key": "once"}
    job = (await api.http.post("/v1/jobs", json=body, headers=headers)).json()
    await scene.advance(database)
    calls = await scene.rows(database, "SELECT key FROM calls ORDER BY key")
    await changed(api, candidates=3, gate={"top": 1}, generate={"max_tokens": 9})
    again = (await api.http.post("/v1/jobs", json=body, headers=headers)).json()
    assert (again["id"], again["params"]) == (job["id"], job["params"])
    await scene.advance(database)
    assert await scene.rows(database, "SELECT key FROM calls ORDER BY key") == calls
    await finished(database)
    ended = await api.get(f"/v1/jobs/{job['id']}")
    assert (ended["state"], ended["params"]) == ("completed", job["params"])
    assert await check(database, job["id"]) == []
    requeued = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    assert requeued["params"] == job["params"]


async def test_chats_and_plans_get_it_too(api: Api, database: Database) -> None:
    question = {"question": "What?", "corpus": "docs", "pipeline": "mathrag-gate", "wait_s": 0}
    before = (await api.http.post("/v1/chat", json=question)).json()["price"]["calls"]["judge"]
    await changed(api, candidates=1)
    assert (await api.http.post("/v1/chat", json=question)).json()["price"]["calls"]["judge"] < before
    assert [each.candidates for each in await _params(database)] == [Params().candidates, 1]
    job = {"name": "n", "dataset": "items", "corpus": "docs", "pipeline": "dense", "params": {"context_size": 2}}
    reply = await api.http.post("/v1/plan", json={"job": job})
    assert (reply.status_code, reply.json()["field"]) == (422, "params.context_size")


async def _params(database: Database) -> list[Params]:
    rows = await scene.rows(database, "SELECT params FROM jobs ORDER BY id")
    return [msgspec.json.decode(params, type=Params) for (params,) in rows]  # type: ignore[arg-type]


async def test_a_change_lies_on_top_of_what_is_there(api: Api) -> None:
    await changed(api, enhance={"terms": {"gcd": ["greatest common divisor"]}}, crag={"upper": 0.8, "lower": 0.2})
    found = await changed(api, enhance={"terms": {"公约数": ["gcd"]}}, crag={"upper": None})
    terms = {"gcd": ["greatest common divisor"], "公约数": ["gcd"]}
    assert found["params"] == {"enhance": {"terms": terms}, "crag": {"lower": 0.2}}
    assert (await api.get(PATH))["params"] == found["params"]
    assert (await changed(api, enhance=None, crag=None))["params"] == {}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"gate": {"tua": 0.3}}, "params.gate.tua"),
        ({"seed": 3, "crag": {"rounds": 99}}, "params.crag.rounds"),
        ({"fusion": {"method": "sum"}}, "params.fusion.method"),
        ({"candidates": 2, "context_size": 3}, "params.context_size"),
        ({"gate": {"tau": "x"}}, "params.gate.tau"),
        ({"enhance": {"terms": {"a": "b"}}}, "params.enhance.terms[...]"),
    ],
)
async def test_a_bad_change_is_refused_whole(api: Api, database: Database, params: dict[str, Any], field: str) -> None:
    reply = await patch(api, params)
    assert (reply.status_code, reply.json()["field"]) == (422, field)
    assert await scene.rows(database, "SELECT * FROM configurations") == []
    assert await scene.rows(database, "SELECT * FROM operations") == []


async def test_a_configuration_has_a_largest_size(api: Api) -> None:
    terms = {f"term{number}": ["a meaning of it"] for number in range(3000)}
    reply = await patch(api, {"enhance": {"terms": terms}})
    assert reply.status_code == 413
    assert "more than 65536" in reply.json()["detail"]
    assert (await api.get(PATH))["version"] == 0


async def test_any_text_that_a_job_may_have_can_be_configured(api: Api, database: Database) -> None:
    await changed(api, anchors={"positive": "a b 𝔽"})
    assert (await api.job("mathrag-gate"))["params"]["anchors"] == {"positive": "a b 𝔽"}
    for escape in (rb"\u0000", rb"\ud800"):
        content = b'{"params": {"anchors": {"positive": "%b"}}}' % escape
        headers = {"If-Match": "*", "content-type": "application/json"}
        reply = await api.http.patch(PATH, content=content, headers=headers)
        assert (reply.status_code, reply.json()["field"]) == (422, "params.anchors.positive")


async def test_every_change_is_a_row_with_who_and_when(api: Api, database: Database) -> None:
    for tau in (0.1, 0.2, 0.3):
        await changed(api, gate={"tau": tau})
    first = await api.get(f"{PATH}/history", limit=2)
    second = await api.get(f"{PATH}/history", limit=2, cursor=first["next_cursor"])
    found = [*first["data"], *second["data"]]
    assert [(each["version"], each["params"]["gate"]["tau"]) for each in found] == [(3, 0.3), (2, 0.2), (1, 0.1)]
    assert {each["changed_by"] for each in found} == {"local"}
    assert found[0]["changed_at"] > found[1]["changed_at"] > found[2]["changed_at"]
    assert second["next_cursor"] is None
    journal = await scene.rows(database, "SELECT actor, action, target FROM operations ORDER BY id")
    assert journal == [("local", "configuration change", f"version {version}") for version in (1, 2, 3)]
    for statement in ("UPDATE configurations SET changed_by = 'x'", "DELETE FROM configurations"):
        with pytest.raises(Exception, match="permission denied"):
            await scene.attempt(database, statement)


async def test_who_has_seen_an_older_version_changes_nothing(api: Api) -> None:
    tag = (await api.http.get(PATH)).headers["etag"]
    await changed(api, seed=1)
    refused = await patch(api, {"seed": 2}, tag)
    assert (refused.status_code, "version 1" in refused.json()["detail"]) == (412, True)
    assert (await api.http.patch(PATH, json={"params": {}})).status_code == 428
    newest = (await api.http.get(PATH)).headers["etag"]
    assert (await api.http.get(PATH, headers={"If-None-Match": newest})).status_code == 304
    assert (await patch(api, {"seed": 2}, newest)).status_code == 200


async def test_of_two_writers_at_once_one_is_told_so(api: Api, database: Database, redis_url: str) -> None:
    async with scene.processes(database, 1) as (other,):
        held = scene.HeldDatabase(other)
        async with serving(held, redis_url) as slow:
            first = asyncio.create_task(patch(slow, {"seed": 1}))
            await held.reached.wait()
            second = asyncio.create_task(patch(api, {"candidates": 5}))
            await scene.somebody_waits(database)
            held.go.set()
            assert ((await first).status_code, (await second).status_code) == (200, 412)
    assert (await api.get(PATH))["params"] == {"seed": 1}


# Probes against real servers: each finds what is wrong with them.


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
        with pytest.raises(NotReady, match="`appendonly` is no"):
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
    with pytest.raises(NotReady, match="this release needs 9999"):
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
    assert "0.0 MiB in 0 folders;" in await probes.index_files(deps)
    (lost := deps.settings.data_dir / "indexes" / "lost").mkdir(parents=True)
    (lost / "vectors").write_bytes(bytes(2 << 20))
    with pytest.raises(NotReady, match=r"2\.0 MiB in 1 folders that the database does not know") as found:
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
