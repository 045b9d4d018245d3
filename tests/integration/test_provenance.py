import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from services.orchestrator.metrics import JobSpans
from shared import provenance
from shared.calls import Lane
from shared.replies import Failure, FailureKind
from shared.runtime import worker as worker_runtime
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.storage.database import Database
from shared.telemetry import traces as traces_module
from tests.integration import api, scene
from tests.integration.api import Api, finished
from tests.integration.scene import furnish, run_sql, scalar
from tests.unit.tracing import tracing

# A job's provenance leaves the house: verified with SHA-256 alone.


pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database, items=5)
    async with api.serving(database, redis_url) as client:
        yield client


async def exported(served: Api, job: str = "a-job") -> list[dict[str, Any]]:
    reply = await served.http.get(f"/v1/jobs/{job}/provenance")
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def verified(lines: list[dict[str, Any]]) -> bool:
    head = None
    for row in lines:
        for name, text in row.get("texts", {}).items():
            if hashlib.sha256(text.encode()).hexdigest() != name:
                return False
        if row["line"] == "end":
            return bool(row["chain"] == head)
        previous = bytes.fromhex(row.get("previous", ""))
        if previous.hex() not in ("", head):
            return False
        head = hashlib.sha256(previous + row["record"].encode()).hexdigest()
        if row["hash"] != head:
            return False
    return False


async def completed(served: Api, database: Database, pipeline: str = "mathrag-gate", **fields: Any) -> None:
    await served.job(pipeline, **fields)
    await finished(database)
    assert await scalar(database, "SELECT state FROM jobs") == "completed"


async def test_an_export_is_verified_with_nothing_but_hashes(served: Api, database: Database) -> None:
    await completed(served, database, repeats=2)
    lines = await exported(served)
    assert [row["line"] for row in lines] == ["job", *["sample"] * 10, "end"]
    records = [json.loads(row["record"]) for row in lines[1:-1]]
    assert [(each["index"], each["repeat"]) for each in records] == [(i, r) for i in range(5) for r in range(2)]
    assert [row["sequence"] for row in lines[1:-1]] == list(range(10))
    assert verified(lines)
    assert lines[-1]["records"] == 10
    assert lines[-1]["chain"] == await scalar(database, "SELECT encode(chain, 'hex') FROM jobs")


async def test_every_hash_of_a_record_has_its_text(served: Api, database: Database) -> None:
    uploaded = [{"problem": f"What is {n} minus {n}?", "answer": "0"} for n in range(3)]
    assert (await served.upload("datasets", "uploaded", uploaded)).status_code == 201
    await completed(served, database, dataset="uploaded")
    lines = await exported(served)
    assert len(lines) == 5
    for row in lines[1:-1]:
        record, texts = json.loads(row["record"]), row["texts"]
        named = {record["item"], record["outcome"]}
        named |= {hash_ for call in record["calls"] for hash_ in (call["key"], call["reply"])}
        judged = [json.loads(texts[call["key"]]) for call in record["calls"]]
        named |= {each["values"]["document"]["doc"] for each in judged if each["role"] == "judge"}
        assert named <= texts.keys()


async def test_the_jobs_record_says_what_was_asked_and_with_what(served: Api, database: Database) -> None:
    await completed(served, database)
    head = (await exported(served))[0]
    record = json.loads(head["record"])
    assert record["pipeline"] == "mathrag-gate"
    assert record["params"]["candidates"] == 10
    assert record["dataset"]["name"] == "items"
    assert record["code"]["schema"] == await scalar(database, "SELECT version_num FROM alembic_version")
    assert len(record["code"]["configuration"]) == 64
    assert set(record["code"]["indexes"]) == {"dense", "sparse"}
    models = {role: json.loads(head["texts"][pin["hash"]])[0] for role, pin in record["pins"].items()}
    assert models == {
        "judge": "a-judge", "generate": "a-generator", "dense": "dense", "sparse": "sparse", "grade": "grader",
        "rerank": "reranker", "verify": "verifier", "estimate": "difficulty",
    }  # fmt: skip
    assert json.loads(head["texts"][record["prepared"]])["strategy"] in ("judge", "rules")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE samples SET ended_at = ended_at + interval '1 ms' WHERE kind = 'item' AND ordinal = 2",
        "UPDATE items SET gold = '7', hash = sha256('7') WHERE ordinal = 4",
        "UPDATE jobs SET params = convert_to('{}', 'UTF8')",
        "UPDATE jobs SET code = '{}'",
    ],
)
async def test_what_was_changed_afterwards_is_seen(served: Api, database: Database, change: str) -> None:
    await completed(served, database)
    await run_sql(database, change)
    assert not verified(await exported(served))


