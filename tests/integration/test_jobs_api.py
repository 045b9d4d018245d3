"""Jobs over REST: submitted, found, listed, cancelled; and whether the service is ready for them."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis

from shared.lease import residencies
from shared.runtime import models
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    """The application over a corpus "docs" and a dataset "items" of five."""
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def test_a_submitted_job_is_committed_and_can_be_polled(api: Api) -> None:
    """202 with its address and when to look; the scheduler is woken."""
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "repeats": 2}
    reply = await api.http.post("/v1/jobs", json=body)
    job = reply.json()
    assert (reply.status_code, reply.headers["retry-after"], api.woken) == (202, "1", 1)
    found = await api.get(reply.headers["location"])
    assert found == job
    assert (found["name"], found["state"], found["dataset"], found["corpus"]) == ("mine", "running", "items", None)
    assert found["request_counts"] == {"total": 10, "completed": 0, "failed": 0, "cancelled": 0, "in_progress": 10}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"dataset": "none"}, 404, "no dataset 'none'"),
        ({"corpus": "none"}, 404, "no corpus 'none'"),
        ({"pipeline": "none"}, 422, "closed-book"),
        ({"pipeline": "dense", "corpus": None}, 422, "`corpus`"),
        ({"models": {"judge": "none"}}, 422, "no guard serves a model 'none'"),
        ({"models": {"cook": "a-judge"}}, 422, "no role 'cook'"),
    ],
)
async def test_a_job_that_cannot_run_is_refused(api: Api, change: dict[str, Any], status: int, words: str) -> None:
    """Before anything is stored; the scheduler sleeps on."""
    body = {"name": "mine", "dataset": "items", "corpus": "docs", "pipeline": "closed-book", **change}
    reply = await api.http.post("/v1/jobs", json=body)
    assert (reply.status_code, words in reply.json()["detail"]) == (status, True)
    assert (await api.get("/v1/jobs"))["data"] == []
    assert api.woken == 0


async def test_a_job_is_found_by_id_prefix_and_name(api: Api) -> None:
    """All mean the same one."""
    job = await api.job(name="mine")
    for reference in (job["id"], job["id"][:8], job["id"].replace("-", "")[:12], "mine"):
        assert (await api.get(f"/v1/jobs/{reference}"))["id"] == job["id"]


async def test_a_reference_to_several_jobs_is_a_conflict_that_lists_them(api: Api) -> None:
    """Nothing is guessed."""
    ids = {(await api.job(name="twice"))["id"] for _ in range(2)}
    reply = await api.http.get("/v1/jobs/twice")
    assert reply.status_code == 409
    assert all(each in reply.json()["detail"] for each in ids)


async def test_a_name_wins_over_a_prefix_and_an_id_over_a_name(api: Api) -> None:
    """So that a job can always be reached by its id."""
    first = await api.job(name="first")
    second = await api.job(name=first["id"][:8])
    assert (await api.get(f"/v1/jobs/{first['id'][:8]}"))["id"] == second["id"]
    third = await api.job(name=first["id"])
    assert (await api.get(f"/v1/jobs/{first['id']}"))["id"] == first["id"] != third["id"]


@pytest.mark.parametrize("path", ["", "/results", "/samples", "/samples/0", "/report", "/audit"])
async def test_an_unknown_job_is_not_found(api: Api, path: str) -> None:
    """Whatever is asked about it."""
    for reference in (str(uuid.uuid4()), "none", "%25"):
        assert (await api.http.get(f"/v1/jobs/{reference}{path}")).status_code == 404


async def test_lists_are_newest_first_and_paged(api: Api) -> None:
    """Jobs that come while someone pages do not move the pages."""
    for name in ("a", "b", "c"):
        await api.job(name=name)
    first = await api.get("/v1/jobs", limit=2)
    await api.job(name="d")
    second = await api.get("/v1/jobs", limit=2, cursor=first["next_cursor"])
    assert [job["name"] for job in first["data"] + second["data"]] == ["c", "b", "a"]
    assert (await api.http.get("/v1/jobs", params={"limit": 0})).status_code == 422
    assert (await api.http.get("/v1/jobs", params={"cursor": "x"})).status_code == 422


async def test_a_cancelled_job_ends_and_stays_cancelled(api: Api) -> None:
    """Again is harmless; the scheduler is woken to end it."""
    job = await api.job()
    for _ in range(2):
        reply = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
        assert (reply.status_code, reply.json()["state"]) == (202, "cancelling")
    assert reply.json()["request_counts"]["cancelled"] == 5
    assert api.woken == 3


async def test_a_job_that_has_completed_cannot_be_cancelled(api: Api, database: Database) -> None:
    """409 in words."""
    job = await api.job()
    await finished(database)
    reply = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert (reply.status_code, "has completed" in reply.json()["detail"]) == (409, True)


async def test_stages_count_distinct_calls_by_role(api: Api, database: Database) -> None:
    """So far: more appear while the job runs."""
    job = await api.job("hybrid")
    await scene.advance(database)
    stages = (await api.get(f"/v1/jobs/{job['id']}"))["stages"]
    assert stages == {"retrieve": {"done": 0, "total": 10}}
    await finished(database)
    ended = await api.get(f"/v1/jobs/{job['id']}")
    assert (ended["state"], ended["request_counts"]["completed"]) == ("completed", 5)
    assert ended["stages"]["retrieve"] == {"done": 10, "total": 10}
    assert list(ended["stages"]) == ["retrieve", "generate", "grade"]
    assert ended["ended_at"] is not None


async def test_the_catalogue_names_what_a_job_may_ask_for(api: Api) -> None:
    """Pipelines with their first line; models without addresses and keys."""
    pipelines = {pipeline["name"]: pipeline for pipeline in await api.get("/v1/pipelines")}
    assert pipelines["mathrag-gate"]["calibrated"]
    assert not pipelines["dense"]["calibrated"]
    assert all(pipeline["summary"] for pipeline in pipelines.values())
    known = {model["name"]: model for model in await api.get("/v1/models")}
    assert not known["world-judge"]["registered"]
    assert not {"url", "api_key_env", "path"} & known["world-judge"].keys()


async def test_readiness_names_what_is_missing_and_the_fix(api: Api, redis_url: str) -> None:
    """No worker has a heartbeat, and the guard is away; then everything is there."""
    api.other = lambda request: httpx2.Response(503 if request.url.host == "guard" else 200)
    reply = await api.http.get("/readyz")
    failing = {check["name"]: check for check in reply.json()["checks"] if not check["ok"]}
    assert (reply.status_code, set(failing)) == (503, {"guard", "judge worker", "generator worker"})
    assert all(check["fix"] for check in failing.values())
    api.other = lambda _: httpx2.Response(200)
    async with Redis.from_url(redis_url) as redis:
        for lane in ("judge", "generate"):
            await redis.set(f"mathrag:worker:{lane}:1", "1")
        assert await api.get("/readyz") == {
            "ready": True,
            "checks": (await api.http.get("/readyz")).json()["checks"],
        }


async def test_a_quarantined_device_is_not_ready_and_says_why(api: Api, database: Database) -> None:
    """Nobody should have to read the guard's log to learn why nothing moves."""
    async with database.transaction() as connection:
        epoch = await residencies.want(connection, "cpu:0", 0, [1], "first")
        assert epoch is not None
        await residencies.move(connection, epoch, "quarantined", datetime.now(UTC), "load: no file")
    checks = {check["name"]: check for check in (await api.http.get("/readyz")).json()["checks"]}
    assert checks["device"]["detail"] == "cpu:0 is quarantined: load: no file"
    assert "restarted" in checks["device"]["fix"]


async def test_a_model_that_no_guard_serves_any_more_is_missed_before_a_job_asks_for_it(
    api: Api, database: Database
) -> None:
    """Readiness names it, and a job that would wait for it for ever is refused."""
    async with database.transaction() as connection:
        await models.retire(connection, "cpu:0")
    checks = {check["name"]: check for check in (await api.http.get("/readyz")).json()["checks"]}
    assert checks["models"]["detail"] == "no guard serves a-generator, a-judge"
    refused = await api.http.post("/v1/jobs", json={"name": "j", "dataset": "items", "pipeline": "closed-book"})
    assert refused.status_code == 422
    assert "no guard serves a model" in refused.json()["detail"]


async def test_health_asks_nobody(api: Api) -> None:
    """The process is up, whatever else is down."""
    api.other = lambda _: httpx2.Response(500)
    assert await api.get("/healthz") == {"status": "ok"}
    assert api.asked == []
