"""Jobs over REST: submitted, found, listed, changed and ended; and the same request again."""

import asyncio
import json
import re
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx2
import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from mathrag.errors import InProgress
from services.orchestrator.scheduling import routines
from services.orchestrator.scheduling.routines import POSTPONED_S, Finaliser
from shared.audit import check
from shared.calls import Lane
from shared.lease import residencies
from shared.runtime import lifecycle, pins
from shared.runtime import worker as worker_runtime
from shared.runtime.advance import NOTHING, AdvanceResult
from shared.runtime.lifecycle import cancel
from shared.runtime.submit import Submission, submit_once
from shared.settings import Settings
from shared.storage.database import Accepted, Database, KeyedRequest
from shared.storage.provenance import SAMPLES
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    answer,
    claim_some,
    furnish,
    job_states,
    rows,
    run_sql,
    scalar,
    submit_job,
    without_gold,
    worker,
)
from tests.integration.scheduling import Hands

pytestmark = pytest.mark.anyio


# Jobs over REST: submitted, found, listed, cancelled; and whether the service is ready for them.


async def test_a_submitted_job_is_committed_and_can_be_polled(api: Api) -> None:
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "repeats": 2}
    reply = await api.http.post("/v1/jobs", json=body)
    job = reply.json()
    assert (reply.status_code, reply.headers["retry-after"], api.woken) == (202, "1", 1)
    found = await api.get(reply.headers["location"])
    assert found == job
    assert (found["name"], found["state"], found["dataset"], found["corpus"]) == ("mine", "running", "items", None)
    counts = {"total": 10, "completed": 0, "failed": 0, "cancelled": 0, "in_progress": 10, "unparsed": 0}
    assert found["request_counts"] == counts


async def test_a_job_that_cannot_run_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    for change, status, words in (
        ({"dataset": "none"}, 404, "no dataset 'none'"),
        ({"corpus": "none"}, 404, "no corpus 'none'"),
        ({"pipeline": "none"}, 422, "closed-book"),
        ({"pipeline": "dense", "corpus": None}, 422, "`corpus`"),
        ({"models": {"judge": "none"}}, 422, "no guard serves a model 'none'"),
        ({"models": {"cook": "a-judge"}}, 422, "no role 'cook'"),
    ):
        with subtests.test(change=change):
            body = {"name": "mine", "dataset": "items", "corpus": "docs", "pipeline": "closed-book", **change}
            reply = await api.http.post("/v1/jobs", json=body)
            assert (reply.status_code, words in reply.json()["detail"]) == (status, True)
            assert (await api.get("/v1/jobs"))["data"] == []
            assert api.woken == 0