async def test_names_and_ranks_may_change_without_breaking_the_chain(served: Api, database: Database) -> None:
    await completed(served, database)
    await run_sql(database, "UPDATE jobs SET name = 'another', rank = 1, metadata = '{\"a\": \"b\"}'")
    assert verified(await exported(served, "another"))


async def test_a_cancelled_job_is_exported_with_what_it_had_consumed(served: Api, database: Database) -> None:
    job = await served.job("hybrid")
    await Advancer(database).advance()
    await cancel(database, job["id"])
    await finish_due_jobs(database)
    lines = await exported(served)
    assert verified(lines)
    records = [json.loads(row["record"]) for row in lines[1:-1]]
    assert {each["state"] for each in records} == {"cancelled"}
    assert all(len(each["calls"]) == 2 and "reply" not in call for each in records for call in each["calls"])


async def test_a_live_job_has_no_records_yet(served: Api) -> None:
    await served.job()
    reply = await served.http.get("/v1/jobs/a-job/provenance")
    assert reply.status_code == 409
    assert "records are made at its end" in reply.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs/nobody/provenance", "/v1/jobs/a-job/provenance?format=prov"])
async def test_what_cannot_be_exported_is_refused_in_words(served: Api, path: str) -> None:
    await served.job()
    assert (await served.http.get(path)).status_code in (404, 422)


async def test_a_job_that_is_purged_meanwhile_breaks_the_stream_off(served: Api, database: Database) -> None:
    await completed(served, database, "closed-book")
    job = await provenance.read_job(database, await scalar(database, "SELECT id FROM jobs"))  # type: ignore[arg-type]
    missing = provenance.JobExport(
        job=job.job, ended_at=job.ended_at, record=job.record, texts={}, chain=job.chain, records=job.records + 1
    )
    with pytest.raises(Exception, match="purged"):
        async for _ in provenance.read_samples(database, missing):
            pass


# Chunks, samples and jobs as spans, over a real database.


async def work(database: Database, executor: scene.ScriptedExecutor) -> None:
    roles = dict.fromkeys(("retrieve", "judge", "generate", "grade"), executor)
    made = worker_runtime.trace_executors(roles, database)
    worked = 1
    while worked:
        worked = await scene.scalar(database, "SELECT count(*) FROM queue") or await scene.advance(database)
        for lane in Lane:
            worker = scene.worker(database, lane, executor)
            worker._chunks._executors = made
            await worker.drain()


async def sample_refs(database: Database, job: uuid.UUID) -> set[tuple[int, int]]:
    found = await scene.rows(
        database, "SELECT s.id FROM samples s JOIN jobs j ON j.id = s.job_id WHERE public_id = :j", j=job
    )
    return {tuple(traces_module.make_sample_ref(job, row[0])) for row in found}  # type: ignore[arg-type, misc]


async def test_off_leaves_the_executors_as_they_are(database: Database) -> None:
    executors = {"generate": scene.ScriptedExecutor()}
    assert worker_runtime.trace_executors(executors, database) is executors
    await scene.furnish(database)
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor())
    assert await scene.scalar(database, "SELECT count(*) FROM attempts WHERE trace_id IS NOT NULL") == 0


