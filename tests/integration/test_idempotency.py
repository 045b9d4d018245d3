"""The same request again is the same job: later, at once, and from many processes."""

import asyncio
import uuid
from collections import Counter
from typing import Any

import httpx2
import pytest

from shared.errors import InProgress
from shared.runtime.submit import Submission, submit_once
from shared.settings import Settings
from shared.storage.database import Accepted, Database, KeyedRequest
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

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
