"""One sample's page shows all that its answer was made from, and pages of samples show each once."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from shared.calls import seed_of
from shared.storage import samples
from shared.storage.database import Database
from tests.integration import api
from tests.integration.api import Api, finished
from tests.integration.scene import ScriptedExecutor, drain, furnish, run_sql, scalar, submit_job

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database, items=5)
    async with api.serving(database, redis_url) as client:
        yield client


async def test_a_sample_shows_where_its_answer_came_from(served: Api, database: Database) -> None:
    await served.job(name="a-job")
    await finished(database)
    shown = await served.get("/v1/jobs/a-job/samples/2")
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


async def test_a_gated_sample_names_the_decision_that_it_was_given(served: Api, database: Database) -> None:
    await served.job("mathrag-gate")
    await finished(database)
    shown = await served.get("/v1/jobs/a-job/samples/0")
    assert shown["decision_hash"] == await scalar(database, "SELECT encode(sha256(prepared), 'hex') FROM jobs")
    assert {step["source"]["kind"] for step in shown["steps"] if step["role"] == "retrieve"} == {"prepare"}


async def test_a_reused_reply_names_who_had_asked_for_it(served: Api, database: Database) -> None:
    first = await served.job(name="first")
    await finished(database)
    await served.job(name="second")
    await finished(database)
    (step, _) = (await served.get("/v1/jobs/second/samples/3"))["steps"]
    assert not step["created"]
    assert step["source"] == {"job": first["id"], "kind": "item", "index": 3, "repeat": 0, "position": 0}
    assert (await served.get("/v1/jobs/first/samples/3"))["steps"][0]["source"] is None


async def test_a_live_sample_has_no_link_yet(served: Api) -> None:
    await served.job()
    assert (await served.get("/v1/jobs/a-job/samples/0"))["link"] is None


async def test_pages_show_every_sample_once_while_samples_come_and_end(served: Api, database: Database) -> None:
    await served.job(name="paged", repeats=3)
    seen, cursor = [], None
    while cursor is not None or not seen:
        page = await served.get("/v1/jobs/paged/samples", limit=4, **({"cursor": cursor} if cursor else {}))
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
        readings.append([row.index async for batch in samples.stream_ended(database, job, 7) for row in batch])  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await working
    whole = [row.index async for batch in samples.stream_ended(database, job, 7) for row in batch]  # type: ignore[arg-type]
    assert whole == list(range(40))
    assert all(reading == sorted(set(reading)) for reading in readings)


async def test_the_list_of_jobs_shows_every_job_once_while_jobs_are_submitted(served: Api) -> None:
    names = [f"job-{number}" for number in range(7)]
    for name in names:
        await served.job(name=name)
    seen, cursor = [], None
    while cursor is not None or not seen:
        page = await served.get("/v1/jobs", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [row["name"] for row in page["data"]]
        cursor = page["next_cursor"]
        await served.job(name=f"new-{len(seen)}")
    assert seen == names[::-1]


async def test_an_audit_over_the_api_says_what_it_found(served: Api, database: Database) -> None:
    await served.job()
    await finished(database)
    await run_sql(database, "UPDATE jobs SET chain = sha256('')")
    found = await served.get("/v1/jobs/a-job/audit")
    assert found["clean"] is False
    assert {each["invariant"] for each in found["violations"]} == {"I21", "I22"}


@pytest.mark.parametrize("change", ["pipeline = 'closed-book'", "params = '{'", "pins = '[]'", "prepared = 'x'"])
async def test_an_audit_of_a_job_that_cannot_be_read_answers_all_the_same(
    served: Api, database: Database, change: str
) -> None:
    await served.job("hybrid")
    await finished(database)
    await run_sql(database, "UPDATE jobs SET _".replace("_", change))
    found = await served.get("/v1/jobs/a-job/audit")
    assert found["clean"] is False
    assert any("could not be checked" in each["message"] or "read" in each["message"] or "replayed" in each["message"]
               for each in found["violations"])  # fmt: skip