async def test_a_chunk_serves_samples_of_several_jobs(database: Database) -> None:
    await scene.furnish(database, items=1)
    jobs = [await scene.submit_job(database, "closed-book") for _ in range(2)]
    with tracing() as spans:
        await work(database, scene.ScriptedExecutor())
    chunk = spans.one("chunk generate")
    linked = {(link.context.trace_id, link.context.span_id) for link in chunk.links}
    assert linked == {ref for job in jobs for ref in await sample_refs(database, job)}
    kept = await scene.rows(
        database, "SELECT trace_id FROM attempts JOIN calls c ON c.id = call_id AND role = 'generate'"
    )
    assert kept == [(f"{chunk.context.trace_id:032x}",)]


async def test_a_sample_that_ends_is_a_span(database: Database) -> None:
    await scene.furnish(database, items=2)
    job = await scene.submit_job(database, "closed-book")
    with tracing() as spans:
        await work(database, scene.ScriptedExecutor(lambda _: Failure(kind=FailureKind.REFUSED, detail="private")))
    found = spans.named("sample closed-book")
    assert {(span.context.trace_id, span.context.span_id) for span in found} == await sample_refs(database, job)
    assert {span.attributes["error.type"] for span in found} == {"refused"}
    assert all(span.parent.span_id == traces_module.make_job_ref(job).span for span in found)
    assert all(span.start_time < span.end_time for span in found)
    assert "private" not in "".join(span.to_json() for span in spans.all())
    assert "What is" not in "".join(span.to_json() for span in spans.all())


async def test_content_shows_question_and_answer(database: Database) -> None:
    await scene.furnish(database, items=1)
    await scene.submit_job(database, "closed-book")
    with tracing(content=True) as spans:
        await work(database, scene.ScriptedExecutor())
    sample = spans.one("sample closed-book")
    assert sample.attributes["input.value"] == "What is 0 plus 0?"
    assert sample.attributes["output.value"] == await scene.scalar(database, "SELECT answer FROM outcomes")


async def test_searches_and_grades_are_spans_of_their_own(database: Database) -> None:
    await scene.furnish(database, items=1)
    await scene.submit_job(database, "dense")
    with tracing() as spans:
        await work(database, scene.ScriptedExecutor())
    search = spans.one("retrieve")
    assert search.attributes["openinference.span.kind"] == "RETRIEVER"
    assert search.attributes["retrieval.documents.0.document.id"] in {each.hash for each in scene.DOCUMENTS}
    assert search.parent.span_id == spans.one("chunk retrieve").context.span_id
    assert spans.one("grade").attributes["openinference.span.kind"] == "EVALUATOR"


async def test_a_job_that_ends_is_a_span_once(database: Database, redis_url: str) -> None:
    await scene.furnish(database, items=1)
    async with Redis.from_url(redis_url) as redis:
        followers = [JobSpans(database, redis) for _ in range(2)]
        with tracing() as spans:
            for follower in followers:
                await follower.update()
            job = await scene.submit_job(database, "closed-book", name="mine")
            await scene.drain(database, scene.ScriptedExecutor())
            for follower in followers * 2:
                await follower.update()
    span = spans.one("job closed-book")
    assert (span.context.trace_id, span.context.span_id) == traces_module.make_job_ref(job)
    assert [event.name for event in span.events][-1] == "completed"
    assert (span.attributes["mathrag.job.name"], span.parent) == ("mine", None)


async def test_a_cancelled_job_is_a_span_that_says_so(database: Database, redis_url: str) -> None:
    await scene.furnish(database, items=1)
    async with Redis.from_url(redis_url) as redis:
        with tracing() as spans:
            follower = JobSpans(database, redis)
            await follower.update()
            await cancel(database, await scene.submit_job(database, "closed-book"))
            await scene.repair(database)
            await follower.update()
    span = spans.one("job closed-book")
    assert (span.attributes["mathrag.job.state"], span.status.is_unset) == ("cancelled", True)


async def test_submitting_links_the_request_to_the_job(database: Database) -> None:
    await scene.furnish(database, items=1)
    with tracing() as spans, traces_module.span("request"):
        job = await scene.submit_job(database, "closed-book")
    assert [link.context.trace_id for link in spans.one("request").links] == [job.int]
