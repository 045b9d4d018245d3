"""Provenance: what leaves the house and how it is verified, what a sample shows of its making, and pages of samples."""

import asyncio
import hashlib
import json
import re
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from redis.asyncio import Redis

from services.orchestrator.metrics import JobSpans
from shared import provenance
from shared.calls import Lane, seed_of
from shared.replies import Failure, FailureKind
from shared.runtime import worker as worker_runtime
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.storage import samples
from shared.storage.database import Database
from shared.storage.jobs import count_extractions
from shared.telemetry import traces as traces_module
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.scene import ScriptedExecutor, drain, furnish, run_sql, scalar, submit_job
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio


# A job's provenance leaves the house: verified with SHA-256 alone.


async def exported(api: Api, job: str = "a-job") -> list[dict[str, Any]]:
    reply = await api.http.get(f"/v1/jobs/{job}/provenance")
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


async def completed(api: Api, database: Database, pipeline: str = "mathrag-gate", **fields: Any) -> None:
    await api.job(pipeline, **fields)
    await finished(database)
    assert await scalar(database, "SELECT state FROM jobs") == "completed"


async def test_an_export_is_verified_with_nothing_but_hashes(api: Api, database: Database) -> None:
    await completed(api, database, repeats=2)
    lines = await exported(api)
    assert [row["line"] for row in lines] == ["job", *["sample"] * 10, "end"]
    records = [json.loads(row["record"]) for row in lines[1:-1]]
    assert [(each["index"], each["repeat"]) for each in records] == [(i, r) for i in range(5) for r in range(2)]
    assert [row["sequence"] for row in lines[1:-1]] == list(range(10))
    assert verified(lines)
    assert lines[-1]["records"] == 10
    assert lines[-1]["chain"] == await scalar(database, "SELECT encode(chain, 'hex') FROM jobs")


async def test_every_hash_of_a_record_has_its_text(api: Api, database: Database) -> None:
    uploaded = [{"problem": f"What is {n} minus {n}?", "answer": "0"} for n in range(3)]
    assert (await api.upload("datasets", "uploaded", uploaded)).status_code == 201
    await completed(api, database, dataset="uploaded")
    lines = await exported(api)
    assert len(lines) == 5
    for row in lines[1:-1]:
        record, texts = json.loads(row["record"]), row["texts"]
        named = {record["item"], record["outcome"]}
        named |= {hash_ for call in record["calls"] for hash_ in (call["key"], call["reply"])}
        judged = [json.loads(texts[call["key"]]) for call in record["calls"]]
        named |= {each["values"]["document"]["doc"] for each in judged if each["role"] == "judge"}
        assert named <= texts.keys()


async def test_the_jobs_record_says_what_was_asked_and_with_what(api: Api, database: Database) -> None:
    await completed(api, database)
    head = (await exported(api))[0]
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
        "rerank": "reranker", "verify": "verifier", "execute": "interpreter", "estimate": "difficulty",
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
async def test_what_was_changed_afterwards_is_seen(api: Api, database: Database, change: str) -> None:
    await completed(api, database)
    await run_sql(database, change)
    assert not verified(await exported(api))


async def test_names_and_ranks_may_change_without_breaking_the_chain(api: Api, database: Database) -> None:
    await completed(api, database)
    await run_sql(database, "UPDATE jobs SET name = 'another', rank = 1, metadata = '{\"a\": \"b\"}'")
    assert verified(await exported(api, "another"))


async def test_a_cancelled_job_is_exported_with_what_it_had_consumed(api: Api, database: Database) -> None:
    job = await api.job("hybrid")
    await Advancer(database).advance()
    await cancel(database, job["id"])
    await finish_due_jobs(database)
    lines = await exported(api)
    assert verified(lines)
    records = [json.loads(row["record"]) for row in lines[1:-1]]
    assert {each["state"] for each in records} == {"cancelled"}
    assert all(len(each["calls"]) == 2 and "reply" not in call for each in records for call in each["calls"])


async def test_a_live_job_has_no_records_yet(api: Api) -> None:
    await api.job()
    reply = await api.http.get("/v1/jobs/a-job/provenance")
    assert reply.status_code == 409
    assert "records are made at its end" in reply.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs/nobody/provenance", "/v1/jobs/a-job/provenance?format=prov"])
async def test_what_cannot_be_exported_is_refused_in_words(api: Api, path: str) -> None:
    await api.job()
    assert (await api.http.get(path)).status_code in (404, 422)


