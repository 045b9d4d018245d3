"""Metrics derived from the rows: what is counted once, what is never missed, and what a scrape costs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from sqlalchemy import text

from services.orchestrator.deps import Deps
from services.orchestrator.metrics import (
    ATTEMPTED,
    BOUNDS,
    BY_NAME,
    CATALOGUE,
    PLANS,
    WORKED,
    Metrics,
    Window,
    horizon,
)
from shared.calls import Generate, Request
from shared.params import Params
from shared.rag.answering import make_refusal_outcome
from shared.replies import Failure, FailureKind, Reply, require
from shared.runtime.queue import AnsweredCall, Claims, Receipt
from shared.samples import Decision, Library, Sample, Steps, Trace
from shared.settings import Telemetry
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import serving

pytestmark = pytest.mark.anyio

JUDGED = {"gate": {"tau": 1.0, "min_pairs": 4}}


@pytest.fixture
async def deps(database: Database, redis_url: str, anyio_backend: str) -> AsyncIterator[Deps]:
    await scene.furnish(database)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200))
    reporting = Database(database.engine.url, pinned=False)  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=transport) as http, Redis.from_url(redis_url) as redis:
        addressed = scene.SETTINGS.model_copy(update={"retriever_url": "http://r", "guard_url": "http://g"})
        yield Deps(
            settings=addressed, database=reporting, admission=reporting, redis=redis, http=http, wake=lambda: None
        )
    await reporting.close()


class Scraper:
    def __init__(self, deps: Deps) -> None:
        self.metrics = Metrics(fresh_s=0)
        self._deps = deps

    async def __call__(self) -> dict[tuple[str, Mapping[str, str]], float]:
        found = (await self.metrics.text(self._deps)).decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(found)
            for sample in family.samples
        }


@pytest.fixture
async def scrape(deps: Deps) -> Scraper:
    scraper = Scraper(deps)
    await scraper()
    return scraper


def value(found: Mapping[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


async def test_a_job_is_counted_in_all_its_parts(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, params=JUDGED)
    await scene.drain(database, scene.ScriptedExecutor())
    found = await scrape()
    judged = await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'")
    assert value(found, "mathrag_samples_ended_total", state="completed", failure="") == 5
    assert value(found, "mathrag_attempts_total", lane="judge", role="judge", outcome="value") == judged
    assert value(found, "mathrag_call_duration_seconds_count", lane="judge", role="judge") == judged
    assert value(found, "mathrag_gate_decisions_total", strategy="judge") == 1
    assert value(found, "mathrag_extractions_total", extraction="ok") == 5
    assert value(found, "mathrag_jobs_ended_total", state="completed") == 1
    assert not await scene.rows(database, "SELECT 1 FROM queue")


async def test_nothing_is_counted_twice(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor())
    assert _derived(await scrape()) == _derived(await scrape())
    assert value(await scrape(), "mathrag_samples_ended_total", state="completed", failure="") == 5


MEASURED = ("mathrag_metrics", "mathrag_disk", "mathrag_memory", "mathrag_database_bytes", "process")
"""Beginnings of the names of values that differ between two scrapes, whatever the rows are."""


def _derived(found: dict[tuple[str, Mapping[str, str]], float]) -> dict[tuple[str, Mapping[str, str]], float]:
    return {key: number for key, number in found.items() if not key[0].startswith(MEASURED)}


async def test_reuse_is_seen(database: Database, scrape: Scraper) -> None:
    for _ in range(2):
        await scene.submit_job(database, "closed-book")
        await scene.drain(database, scene.ScriptedExecutor())
    found = await scrape()
    computed, reused = (value(found, "mathrag_steps_total", source=each) for each in ("computed", "reused"))
    assert computed == await scene.scalar(database, "SELECT count(*) FROM steps WHERE created")
    assert reused == await scene.scalar(database, "SELECT count(*) FROM steps WHERE NOT created")
    assert reused >= 5


async def test_failures_are_counted_by_kind(database: Database, scrape: Scraper) -> None:
    def unparsed(request: Request) -> Reply:
        return Failure(kind=FailureKind.UNPARSED) if request.role == "judge" else scene.by_rule(request)

    await scene.submit_job(database, params={"gate": {"tau": 1.0, "min_pairs": 4, "on_unusable": "rules"}})
    await scene.drain(database, scene.ScriptedExecutor(unparsed))
    found = await scrape()
    assert value(found, "mathrag_attempts_total", lane="judge", role="judge", outcome="unparsed") > 0
    assert value(found, "mathrag_fallbacks_total", stage="gate", kind="judge_unusable") == 1
    assert value(found, "mathrag_gate_decisions_total", strategy="rules") == 1


async def test_a_sample_that_fails_says_how(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, "closed-book")
    refusal = Failure(kind=FailureKind.REFUSED)
    await scene.drain(database, scene.ScriptedExecutor(lambda _: refusal))
    found = await scrape()
    assert value(found, "mathrag_samples_ended_total", state="failed", failure="refused") == 5


async def test_the_queue_is_shown_as_it_is(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.advance(database)
    await scene.claim(database, 2)
    found = await scrape()
    labels = {"lane": "generate", "model": "a-generator"}
    assert value(found, "mathrag_queue_calls", **labels, state="claimed") == 2
    assert value(found, "mathrag_queue_calls", **labels, state="pending") == 3
    assert value(found, "mathrag_jobs", state="running") == 1


async def test_flips_and_loads_are_counted_once(database: Database, scrape: Scraper) -> None:
    await scene.run_sql(
        database,
        "INSERT INTO residencies (device, previous_epoch, models, cause, state, opened_at, servers, measured)"
        " SELECT 'cpu:0', 0, ARRAY[id], 'drained', 'open', now(),"
        ' CAST(\'[{"name": "a-judge", "seconds": 1.5}]\' AS jsonb),'
        " jsonb_build_object('memory_mib', jsonb_build_object(CAST(id AS text), 96))"
        " FROM models WHERE name = 'a-judge'",
    )
    for _ in range(2):
        found = await scrape()
    on = {"device": "cpu:0"}
    assert value(found, "mathrag_flips_total", **on, cause="drained", outcome="opened") == 1
    assert value(found, "mathrag_model_loads_total", **on, model="a-judge") == 1
    assert value(found, "mathrag_model_load_seconds_total", **on, model="a-judge") == 1.5
    assert value(found, "mathrag_resident_model_memory_bytes", **on, model="a-judge") == 96 << 20
    assert value(found, "mathrag_device_state", **on, state="open") == 1
    await scene.run_sql(database, "UPDATE residencies SET state = 'closed', closed_at = now() - interval '1 hour'")
    for _ in range(2):
        found = await scrape()
    assert value(found, "mathrag_flips_total", **on, cause="drained", outcome="opened") == 1


async def test_a_late_commit_is_not_missed(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.advance(database)
    early, late = await scene.claim(database, 1), await scene.claim(database, 1)
    assert early is not None
    assert late is not None
    held = scene.HeldDatabase(database)
    answering = scene.answer(held, early)
    task = asyncio.create_task(answering)
    await held.reached.wait()
    await scene.answer(database, late)
    labels = {"lane": "generate", "role": "generate", "outcome": "value"}
    assert value(await scrape(), "mathrag_attempts_total", **labels) == 0
    held.go.set()
    await task
    assert value(await scrape(), "mathrag_attempts_total", **labels) == 2


async def test_what_is_too_much_for_one_look_is_left_for_the_next(database: Database, scrape: Scraper) -> None:
    window = Window("attempts a", "a.created_at", most=3)
    count = text(f"SELECT count(*) FROM attempts a WHERE {window.condition}")  # noqa: S608
    seen = []
    async with database.transaction() as connection:
        assert await window.advance(connection, await horizon(connection)) is None
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor())
    async with database.transaction() as connection:
        until = await horizon(connection)
        while values := await window.advance(connection, until):
            seen.append((await connection.execute(count, values)).scalar_one())
    assert sum(seen) == await scene.scalar(database, "SELECT count(*) FROM attempts")
    assert max(seen) == 3


async def test_the_first_scrape_counts_from_now_on(database: Database, deps: Deps) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor())
    scraper = Scraper(deps)
    await scraper()
    assert value(await scraper(), "mathrag_jobs_ended_total", state="completed") == 0


async def test_keys_show_their_weight_samples_and_gpu_time(database: Database, scrape: Scraper) -> None:
    await keys.create_key(database, "local", "ann", {Scope.SUBMIT}, weight=3)
    await scene.submit_job(database, "closed-book", submitted_by="ann")
    await scene.advance(database)
    found = await scrape()
    assert value(found, "mathrag_key_weight", key="ann") == 3
    assert value(found, "mathrag_key_live_samples", key="ann") == 5
    # The second call began 10 s before the first one ended, and ended 20 s after it.
    now = datetime.now(UTC)
    for began, ended in ((50, 20), (30, 0)):
        taken = await scene.claim_some(database, 1)
        started_at, ended_at = (now - timedelta(seconds=before) for before in (began, ended))
        receipt = Receipt(started_at=started_at, ended_at=ended_at, epoch=1, device="cpu:0")
        answer = AnsweredCall(call_id=taken.calls[0].id, reply=scene.answered(taken.calls[0]).reply, receipt=receipt)
        await Claims(database, "worker-1", 60.0).answer(taken.token, [answer])
        found = await scrape()
    assert value(found, "mathrag_key_gpu_seconds_total", key="ann") == 50
    await scene.drain(database, scene.ScriptedExecutor())
    found = await scrape()
    assert value(found, "mathrag_key_samples_ended_total", key="ann") == 5
    assert value(found, "mathrag_key_live_samples", key="ann") == 0


async def test_a_scrape_reads_by_index(database: Database, deps: Deps) -> None:
    window = Window("attempts a", "a.created_at", most=1)
    async with deps.database.transaction() as connection:
        await connection.execute(PLANS)
        now = await horizon(connection)
        values = {"since": now - timedelta(seconds=5), "until": now, "bounds": list(BOUNDS)}
        for read in (ATTEMPTED, WORKED):
            statement = text("EXPLAIN " + read.replace("$window", window.condition))
            needed = {name: each for name, each in values.items() if f":{name}" in str(statement)}
            plan = "\n".join((await connection.execute(statement, needed)).scalars())
            assert "attempts_created" in plan
            assert "Seq Scan" not in plan


async def test_a_database_that_is_away_is_a_metric(deps: Deps) -> None:
    nowhere = Database("postgresql+asyncpg://mathrag@127.0.0.1:1/nothing", pinned=False)
    found = await Scraper(Deps(**{**vars(deps), "database": nowhere}))()
    await nowhere.close()
    assert value(found, "mathrag_service_up", service="postgres") == 0
    assert value(found, "mathrag_service_up", service="guard") == 1


async def test_disk_memory_and_database_are_measured(scrape: Scraper) -> None:
    found = await scrape()
    for what in ("database_bytes", "disk_free_bytes", "memory_available_bytes"):
        assert value(found, f"mathrag_{what}") > 1_000_000, what


async def test_services_and_workers_are_seen(deps: Deps, scrape: Scraper) -> None:
    await deps.redis.set("mathrag:worker:judge:1", "here", ex=60)
    found = await scrape()
    assert value(found, "mathrag_workers", lane="judge") == 1
    assert value(found, "mathrag_workers", lane="generate") == 0
    assert value(found, "mathrag_service_up", service="redis") == 1

    def refuse(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as http:
        found = await Scraper(Deps(**{**vars(deps), "http": http}))()
    assert value(found, "mathrag_service_up", service="guard") == 0


async def test_a_scrape_is_kept_for_some_seconds(database: Database, deps: Deps) -> None:
    metrics = Metrics(fresh_s=3600)
    first = await metrics.text(deps)
    await scene.submit_job(database, "closed-book")
    assert b'mathrag_jobs{state="running"}' not in first + await metrics.text(deps)


async def test_only_what_is_in_the_catalogue_is_shown(database: Database, scrape: Scraper) -> None:
    await scene.submit_job(database, params=JUDGED)
    await scene.drain(database, scene.ScriptedExecutor())
    for name, labels in await scrape():
        stem = name.removesuffix("_count").removesuffix("_sum").removesuffix("_bucket").removesuffix("_created")
        if not name.startswith("process_"):
            known = BY_NAME.get(name) or BY_NAME.get(stem) or BY_NAME[f"{stem}_total"]
            assert {label for label, _ in labels} - {"le"} == set(known.labels), name
    assert len(BY_NAME) == len(CATALOGUE)


async def test_requests_are_counted_by_route(database: Database, redis_url: str) -> None:
    # The application of other settings has counted nothing yet.
    settings = scene.SETTINGS.model_copy(update={"data_dir": Path("of-this-test")})
    async with serving(database, redis_url, settings) as api:
        for path in ("/v1/pipelines", "/v1/corpora/nobody-knows-it", "/v1/invented"):
            await api.http.get(path)
        shown = (await api.http.get("/metrics")).text
    for route, status in (("/v1/pipelines", 200), ("/v1/corpora/{name}", 404), ("unknown", 404)):
        assert f'mathrag_http_requests_total{{method="GET",route="{route}",status="{status}"}} 1.0' in shown
    assert 'mathrag_http_request_duration_seconds_count{method="GET",route="/v1/pipelines"} 1.0' in shown
    assert "invented" not in shown


async def test_metrics_can_be_switched_off(database: Database, redis_url: str) -> None:
    settings = scene.SETTINGS.model_copy(update={"telemetry": Telemetry(metrics=False)})
    async with serving(database, redis_url, settings) as api:
        assert (await api.http.get("/metrics")).status_code == 404


def deciding(sample: Sample, _params: Params, _library: Library) -> Steps:
    require((yield Generate(template="cot", question=sample.question)))
    number = sample.item.ordinal
    action = ("correct", "ambiguous", "incorrect")[number % 3]
    said = 'what a model said: \0 \\u0000 "decisions":[{'
    crag = Decision(stage="crag", action=action, detail={"said": said})
    lost = (Decision(stage="rerank", action="original order", fallback="not_configured"),) if number == 0 else ()
    trace = Trace(decisions=(crag, *lost))
    return (
        make_refusal_outcome("nothing is relevant", trace)
        if number == 1
        else msgspec.structs.replace(scene.ended("1"), trace=trace)
    )


async def test_decisions_fallbacks_and_refusals_are_counted_once(
    database: Database, scrape: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.install(monkeypatch, "deciding", deciding)
    await scene.submit_job(database, "deciding")
    await scene.drain(database, scene.ScriptedExecutor())
    for _ in range(2):
        found = await scrape()
    counted = {action: value(found, "mathrag_decisions_total", stage="crag", action=action) for action in
               ("correct", "ambiguous", "incorrect")}  # fmt: skip
    assert counted == {"correct": 2, "ambiguous": 2, "incorrect": 1}
    assert value(found, "mathrag_decisions_total", stage="rerank", action="original order") == 1
    assert value(found, "mathrag_fallbacks_total", stage="rerank", kind="not_configured") == 1
    assert value(found, "mathrag_extractions_total", extraction="refused") == 1


async def test_the_retrievers_cache_is_seen_through_its_restarts(deps: Deps) -> None:
    said: list[dict[str, object]] = [
        {"asked": 100, "hits": 60}, {"asked": 110, "hits": 67}, {}, {"asked": 4, "hits": 1}, {"asked": 4, "hits": 1},
    ]  # fmt: skip

    def health(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"embeddings": said[0]} if request.url.host == "r" else {})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(health)) as http:
        scrape = Scraper(Deps(**{**vars(deps), "http": http}))
        seen = []
        while said:
            found = await scrape()
            seen.append([value(found, "mathrag_question_vectors_total", source=each) for each in ("cache", "embedder")])
            said.pop(0)
    assert seen == [[0, 0], [7, 3], [7, 3], [8, 6], [8, 6]]
