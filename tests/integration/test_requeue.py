"""Requeue: an ended job is asked for again, and only what failed for a passing reason is computed anew."""

from collections.abc import AsyncIterator

import pytest

from shared.calls import Request
from shared.replies import Failure, FailureKind, Reply
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

CALLS = "SELECT count(*) FROM calls"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


def failing(kind: FailureKind) -> scene.Answer:
    def answer(request: Request) -> Reply:
        if request.role == "generate" and "0 plus 0" in str(request.values["question"]):
            return Failure(kind=kind, detail="away")
        return scene.by_rule(request)

    return answer


MADE = """
    SELECT c.role FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    WHERE s.job_id = (SELECT max(id) FROM jobs) AND t.created ORDER BY c.role"""
"""Roles of the calls that the newest job put into the queue."""


async def run(database: Database, kind: FailureKind) -> None:
    for _ in range(3):
        await scene.drain(database, scene.ScriptedExecutor(failing(kind)))
        await scene.let_pauses_pass(database)


async def test_a_requeued_job_asks_for_the_same_and_says_of_what(api: Api, database: Database) -> None:
    fields = {"repeats": 2, "params": {"candidates": 7}, "metadata": {"run": "7"}, "rank": 5, "reuse": "none"}
    job = await api.job("dense", models={"generate": "a-judge"}, **fields)
    await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    await scene.run_sql(database, "UPDATE jobs SET state = 'cancelled', ended_at = now()")
    reply = await api.http.post(f"/v1/jobs/{job['id']}/requeue")
    new = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (202, f"/v1/jobs/{new['id']}")
    same = ("dataset", "corpus", "pipeline", "params", "repeats", "reuse", "rank", "metadata")
    assert {field: new[field] for field in same} == {field: job[field] for field in same}
    assert (new["name"], new["requeued_from"], new["state"]) == ("a-job-r2", job["id"], "running")
    pins = await scene.rows(database, "SELECT pins -> 'generate' ->> 'hash' FROM jobs ORDER BY id")
    assert pins[0] == pins[1]


async def test_only_what_failed_is_computed_anew(api: Api, database: Database) -> None:
    job = await api.job()
    await run(database, FailureKind.CONNECTION)
    assert (await api.get(job["links"]["self"]))["request_counts"]["failed"] == 1
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    await finished(database)
    counts = (await api.get(new["links"]["self"]))["request_counts"]
    assert (counts["completed"], counts["failed"]) == (5, 0)
    assert await scene.rows(database, MADE) == [("generate",), ("grade",)]
    again = await api.get(job["links"]["self"])
    assert (again["state"], again["request_counts"]["failed"]) == ("completed", 1)


async def test_a_failure_of_the_content_is_a_reply_and_fails_again(api: Api, database: Database) -> None:
    job = await api.job()
    await run(database, FailureKind.CONTEXT_EXCEEDED)
    before = await scene.scalar(database, CALLS)
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    await finished(database)
    assert (await api.get(new["links"]["self"]))["request_counts"]["failed"] == 1
    assert await scene.scalar(database, CALLS) == before


async def test_a_job_that_shares_nothing_is_computed_anew_as_a_whole(api: Api, database: Database) -> None:
    job = await api.job(reuse="none")
    await finished(database)
    before = int(str(await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'generate'")))
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    await finished(database)
    assert new["reuse"] == "none"
    assert await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'generate'") == 2 * before == 10


async def test_a_cancelled_job_goes_on_where_it_was_when_it_is_requeued(api: Api, database: Database) -> None:
    job = await api.job()
    await scene.advance(database)
    taken = await scene.claim(database, 2)
    assert taken is not None
    await scene.answer(database, taken)
    await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    await scene.repair(database)
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    executor = scene.ScriptedExecutor()
    await scene.drain(database, executor)
    assert (await api.get(new["links"]["self"]))["request_counts"]["completed"] == 5
    assert sum(role == "generate" for role in await roles(database, executor)) == 3


async def roles(database: Database, executor: scene.ScriptedExecutor) -> list[str]:
    found = await scene.rows(database, "SELECT role FROM calls WHERE key = ANY(:keys)", keys=sorted(executor.ran))
    return [str(role) for (role,) in found]


@pytest.mark.parametrize("verb", [None, "pause"])
async def test_a_job_that_has_not_ended_is_not_requeued(api: Api, verb: str | None) -> None:
    job = await api.job()
    if verb:
        await api.http.post(f"/v1/jobs/{job['id']}/{verb}")
    reply = await api.http.post(f"/v1/jobs/{job['id']}/requeue")
    assert (reply.status_code, "cancel" in reply.json()["hint"]) == (409, True)
    assert (await api.http.post("/v1/jobs/nobody/requeue")).status_code == 404


async def test_a_requeue_is_refused_where_its_model_is_gone(api: Api, database: Database) -> None:
    job = await api.job()
    await finished(database)
    await scene.run_sql(database, "UPDATE models SET served = false WHERE name = 'a-generator'")
    reply = await api.http.post(f"/v1/jobs/{job['id']}/requeue")
    assert (reply.status_code, "a-generator" in reply.json()["detail"]) == (422, True)