async def test_a_job_that_is_purged_meanwhile_breaks_the_stream_off(api: Api, database: Database) -> None:
    await completed(api, database, "closed-book")
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


# One sample's page shows all that its answer was made from, and pages of samples show each once.


async def test_a_sample_shows_where_its_answer_came_from(api: Api, database: Database) -> None:
    await api.job(name="a-job")
    await finished(database)
    shown = await api.get("/v1/jobs/a-job/samples/2")
    assert shown["code"]["schema"] == await scalar(database, "SELECT version_num FROM alembic_version")
    assert shown["gold_hash"] == hashlib.sha256(shown["gold"].encode()).hexdigest()
    assert shown["fusion"] == {"rrf_k": 60, "tie_break": "equal scores: the smaller document hash first"}
    assert shown["link"]["sequence"] == 2
    generated = next(step for step in shown["steps"] if step["role"] == "generate")
    assert generated["sent"] == {
        "temperature": 0.0, "max_tokens": 512, "seed": seed_of(bytes.fromhex(generated["key"]))
    }  # fmt: skip
    assert generated["request"]["template"].startswith("cot@")
    assert generated["model_hash"] == generated["request"]["model"]
    assert generated["queue_ms"] >= 0
    reply = await scalar(database, "SELECT a.reply FROM attempts a JOIN calls c ON c.id = a.call_id"
                         " WHERE encode(c.key, 'hex') = :k", k=generated["key"])  # fmt: skip
    assert generated["attempt"]["reply_hash"] == hashlib.sha256(reply).hexdigest()  # type: ignore[arg-type]
    graded = next(step for step in shown["steps"] if step["role"] == "grade")
    assert graded["sent"] is None


async def test_a_gated_sample_names_the_decision_that_it_was_given(api: Api, database: Database) -> None:
    await api.job("mathrag-gate")
    await finished(database)
    shown = await api.get("/v1/jobs/a-job/samples/0")
    assert shown["decision_hash"] == await scalar(database, "SELECT encode(sha256(prepared), 'hex') FROM jobs")
    assert {step["source"]["kind"] for step in shown["steps"] if step["role"] == "retrieve"} == {"prepare"}


async def test_a_reused_reply_names_who_had_asked_for_it(api: Api, database: Database) -> None:
    first = await api.job(name="first")
    await finished(database)
    await api.job(name="second")
    await finished(database)
    (step, _) = (await api.get("/v1/jobs/second/samples/3"))["steps"]
    assert not step["created"]
    assert step["source"] == {"job": first["id"], "kind": "item", "index": 3, "repeat": 0, "position": 0}
    assert (await api.get("/v1/jobs/first/samples/3"))["steps"][0]["source"] is None


async def test_a_live_sample_has_no_link_yet(api: Api) -> None:
    await api.job()
    assert (await api.get("/v1/jobs/a-job/samples/0"))["link"] is None


async def test_pages_show_every_sample_once_while_samples_come_and_end(api: Api, database: Database) -> None:
    await api.job(name="paged", repeats=3)
    seen, cursor = [], None
    while cursor is not None or not seen:
        page = await api.get("/v1/jobs/paged/samples", limit=4, **({"cursor": cursor} if cursor else {}))
        seen += [(row["index"], row["repeat"]) for row in page["data"]]
        cursor = page["next_cursor"]
        await submit_job(database, "closed-book", name=f"other-{len(seen)}")
        if len(seen) == 8:
            await finished(database)
    assert seen == [(index, repeat) for index in range(5) for repeat in range(3)]


async def test_a_stream_of_results_shows_every_sample_once_while_workers_run(database: Database) -> None:
    await furnish(database, items=40)
    await submit_job(database, "closed-book")
    job = await scalar(database, "SELECT id FROM jobs")
    working = asyncio.create_task(drain(database, ScriptedExecutor()))
    readings = []
    while not working.done():
        batches = samples.stream_with_outcomes(database, job, 7)  # type: ignore[arg-type]
        readings.append([row.index async for batch in batches for row, _ in batch])
        await asyncio.sleep(0)
    await working
    batches = samples.stream_with_outcomes(database, job, 7)  # type: ignore[arg-type]
    whole = [row.index async for batch in batches for row, _ in batch]
    assert whole == list(range(40))
    assert all(reading == sorted(set(reading)) for reading in readings)


