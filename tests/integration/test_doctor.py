"""What the doctor finds out from rows and services: models that nobody serves, outages, footprints, damaged indexes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from mathrag.check import Check, NotReady
from services.guard import app as app_module
from services.guard.drivers import ollama
from services.guard.drivers.ollama import OllamaDriver
from services.guard.drivers.process import ProcessDriver
from services.orchestrator import probes
from services.orchestrator.deps import Deps
from services.retriever.app import create_app
from shared.runtime.pins import register
from shared.settings import Dense, Elasticsearch, Model, Retrieval, Settings, Sparse
from shared.storage.database import Database
from tests.doubles.ollama_server import ollama_server
from tests.doubles.search_server import SearchServer, search_server
from tests.integration import scene
from tests.integration.test_retriever import DOCUMENTS, add_corpus, build

pytestmark = pytest.mark.anyio


@pytest.fixture
async def deps(database: Database, redis_url: str) -> AsyncIterator[Deps]:
    settings = scene.SETTINGS.model_copy(
        update={"guard_url": "http://127.0.0.1:9", "models": {"m": Model(driver="scripted")}}
    )
    async with Redis.from_url(redis_url) as redis, httpx2.AsyncClient() as http:
        yield Deps(settings=settings, database=database, admission=database, redis=redis, http=http, wake=lambda: None)


async def test_a_model_that_jobs_wait_for_and_nobody_serves_is_named_with_the_jobs(
    deps: Deps, database: Database
) -> None:
    await scene.furnish(database)
    await scene.submit_job(database, "closed-book")
    await scene.advance(database)
    assert await probes.check_models(deps) == "none waits for a model that is not served"
    await scene.run_sql(database, "UPDATE models SET served = false WHERE name = 'a-generator'")
    with pytest.raises(NotReady, match="a-job for a-generator") as found:
        await probes.check_models(deps)
    assert "mathrag job cancel a-job" in found.value.fix
    assert "restore the earlier model" in found.value.fix


async def test_a_model_that_takes_far_more_than_it_declares_is_named(deps: Deps, database: Database) -> None:
    await scene.furnish(database)
    measure = (
        "INSERT INTO footprints (model_id, device, parallel, least_mib, most_mib) VALUES (1, 'cpu:0', 1, 90, :mib)"
    )
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE models SET footprint_mib = 1100 WHERE id = 1"))
        await connection.execute(text(measure), {"mib": 1200})
    assert "1 model was measured" in await probes.check_footprints(deps)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE footprints SET most_mib = 3010"))
    with pytest.raises(NotReady, match="a-judge used 3010 MiB, but its `footprint_mib` is 1100"):
        await probes.check_footprints(deps)


async def test_a_quarantined_device_says_when_it_is_tried_again(deps: Deps, database: Database) -> None:
    await scene.run_sql(
        database,
        "INSERT INTO residencies (device, previous_epoch, models, cause, state, reason, closed_at)"
        " VALUES ('cpu:0', 0, '{}', 'test', 'quarantined', 'no room', now())",
    )
    with pytest.raises(NotReady, match=r"quarantined: no room; tried again in \d+ s"):
        await probes.check_state(deps)


async def test_a_guard_that_does_not_answer_is_mended_first(deps: Deps) -> None:
    [probe] = probes.list_model_probes(deps.settings)
    with pytest.raises(NotReady, match=r"not checked: http://127\.0\.0\.1:9 does not answer"):
        await probe.run(deps)


async def test_a_guard_finds_a_file_that_was_replaced(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF one")
    settings = Settings(models={"m": Model(driver="process", path=file)})
    drivers: Any = {"m": ProcessDriver("m", settings.models["m"], settings.device)}

    async def looked(name: str = "m") -> Check:
        return await app_module.check_model(name, settings, drivers, database)

    assert "not registered yet" in (await looked()).detail
    async with database.transaction() as connection:
        await register(connection, await drivers["m"].identify())
    assert (await looked()).ok
    file.write_bytes(b"GGUF another")
    changed = await looked()
    assert not changed.ok
    assert "reports another model than the registered one" in changed.detail
    assert changed.fix.startswith("put the old one back")
    file.unlink()
    assert "m.gguf" in (await looked()).detail
    assert "model 'n' is missing in the settings" in (await looked("n")).detail


async def test_a_guard_finds_a_tag_that_was_created_again(database: Database) -> None:
    async with ollama_server("judge:1b") as (double, http):
        settings = Settings(models={"m": Model(driver="ollama", tag="judge:1b", url=http.url)})
        made = OllamaDriver("m", settings.models["m"], settings.device, ollama.list_tags(settings.models))
        drivers: Any = {"m": made}
        async with database.transaction() as connection:
            await register(connection, await made.identify())
        assert (await app_module.check_model("m", settings, drivers, database)).ok
        double.pull("judge:1b", "v2")
        found = await app_module.check_model("m", settings, drivers, database)
    assert not found.ok
    assert "reports another model than the registered one" in found.detail


@pytest.fixture
async def indexed(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SearchServer, httpx2.AsyncClient, int]]:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    with search_server() as double:
        retrieval = Retrieval(
            dense=Dense(backend="elasticsearch"),
            sparse=Sparse(backend="elasticsearch"),
            elasticsearch=Elasticsearch(url=double.url, retries=0),
        )
        app = create_app(Settings(database_url=database_url, data_dir=tmp_path, retrieval=retrieval))
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            corpus = await add_corpus(database, "five", DOCUMENTS)
            await build(client, corpus)
            yield double, client, corpus


async def asked(client: httpx2.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/checks/elasticsearch")).json()
    return found


async def test_an_index_that_was_deleted_is_found_and_built_by_the_fix(
    indexed: tuple[SearchServer, httpx2.AsyncClient, int],
) -> None:
    double, client, corpus = indexed
    assert "2 indexes of corpora are complete" in (await asked(client))["detail"]
    del double.indexes[next(name for name in double.indexes if "sparse" in name)]
    found = await asked(client)
    assert not found["ok"]
    assert "the sparse index of corpus five" in found["detail"]
    assert found["fix"] == "mathrag corpus index five"
    await build(client, corpus)
    assert (await asked(client))["ok"]


async def test_an_index_that_was_emptied_is_found(indexed: tuple[SearchServer, httpx2.AsyncClient, int]) -> None:
    double, client, _ = indexed
    double.indexes[next(name for name in double.indexes if "dense" in name)].shown.clear()
    found = await asked(client)
    assert not found["ok"]
    assert "has 0 documents on the server" in found["detail"]
    assert found["fix"] == "mathrag corpus index five"


async def test_a_server_that_recovers_is_to_be_waited_for(
    indexed: tuple[SearchServer, httpx2.AsyncClient, int],
) -> None:
    double, client, _ = indexed
    double.fail("_count", 503)
    found = await asked(client)
    assert not found["ok"]
    assert "is overloaded or not ready (503)" in found["detail"]
    assert found["fix"].startswith("wait")