@pytest.mark.fault("V3")
@pytest.mark.parametrize(
    ("gate", "ratings"), [({"repeats": 20}, 40_000), ({"repeats": 16, "truth": "verifier"}, 34_000)]
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plan"])
async def test_a_calibration_of_more_ratings_than_a_step_can_hold_is_refused(
    api: Api, database: Database, seen: Seen, gate: dict[str, Any], ratings: int, path: str
) -> None:
    seen.describe("`gate.repeats` of 20 with 2,000 calibration documents, and 16 with the verifier's checks, submitted")
    await scene.run_sql(database, "UPDATE datasets SET items = 400")
    await scene.run_sql(database, "UPDATE corpora SET documents = 7500")
    params = {"gate": {**gate, "items": 400, "max_documents": 2000}}
    job = {"name": "mine", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", "params": params}
    reply = await api.http.post(path, json=job if path == "/v1/jobs" else {"job": job})
    assert reply.status_code == 422, reply.text
    said = f"`params.gate`: the calibration asks for up to {ratings} ratings at once; a step holds 32767 calls"
    assert reply.json()["detail"] == said
    assert reply.json()["hint"] == "lower `gate.repeats` or `gate.max_documents`"
    assert (await api.get("/v1/jobs"))["data"] == []
    seen.note("422 with the number, the limit and the parameters to lower")


@pytest.mark.parametrize("documents", [20, 100_000])
async def test_a_calibration_that_a_step_can_hold_is_taken_in(api: Api, database: Database, documents: int) -> None:
    await scene.run_sql(database, "UPDATE datasets SET items = 10000")
    await scene.run_sql(database, f"UPDATE corpora SET documents = {documents}")  # noqa: S608
    repeats, rated = (20, 2000) if documents == 20 else (7, 4681)
    await api.job("mathrag-gate", params={"gate": {"repeats": repeats, "items": 10_000, "max_documents": rated}})


async def test_a_job_is_found_by_id_prefix_and_name(api: Api) -> None:
    job = await api.job(name="mine")
    for reference in (job["id"], job["id"][:8], job["id"].replace("-", "")[:12], "mine"):
        assert (await api.get(f"/v1/jobs/{reference}"))["id"] == job["id"]


async def test_a_reference_to_several_jobs_is_a_conflict_that_lists_them(api: Api, database: Database) -> None:
    ids = {(await api.job())["id"] for _ in range(2)}
    await scene.run_sql(database, "UPDATE jobs SET name = 'twice'")
    reply = await api.http.get("/v1/jobs/twice")
    assert reply.status_code == 409
    assert all(each in reply.json()["detail"] for each in ids)


async def test_a_name_wins_over_a_prefix_and_an_id_over_a_name(api: Api) -> None:
    first = await api.job(name="first")
    second = await api.job(name=first["id"][:8])
    assert (await api.get(f"/v1/jobs/{first['id'][:8]}"))["id"] == second["id"]
    third = await api.job(name=first["id"])
    assert (await api.get(f"/v1/jobs/{first['id']}"))["id"] == first["id"] != third["id"]


async def test_an_unknown_job_is_not_found(api: Api, subtests: pytest.Subtests) -> None:
    for path in ("", "/results", "/samples", "/samples/0", "/report", "/audit"):
        with subtests.test(path=path):
            for reference in (str(uuid.uuid4()), "none", "%25"):
                assert (await api.http.get(f"/v1/jobs/{reference}{path}")).status_code == 404


async def test_lists_are_newest_first_and_paged(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.job(name=name)
    first = await api.get("/v1/jobs", limit=2)
    await api.job(name="d")
    second = await api.get("/v1/jobs", limit=2, cursor=first["next_cursor"])
    assert [job["name"] for job in first["data"] + second["data"]] == ["c", "b", "a"]
    assert (await api.http.get("/v1/jobs", params={"limit": 0})).status_code == 422
    assert (await api.http.get("/v1/jobs", params={"cursor": "x"})).status_code == 400


async def test_a_list_is_filtered_and_its_cursor_belongs_to_the_filters(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.job(name=name)
    await api.job("dense", name="d")
    assert len((await api.get("/v1/jobs", name="a"))["data"]) == 1
    assert len((await api.get("/v1/jobs", pipeline="closed-book"))["data"]) == 3
    assert len((await api.get("/v1/jobs", name="d", pipeline="dense", dataset="items", state="running"))["data"]) == 1
    assert (await api.get("/v1/jobs", state="completed"))["data"] == []
    first = await api.get("/v1/jobs", pipeline="closed-book", limit=2)
    cursor = first["next_cursor"]
    assert len((await api.get("/v1/jobs", pipeline="closed-book", limit=2, cursor=cursor))["data"]) == 1
    job = first["data"][0]["id"]
    for path, query in (
        ("/v1/jobs", {"pipeline": "dense"}),
        ("/v1/jobs", {}),
        ("/v1/corpora", {}),
        (f"/v1/jobs/{job}/samples", {}),
    ):
        reply = await api.http.get(path, params={**query, "cursor": cursor})
        assert (reply.status_code, "filters" in reply.json()["hint"]) == (400, True)


async def test_an_online_job_is_in_no_list_and_answers_by_its_id(api: Api, database: Database) -> None:
    job = await scene.submit_job(database, "closed-book", online=True)
    assert (await api.get("/v1/jobs"))["data"] == []
    assert (await api.get(f"/v1/jobs/{job}"))["state"] == "running"


async def test_a_job_says_when_it_was_in_each_state_and_where_to_go_on(api: Api, database: Database) -> None:
    job = await api.job(metadata={"run": "7"})
    await finished(database)
    found = await api.get(job["links"]["self"])
    assert list(dict(sorted(found["reached"].items(), key=lambda entry: entry[1]))) == [
        "preparing", "running", "finalizing", "completed",
    ]  # fmt: skip
    assert (found["metadata"], found["rank"], found["requeued_from"]) == ({"run": "7"}, 100, None)
    assert set(found["links"]) == {"self", "events", "samples", "results", "report", "provenance"}
    for link in found["links"].values():
        assert (await api.http.get(link)).status_code == 200


async def test_a_running_job_estimates_its_rest_once_enough_has_ended(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 30, "many")
    job = await api.job(dataset="many")
    assert (await api.get(job["links"]["self"]))["eta_seconds"] is None
    ended = "UPDATE samples SET state = 3, ended_at = now() + ordinal * interval '2 s' WHERE ordinal < 11"
    await scene.run_sql(database, ended)
    assert (await api.get(job["links"]["self"]))["eta_seconds"] == 38
    await api.http.post(f"/v1/jobs/{job['id']}/pause")
    assert (await api.get(job["links"]["self"]))["eta_seconds"] is None


async def test_failed_samples_say_how_many_were_unparsed(api: Api, database: Database) -> None:
    job = await api.job()
    await scene.run_sql(database, "UPDATE samples SET state = 3, failure = 'unparsed' WHERE ordinal IN (1, 2)")
    await scene.run_sql(database, "UPDATE samples SET state = 3, failure = 'truncated' WHERE ordinal = 3")
    counts = (await api.get(job["links"]["self"]))["request_counts"]
    assert (counts["failed"], counts["unparsed"]) == (3, 2)


async def test_a_poller_that_has_seen_everything_gets_304(api: Api, database: Database) -> None:
    job = await api.job()
    path = f"/v1/jobs/{job['id']}"
    first = await api.http.get(path)
    seen = {"If-None-Match": first.headers["etag"]}
    again = await api.http.get(path, headers=seen)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await scene.advance(database)
    assert (await api.http.get(path, headers=seen)).status_code == 200
    page = await api.http.get("/v1/jobs")
    assert (await api.http.get("/v1/jobs", headers={"If-None-Match": page.headers["etag"]})).status_code == 304


async def test_a_change_needs_the_version_that_was_seen(api: Api, database: Database) -> None:
    job = await api.job()
    path, body = f"/v1/jobs/{job['id']}", {"name": "second", "rank": 7, "metadata": {"run": "8"}}
    seen = (await api.http.get(path)).headers["etag"]
    await scene.advance(database)
    assert (await api.http.patch(path, json=body)).status_code == 428
    assert (await api.http.patch(path, json=body, headers={"If-Match": "3"})).status_code == 400
    changed = await api.http.patch(path, json=body, headers={"If-Match": seen})
    assert (changed.status_code, changed.json()["version"]) == (200, job["version"] + 1)
    assert {field: changed.json()[field] for field in body} == body
    stale = await api.http.patch(path, json={"rank": 1}, headers={"If-Match": seen})
    assert (stale.status_code, stale.json()["type"]) == (412, "urn:mathrag:precondition_failed")
    anyway = await api.http.patch(path, json={"rank": 1}, headers={"If-Match": "*"})
    assert (anyway.json()["rank"], anyway.json()["name"]) == (1, "second")
    assert (await api.http.get(path)).headers["etag"] == anyway.headers["etag"]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
async def test_control_may_ask_for_the_version_that_was_seen(api: Api, verb: str) -> None:
    job = await api.job()
    path = f"/v1/jobs/{job['id']}/{verb}"
    for tag, status in (('"99-0000000000000000"', 412), ('W/"x"', 412), ("x", 400), ("*", 202)):
        assert (await api.http.post(path, headers={"If-Match": tag})).status_code == status
    assert (await api.http.post(path)).status_code == 202


async def test_what_a_job_cannot_become_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    job = await api.job()
    for body, field in (
        ({"name": "a b"}, "name"),
        ({"rank": 1 << 40}, "rank"),
        ({"metadata": {"k": "v\0"}}, "metadata.k"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"state": "paused"}, "state"),
    ):
        with subtests.test(body=body):
            reply = await api.http.patch(f"/v1/jobs/{job['id']}", json=body, headers={"If-Match": "*"})
            assert (reply.status_code, reply.json()["field"].startswith(field)) == (422, True)
            assert (await api.get(job["links"]["self"]))["version"] == job["version"]


async def test_a_job_is_paused_and_goes_on(api: Api, database: Database) -> None:
    job = await api.job()
    path = f"/v1/jobs/{job['id']}"
    for verb, state in (("pause", "paused"), ("pause", "paused"), ("resume", "running"), ("resume", "running")):
        reply = await api.http.post(f"{path}/{verb}")
        assert (reply.status_code, reply.json()["state"]) == (202, state)
    assert api.woken == 5
    await finished(database)
    assert (await api.get(path))["state"] == "completed"
    for verb in ("pause", "resume", "cancel"):
        refused = await api.http.post(f"{path}/{verb}")
        assert (refused.status_code, "has completed" in refused.json()["detail"]) == (409, True)


async def test_a_finalizing_job_can_be_neither_paused_nor_cancelled(api: Api, database: Database) -> None:
    job = await api.job()
    await scene.run_sql(database, "UPDATE jobs SET state = 'finalizing', version = version + 1")
    for verb in ("pause", "resume", "cancel"):
        refused = await api.http.post(f"/v1/jobs/{job['id']}/{verb}")
        assert (refused.status_code, "finalizing" in refused.json()["detail"]) == (409, True)


BAD_REFERENCES = ["%00", "a%00b", "%ff", "x" * 5000, "%F0%9F%98%80", "1" * 400, "' OR 1=1"]


async def test_no_reference_is_an_error_of_ours(api: Api, subtests: pytest.Subtests) -> None:
    for reference in BAD_REFERENCES:
        with subtests.test(reference=reference):
            for path in ("", "/results", "/samples", "/events", "/samples/0", "/report"):
                assert (await api.http.get(f"/v1/jobs/{reference}{path}")).status_code == 404
            assert (await api.http.post(f"/v1/jobs/{reference}/pause")).status_code == 404


async def test_no_query_is_an_error_of_ours(api: Api, subtests: pytest.Subtests) -> None:
    await api.job()
    for path, status in (
        ("?limit=99999999999999999999999", 422),
        ("?limit=x", 422),
        ("?name=%00", 422),
        ("?dataset=a%20b", 422),
        ("?state=lost", 422),
        ("?colour=red", 422),
        ("?cursor=%00", 400),
        ("/a-job/samples/99999999999999999999", 422),
        ("/a-job/samples/0?repeat=99999999999", 422),
        ("/a-job/samples?cursor=%F0%9F%98%80", 400),
        ("/a-job/results?format=xml", 422),
    ):
        with subtests.test(path=path):
            assert (await api.http.get(f"/v1/jobs{path}")).status_code == status


async def test_no_body_is_an_error_of_ours(api: Api, subtests: pytest.Subtests) -> None:
    for change in (
        {"dataset": "\0"},
        {"corpus": "a\0"},
        {"pipeline": "\0"},
        {"models": {"judge": "\0"}},
        {"models": {"\0": "a-judge"}},
        {"name": "\ud800"},
        {"metadata": {"\ud800": ""}},
        {"params": {"anchors": {"a": "\ud800"}}},
        {"params": {"seed": 1 << 80}},
        {"repeats": 1e300},
    ):
        with subtests.test(change=change):
            body = {"name": "mine", "dataset": "items", "corpus": "docs", "pipeline": "closed-book", **change}
            reply = await api.http.post(
                "/v1/jobs", content=json.dumps(body), headers={"content-type": "application/json"}
            )
            assert reply.status_code in (404, 422), reply.text


async def test_a_cancelled_job_ends_and_stays_cancelled(api: Api) -> None:
    job = await api.job()
    for _ in range(2):
        reply = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
        assert (reply.status_code, reply.json()["state"]) == (202, "cancelling")
    assert reply.json()["request_counts"]["cancelled"] == 5
    assert api.woken == 3


async def test_a_job_that_has_completed_cannot_be_cancelled(api: Api, database: Database) -> None:
    job = await api.job()
    await finished(database)
    reply = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert (reply.status_code, "has completed" in reply.json()["detail"]) == (409, True)


async def test_stages_count_distinct_calls_by_role(api: Api, database: Database) -> None:
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
    pipelines = {pipeline["name"]: pipeline for pipeline in await api.get("/v1/pipelines")}
    assert pipelines["mathrag-gate"]["calibrated"]
    assert not pipelines["dense"]["calibrated"]
    assert all(pipeline["summary"] for pipeline in pipelines.values())
    known = {model["name"]: model for model in await api.get("/v1/models")}
    assert not known["world-judge"]["registered"]
    assert not {"url", "api_key_env", "path"} & known["world-judge"].keys()


async def test_readiness_names_what_is_missing_and_the_fix(api: Api, redis_url: str) -> None:
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
    async with database.transaction() as connection:
        epoch = await residencies.insert_wanted(connection, "cpu:0", 0, [1], "first")
        assert epoch is not None
        await residencies.set_state(connection, epoch, "quarantined", datetime.now(UTC), "load: no file")
    checks = {check["name"]: check for check in (await api.http.get("/readyz")).json()["checks"]}
    assert checks["device"]["detail"].startswith("cpu:0 is quarantined: load: no file; tried again in ")
    assert "mathrag gpu retry" in checks["device"]["fix"]


async def test_a_model_that_no_guard_serves_any_more_is_missed_before_a_job_asks_for_it(
    api: Api, database: Database
) -> None:
    async with database.transaction() as connection:
        await pins.retire(connection, "cpu:0")
    checks = {check["name"]: check for check in (await api.http.get("/readyz")).json()["checks"]}
    assert checks["models"]["detail"] == "no guard serves a-generator, a-judge"
    refused = await api.http.post("/v1/jobs", json={"name": "j", "dataset": "items", "pipeline": "closed-book"})
    assert refused.status_code == 422
    assert "no guard serves a model" in refused.json()["detail"]


async def test_a_job_whose_model_nobody_serves_any_more_says_so(api: Api, database: Database) -> None:
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book"}
    job = (await api.http.post("/v1/jobs", json=body)).json()["id"]
    await scene.advance(database)
    assert "unserved" not in await api.get(f"/v1/jobs/{job}")
    await scene.run_sql(database, "UPDATE models SET served = false WHERE name IN ('a-generator', 'a-judge')")
    assert (await api.get(f"/v1/jobs/{job}"))["unserved"] == ["a-generator"]
    await scene.run_sql(database, "UPDATE models SET served = true")
    assert "unserved" not in await api.get(f"/v1/jobs/{job}")


async def test_health_asks_nobody(api: Api) -> None:
    api.other = lambda _: httpx2.Response(500)
    assert await api.get("/healthz") == {"status": "ok"}
    assert api.asked == []


# Jobs of many samples are cancelled, ended and advanced in batches, and whatever else there is goes on between.

ENDED = "SELECT count(*) FROM samples WHERE job_id = 1 AND state = 4"


async def drained(database: Database, jobs: int = 2) -> None:
    await furnish(database, items=3)
    await without_gold(database)
    for _ in range(jobs):
        await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim_some(database)
    await answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"] * jobs


@pytest.mark.fault("C6")
async def test_a_large_job_is_cancelled_in_batches_and_a_small_one_ends_between_them(
    database: Database, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen.describe("cancel of 60 samples in batches of 10, finalised in batches of 20, next to an ended job of 5")
    monkeypatch.setattr(lifecycle, "CANCELLED_AT_ONCE", 10)
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", 20)
    await furnish(database, items=5)
    await without_gold(database)
    large = await submit_job(database, "closed-book", repeats=12)
    await advance(database)
    await submit_job(database, "closed-book")
    await run_sql(database, "UPDATE samples SET state = 3, failure = 'refused', ended_at = now() WHERE job_id = 2")
    await cancel(database, large)
    assert (await job_states(database), await scalar(database, ENDED)) == (["cancelling", "running"], 10)
    one = Finaliser(database)
    assert await one.run_once() == 0.0, "there is more to do at once"
    assert (await job_states(database), await scalar(database, ENDED)) == (["cancelling", "completed"], 20)
    passes = 1
    while await one.run_once() == 0.0:
        passes += 1
    assert await job_states(database) == ["cancelled", "completed"]
    assert await scalar(database, "SELECT count(*) FROM records WHERE job_id = 1") == 60
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await check(database, large) == []
    seen.figure("passes of the finaliser", passes)
    seen.note("the job that had ended is completed by the first pass, while the large one is still being cancelled")


@pytest.mark.parametrize("settings", ["", "SET enable_seqscan = off; SET enable_hashjoin = off"])
async def test_the_next_samples_to_chain_are_read_along_an_index(database: Database, settings: str) -> None:
    await furnish(database, items=100)
    await submit_job(database, "closed-book", repeats=20)
    await run_sql(database, "UPDATE samples SET state = 4, ended_at = now()")
    generic = re.sub(r":(job|ordinal|repeat|n)\b", lambda found: PLACES[found[1]], SAMPLES.text)
    async with database.engine.connect() as connection:
        connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
        for each in filter(None, ["SET plan_cache_mode = force_generic_plan", *settings.split("; ")]):
            await connection.execute(text(each))
        await connection.exec_driver_sql(f"PREPARE seal (bigint, integer, integer, bigint) AS {generic}")
        plan = "\n".join((await connection.exec_driver_sql("EXPLAIN EXECUTE seal(1, 5, 0, 200)")).scalars())
        await connection.exec_driver_sql("DEALLOCATE seal")
        await connection.exec_driver_sql("RESET ALL")  # the connection is used again
    assert re.search(rf"CTE batch\s+-> +Limit .*\s+-> +Index Scan using {KEY} on samples", plan), plan


KEY = "samples_job_id_kind_ordinal_repeat_key"
PLACES = {"job": "$1", "ordinal": "$2", "repeat": "$3", "n": "$4"}


async def test_a_job_that_cannot_be_finalised_holds_up_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    monkeypatch.setattr(routines, "time", hands)
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 9 WHERE job_id = 1 AND ordinal = 1")
    one = Finaliser(database)
    await one.run_once()
    assert await job_states(database) == ["finalizing", "completed"]
    reason, version = (await rows(database, "SELECT reason, version FROM jobs WHERE id = 1"))[0]
    assert str(reason).startswith("cannot be brought to its end, tried again: ValueError")
    await run_sql(database, "UPDATE samples SET state = 2 WHERE job_id = 1 AND ordinal = 1")
    hands.now += POSTPONED_S[0] - 0.1
    await one.run_once()
    assert await rows(database, "SELECT state, version FROM jobs WHERE id = 1") == [("finalizing", version)]
    hands.now += 0.2
    await one.run_once()
    assert await rows(database, "SELECT state, reason FROM jobs WHERE id = 1") == [("completed", None)]


async def test_a_worker_that_meets_such_a_job_goes_on(database: Database) -> None:
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 9 WHERE job_id = 1 AND ordinal = 1")
    assert await lifecycle.finish_due_jobs(database) == [2]
    assert await job_states(database) == ["finalizing", "completed"]


async def test_a_worker_leaves_large_jobs_to_the_orchestrator(database: Database) -> None:
    await drained(database, jobs=1)
    assert await lifecycle.finish_due_jobs(database, most=2) == []
    assert await job_states(database) == ["running"]
    assert await lifecycle.finish_due_jobs(database, most=3) == [1]


async def test_calls_are_claimed_while_the_samples_of_a_large_job_are_advanced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_runtime, "ADVANCE_FOR_S", 0.0)
    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    await advance(database)
    executor = ScriptedExecutor()
    busy = worker(database, Lane.GENERATE, executor)

    class Endless:
        async def advance(self, _limit: int) -> AdvanceResult:
            return NOTHING if executor.ran else AdvanceResult(200, frozenset(), frozenset())

    busy.advancer = Endless()  # type: ignore[assignment]
    with anyio.fail_after(60):
        await busy.drain()
    assert len(executor.ran) == 1


# A job with a limit asks the first items of its dataset, and says so wherever its figures are quoted.

CALIBRATED = """
    SELECT DISTINCT convert_from(c.request, 'UTF8') FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id WHERE s.kind = 'prepare' AND c.role = 'retrieve'"""


async def test_the_first_items_are_asked_as_often_as_there_are_repeats(api: Api, database: Database) -> None:
    job = await api.job(limit=2, repeats=2)
    assert (job["limit"], job["request_counts"]["total"]) == (2, 4)
    await finished(database)
    asked = await scene.rows(database, "SELECT ordinal, repeat FROM samples ORDER BY ordinal, repeat")
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 1)]
    report = await api.get("/v1/jobs/a-job/report")
    assert report["settings"]["limit"] == 2
    assert any("first 2 items of items" in note for note in report["notes"])
    assert (await api.get("/v1/jobs/a-job/audit"))["clean"]


async def test_a_limit_beyond_the_end_asks_all_and_none_is_not_recorded(api: Api, database: Database) -> None:
    assert (await api.job(limit=99))["request_counts"]["total"] == 5
    plain = await api.job()
    assert ("limit" in plain, plain["request_counts"]["total"]) == (False, 5)
    await finished(database)
    assert await scene.rows(database, "SELECT code ? 'limit' FROM jobs ORDER BY id") == [(True,), (False,)]
    assert (await api.get(f"/v1/jobs/{plain['id']}/audit"))["clean"]


async def test_a_calibration_uses_only_the_items_that_are_asked(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", limit=2, params={"gate": {"tau": 1.0, "items": 5, "min_pairs": 2}})
    await scene.drain(database, scene.ScriptedExecutor(scene.by_rule))
    questions = await scene.rows(database, CALIBRATED)
    assert len(questions) >= 2
    assert all("0 plus 0" in str(row[0]) or "1 plus 1" in str(row[0]) for row in questions)


async def test_a_requeued_job_keeps_its_limit(api: Api, database: Database) -> None:
    job = await api.job(limit=3)
    await finished(database)
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    assert (new["limit"], new["request_counts"]["total"]) == (3, 3)


async def test_samples_beyond_the_limit_are_found_by_the_audit(api: Api, database: Database) -> None:
    await api.job(limit=2)
    await finished(database)
    await scene.run_sql(
        database,
        "INSERT INTO samples (job_id, kind, ordinal, repeat, state, ended_at)"
        " SELECT id, 'item', 4, 0, 2, now() FROM jobs",
    )
    found = await api.get("/v1/jobs/a-job/audit")
    assert "I12" in {violation["invariant"] for violation in found["violations"]}


@pytest.mark.parametrize("limit", [0, -1, 1 << 31, "2", 1.5])
async def test_a_limit_that_is_no_number_of_items_is_refused(api: Api, limit: object) -> None:
    body = {"name": "a-job", "dataset": "items", "pipeline": "closed-book", "limit": limit}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "limit")


# The same request again is the same job: later, at once, and from many processes.

BODY = {"name": "a-job", "dataset": "items", "pipeline": "closed-book"}
JOBS = "SELECT count(*) FROM jobs"


async def post(api: Api, key: str | bytes | None, path: str = "/v1/jobs", body: Any = BODY) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.http.post(path, json=body, headers=headers)  # type: ignore[arg-type]


async def test_the_same_request_again_is_answered_with_the_same_job(api: Api, database: Database) -> None:
    first = await post(api, "k-1")
    assert (first.status_code, "idempotency-replayed" in first.headers) == (202, False)
    await finished(database)
    again = await post(api, "k-1", body={**BODY, "repeats": 1, "params": {}})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert (again.json()["id"], again.json()["state"]) == (first.json()["id"], "completed")
    assert again.headers["location"] == first.headers["location"]
    assert await scene.scalar(database, JOBS) == 1


async def test_the_key_of_another_request_is_refused(api: Api, database: Database) -> None:
    await post(api, "k-1")
    refused = await post(api, "k-1", body={**BODY, "repeats": 2})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:mathrag:idempotency_mismatch")
    assert "another request" in refused.json()["detail"]
    assert await scene.scalar(database, JOBS) == 1


async def test_without_a_key_every_request_is_a_new_job(api: Api, database: Database) -> None:
    for number, key in enumerate((None, None, "a", "b")):
        assert (await post(api, key, body={**BODY, "name": f"job-{number}"})).status_code == 202
    assert await scene.scalar(database, JOBS) == 4


@pytest.mark.parametrize("key", ["", "   ", "x" * 256, b"a\x01b", b"\x7f", b"\x80"])
async def test_a_key_that_is_none_is_refused(api: Api, key: str | bytes) -> None:
    refused = await post(api, key)
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:mathrag:bad_request")


@pytest.mark.parametrize("key", ["x" * 255, "7f2c 1", "'; --", "é".encode("latin-1")])
async def test_any_other_text_is_a_key(api: Api, key: str | bytes) -> None:
    first, again = await post(api, key), await post(api, key)
    assert first.json()["id"] == again.json()["id"]


async def test_an_operator_may_ask_for_keys(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    settings: Settings = scene.SETTINGS.model_copy(update={"require_idempotency_key": True})
    async with serving(database, redis_url, settings) as api:
        refused = await post(api, None)
        assert (refused.status_code, "Idempotency-Key" in refused.json()["detail"]) == (400, True)
        assert (await post(api, "k")).status_code == 202


async def test_a_request_that_failed_leaves_its_key_free(api: Api, database: Database) -> None:
    assert (await post(api, "k", body={**BODY, "dataset": "none"})).status_code == 404
    assert (await post(api, "k")).status_code == 202
    assert await scene.scalar(database, JOBS) == 1


async def test_old_keys_are_forgotten_when_new_ones_come(api: Api, database: Database) -> None:
    for key in ("old", "young"):
        await post(api, key, body={**BODY, "name": key})
    await scene.run_sql(database, "UPDATE idempotency SET created_at = now() - interval '25 hours' WHERE key = 'old'")
    await post(api, "new", body={**BODY, "name": "new"})
    assert await scene.rows(database, "SELECT key FROM idempotency ORDER BY key") == [("new",), ("young",)]
    again = await post(api, "old", body={**BODY, "name": "another"})
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (202, None)
    assert await scene.scalar(database, JOBS) == 4


def keyed(key: str) -> KeyedRequest:
    return KeyedRequest(operation="test", key=key, body_hash=b"x" * 32)


async def submitted(database: Database, key: str) -> Accepted:
    submission = Submission(name="a-job", dataset="items", pipeline="closed-book")
    return await submit_once(database, scene.SETTINGS, submission, keyed(key))


async def test_a_second_first_use_is_told_to_come_back(database: Database) -> None:
    await scene.furnish(database)
    async with scene.processes(database, 2) as [one, two]:
        held = scene.HeldDatabase(one)
        first = asyncio.create_task(submitted(held, "k"))
        await held.reached.wait()
        with pytest.raises(InProgress, match="being used right now"):
            await submitted(two, "k")
        held.go.set()
        made = await first
        assert await submitted(two, "k") == Accepted(made.job, replayed=True)
    assert await scene.scalar(database, JOBS) == 1


async def test_many_at_once_make_one_job(database: Database) -> None:
    await scene.furnish(database)

    async def persistent(process: Database) -> Accepted:
        while True:
            try:
                return await submitted(process, "k")
            except InProgress:
                await asyncio.sleep(0)

    async with scene.processes(database, 6) as others:
        done = await asyncio.gather(*(persistent(process) for process in others * 3))
    assert Counter(each.replayed for each in done) == {False: 1, True: 17}
    assert len({each.job for each in done}) == await scene.scalar(database, JOBS) == 1


async def test_the_answer_to_a_second_first_use_says_when_to_come_back(api: Api, database: Database) -> None:
    async with scene.processes(database, 1) as [other]:
        held = scene.HeldDatabase(other)
        submission = Submission(name="a-job", dataset="items", pipeline="closed-book")
        request = KeyedRequest(operation="POST /v1/jobs", key="k", body_hash=b"x" * 32)
        first = asyncio.create_task(submit_once(held, scene.SETTINGS, submission, request))
        await held.reached.wait()
        reply = await post(api, "k")
        held.go.set()
        await first
    assert (reply.status_code, reply.headers["retry-after"]) == (409, "1")
    assert reply.json()["type"] == "urn:mathrag:in_progress"


async def test_a_requeue_may_be_repeated_too(api: Api, database: Database) -> None:
    jobs = [(await api.job(name=name))["id"] for name in ("one", "two")]
    await finished(database)
    first, again, other = [await post(api, "k", f"/v1/jobs/{job}/requeue", None) for job in (jobs[0], *jobs)]
    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 422)
    assert again.json()["id"] == first.json()["id"]
    assert uuid.UUID(first.json()["requeued_from"]) == uuid.UUID(jobs[0])
    assert await scene.scalar(database, JOBS) == 3


# The judge is asked again, and the report says whether it repeated itself.


async def test_a_calibration_that_rates_twice_says_how_repeatable_the_judge_is(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params={"gate": {"min_pairs": 5, "tau": -1, "repeats": 2}})
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    found = report["repeatability"]
    asked = report["gate"]["asked"]
    assert (found["documents"], found["draws"], found["temperature"], found["unrated"]) == (asked, 2, 0.1, 0)
    assert sum(map(sum, found["table"])) == asked
    assert found["same"]["value"] == found["agreement"] == sum(found["table"][n][n] for n in range(5)) / asked
    again = await api.job("mathrag-gate", name="once", params={"gate": {"min_pairs": 5, "tau": -1}})
    await finished(database)
    once = await api.get(f"/v1/jobs/{again['id']}/report")
    assert once["repeatability"] is None
    assert (once["gate"], once["calls_made"]["judge"]) == (report["gate"], 0)


async def test_a_job_that_computes_every_repeat_anew_compares_its_ratings(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", repeats=3, reuse="none", params={"quality": "judge"})
    await finished(database)
    found = (await api.get(f"/v1/jobs/{job['id']}/report"))["repeatability"]
    documents = await scene.scalar(
        database,
        "SELECT count(DISTINCT convert_from(request, 'UTF8')::jsonb #>> '{values,document}') FROM calls"
        " WHERE role = 'judge'",
    )
    assert (found["documents"], found["draws"]) == (documents, 3)
    assert sum(map(sum, found["table"])) == 3 * found["documents"]


async def test_a_judge_that_every_repeat_asks_anew_is_compared_and_all_else_is_shared(
    api: Api, database: Database
) -> None:
    params = {"quality": "judge", "judge": {"per_repeat": True}}
    job = await api.job("mathrag-gate", repeats=3, params=params)
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    found, made = report["repeatability"], report["calls_made"]
    assert (found["draws"], made["judge"], made["retrieve"]) == (3, 3 * found["documents"], 10)
    assert report["settings"]["drawn"] == ["judge"]
    assert any("the judge model, asked again in each" in note for note in report["notes"])
    once = await api.job("mathrag-gate", name="once", params={"quality": "judge"})
    await finished(database)
    assert (await api.get(f"/v1/jobs/{once['id']}/report"))["calls_made"]["judge"] == 0