async def test_the_list_of_jobs_shows_every_job_once_while_jobs_are_submitted(api: Api) -> None:
    names = [f"job-{number}" for number in range(7)]
    for name in names:
        await api.job(name=name)
    seen, cursor = [], None
    while cursor is not None or not seen:
        page = await api.get("/v1/jobs", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [row["name"] for row in page["data"]]
        cursor = page["next_cursor"]
        await api.job(name=f"new-{len(seen)}")
    assert seen == names[::-1]


async def test_an_audit_over_the_api_says_what_it_found(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    await run_sql(database, "UPDATE jobs SET chain = sha256('')")
    found = await api.get("/v1/jobs/a-job/audit")
    assert found["clean"] is False
    assert {each["invariant"] for each in found["violations"]} == {"I21", "I22"}


@pytest.mark.parametrize("change", ["pipeline = 'closed-book'", "params = '{'", "pins = '[]'", "prepared = 'x'"])
async def test_an_audit_of_a_job_that_cannot_be_read_answers_all_the_same(
    api: Api, database: Database, change: str
) -> None:
    await api.job("hybrid")
    await finished(database)
    await run_sql(database, "UPDATE jobs SET _".replace("_", change))
    found = await api.get("/v1/jobs/a-job/audit")
    assert found["clean"] is False
    assert any("could not be checked" in each["message"] or "read" in each["message"] or "replayed" in each["message"]
               for each in found["violations"])  # fmt: skip


# One accuracy everywhere: an item counts once, however often it was answered, and a figure lies in its interval.

ITEMS = 40
RIGHT = 10
REPEATS = 5
UNEQUAL = [
    *({"index": n, "repeat": repeat, "answer": str(2 * n)} for n in range(RIGHT) for repeat in range(REPEATS)),
    *({"index": n, "answer": "-1"} for n in range(RIGHT, ITEMS)),
]
"""Ten items are right in all of five repeats, thirty were answered once and wrong."""


@pytest.fixture
async def paged_api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, ITEMS)
    return empty_api


async def imported(paged_api: Api, database: Database, **jobs: Iterable[Any]) -> None:
    for name, lines in jobs.items():
        reply = await paged_api.upload("jobs/import", name, lines, dataset="items")
        assert reply.status_code == 202, reply.text
    await finished(database)


async def page(paged_api: Api, path: str) -> str:
    shown = (await paged_api.http.get(path, headers={"accept": "text/html"})).text
    return " ".join(re.sub(r"<[^>]+>", " ", shown).split())


async def test_an_item_counts_once_in_every_answer_of_the_api(paged_api: Api, database: Database) -> None:
    once = [{"index": n, "answer": str(2 * n) if n < RIGHT else "-1"} for n in range(ITEMS)]
    await imported(paged_api, database, theirs=UNEQUAL, once=once)
    report = await paged_api.get("/v1/jobs/theirs/report")
    accuracy = report["accuracy"]
    assert {name: accuracy[name] for name in ("value", "items", "correct", "graded")} == {
        "value": RIGHT / ITEMS, "items": ITEMS, "correct": 50, "graded": 80,
    }  # fmt: skip
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert (report["bootstrap"]["value"], report["items"]) == (RIGHT / ITEMS, ITEMS)
    assert (await paged_api.get("/v1/jobs/theirs"))["accuracy"] == accuracy
    listed = {job["name"]: job["accuracy"] for job in (await paged_api.get("/v1/jobs"))["data"]}
    assert listed["theirs"] == accuracy
    same = {name: accuracy[name] for name in ("value", "low", "high")}
    assert same == {name: listed["once"][name] for name in same}, "one answer an item is the same figure"
    found = await paged_api.get("/v1/comparison", job="theirs", baseline="once")
    theirs = next(each for each in found["jobs"] if each["name"] == "theirs")
    assert {name: theirs[name] for name in ("accuracy", "bootstrap", "repeats", "items")} == {
        name: report[name] for name in ("accuracy", "bootstrap", "repeats", "items")
    }
    assert theirs["measured"] == {**same, "n": ITEMS}
    assert found["pairs"][0]["difference"]["value"] == 0.0


async def test_repeats_are_compared_over_the_items_that_all_of_them_answered(
    paged_api: Api, database: Database
) -> None:
    await imported(paged_api, database, theirs=UNEQUAL)
    repeats = (await paged_api.get("/v1/jobs/theirs/report"))["repeats"]
    assert repeats == {"accuracies": [1.0] * REPEATS, "items": RIGHT, "mean": 1.0, "std": 0.0}


async def test_the_pages_say_how_many_items_and_answers_there_are(paged_api: Api, database: Database) -> None:
    await imported(paged_api, database, theirs=UNEQUAL)
    said = "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers"
    job = await page(paged_api, "/jobs/theirs")
    assert f"Completed: {said}" in job
    assert "Each item counts once, by the share of its answers that are right. 50 of all 80 answers are right." in job
    assert said in await page(paged_api, "/jobs/theirs/report")
    assert "25.0 % (14.2 to 40.2)" in await page(paged_api, "/jobs")


async def test_a_failed_sample_as_a_wrong_one_is_a_mean_over_items_too(paged_api: Api, database: Database) -> None:
    await imported(paged_api, database, theirs=UNEQUAL)
    await scene.run_sql(
        database,
        "UPDATE samples SET state = 3, failure = 'timeout' WHERE kind = 'item' AND ordinal < 3 AND repeat = 0",
    )
    await scene.run_sql(
        database, "DELETE FROM outcomes o USING samples s WHERE s.id = o.sample_id AND s.failure = 'timeout'"
    )
    report = await paged_api.get("/v1/jobs/theirs/report")
    assert (report["accuracy"]["value"], report["accuracy"]["graded"]) == (RIGHT / ITEMS, 77)
    (note,) = [each for each in report["notes"] if "counted as wrong" in each]
    assert note.startswith("3 failed samples are left out of the accuracy; counted as wrong they would make it 23.5 %")
    assert note.endswith("mean of 40 items, 80 answers")


async def test_a_dataset_that_lists_an_item_twice_has_one_accuracy(paged_api: Api, database: Database) -> None:
    lines = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in (1, 1, 2, 3)]
    assert (await paged_api.upload("datasets", "twice", lines)).status_code == 201
    for name, right in (("left", (0,)), ("right", ())):
        answers = [{"index": n, "answer": str(2 * (1, 1, 2, 3)[n]) if n in right else "-1"} for n in range(4)]
        assert (await paged_api.upload("jobs/import", name, answers, dataset="twice")).status_code == 202
    await finished(database)
    report = await paged_api.get("/v1/jobs/left/report")
    assert (report["accuracy"]["value"], report["accuracy"]["items"]) == (0.25, 4)
    assert (await paged_api.get("/v1/jobs/left"))["accuracy"] == report["accuracy"]
    found = await paged_api.get("/v1/comparison", job="left", baseline="right")
    left = next(each for each in found["jobs"] if each["name"] == "left")
    assert (left["accuracy"], left["bootstrap"]) == (report["accuracy"], report["bootstrap"])
    (pair,) = found["pairs"]
    assert (pair["items"], pair["left_only"], pair["right_only"]) == (3, 0, 0)
    assert pair["difference"]["value"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(("missing", "how_much"), [(ITEMS, "nothing"), (ITEMS // 2 + 1, "little"), (ITEMS // 2, "")])
async def test_a_job_of_answers_that_could_not_be_read_says_so_in_its_headlines(
    paged_api: Api, database: Database, missing: int, how_much: str
) -> None:
    texts = [{"index": n, "text": "It is four." if n < missing else "$\\boxed{-1}$"} for n in range(ITEMS)]
    await imported(paged_api, database, theirs=texts)
    said = (
        f"In {missing} of {ITEMS} answers no final answer could be found, so 0.0 % says {how_much} about the system."
        " Choose another grader; an import can also give the final answers themselves, as `answer`."
    )
    plain = "0.0 % right (0.0 to 8.8), 0 of 40"
    for path in ("/jobs/theirs", "/jobs/theirs/report"):
        shown = await page(paged_api, path)
        assert (said in shown, plain in shown) == (bool(how_much), not how_much)


async def test_answers_are_counted_by_how_the_final_answer_was_found(paged_api: Api, database: Database) -> None:
    texts = ["$\\boxed{0}$", "It is four.", "$\\boxed{4$", "I know nothing of it."]
    await imported(
        paged_api, database, one=[{"index": n, "text": each} for n, each in enumerate(texts)], two=UNEQUAL[:1]
    )
    async with database.transaction() as connection:
        assert await count_extractions(connection, [1, 2, 3]) == {
            1: {"missing": 2, "ok": 1, "unbalanced": 1}, 2: {"ok": 1},
        }  # fmt: skip
