"""Chunks, samples and jobs as spans, over a real database."""

import uuid

import pytest
from redis.asyncio import Redis

from services.orchestrator.metrics import JobSpans
from shared.calls import Lane
from shared.replies import Failure, FailureKind
from shared.runtime import worker as worker_runtime
from shared.runtime.lifecycle import cancel
from shared.storage.database import Database
from shared.telemetry import traces as traces_module
from tests.integration import scene
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio


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
