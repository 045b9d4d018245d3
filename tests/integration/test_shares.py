"""What one key may take of the service, and how keys share it."""

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from shared.runtime.lifecycle import cancel_all
from shared.runtime.queue import AnsweredCall, Claims, Receipt
from shared.settings import Access, Limits
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import serving

pytestmark = pytest.mark.anyio

OWNERS = """
    SELECT j.code ->> 'submitted_by' AS key, count(*) FROM steps t JOIN samples s ON s.id = t.sample_id
    JOIN jobs j ON j.id = s.job_id WHERE t.call_id = ANY(:calls) GROUP BY key"""


async def submit(database: Database, key: str | None, items: int, **fields: object) -> uuid.UUID:
    job = await scene.submit_job(database, "closed-book", limit=items, reuse="none", submitted_by=key, **fields)
    await scene.advance(database)
    return job


async def serve(database: Database, count: int) -> Counter[str | None]:
    taken = await scene.claim(database, count)
    assert taken is not None
    owners = await scene.rows(database, OWNERS, calls=[call.id for call in taken.calls])
    await scene.answer(database, taken)
    return Counter(dict(owners))  # type: ignore[arg-type]


@pytest.fixture
async def furnished(database: Database) -> Database:
    await scene.furnish(database, items=30)
    await scene.without_gold(database)
    return database


async def test_two_keys_are_served_in_turn_although_one_was_there_first(furnished: Database) -> None:
    await submit(furnished, "ann", 30)
    await submit(furnished, "bob", 10)
    assert await serve(furnished, 10) == {"ann": 5, "bob": 5}
    assert await serve(furnished, 10) == {"ann": 5, "bob": 5}
    assert await serve(furnished, 10) == {"ann": 10}


async def test_many_jobs_of_a_key_do_not_get_it_more_than_one_would(furnished: Database) -> None:
    for _ in range(5):
        await submit(furnished, "ann", 6)
    await submit(furnished, "bob", 6)
    assert await serve(furnished, 12) == {"ann": 6, "bob": 6}


async def test_a_key_that_was_served_already_waits_until_the_others_have_had_as_much(furnished: Database) -> None:
    await submit(furnished, "ann", 30)
    await submit(furnished, "bob", 5)
    assert await serve(furnished, 10) == {"ann": 5, "bob": 5}
    await submit(furnished, "bob", 5)
    await submit(furnished, "cal", 5)
    assert await serve(furnished, 5) == {"cal": 5}
    assert await serve(furnished, 10) == {"ann": 5, "bob": 5}


async def test_what_a_key_was_served_is_forgotten_once_nobody_waits(furnished: Database) -> None:
    first = await submit(furnished, "ann", 20)
    assert await serve(furnished, 20) == {"ann": 20}
    await cancel_all(furnished, [first])
    await scene.repair(furnished)
    assert await scene.scalar(furnished, "SELECT count(*) FROM jobs WHERE ended_at IS NULL") == 0
    await submit(furnished, "ann", 10)
    await submit(furnished, "bob", 10)
    assert await serve(furnished, 10) == {"ann": 5, "bob": 5}


async def test_a_smaller_rank_goes_before_every_turn(furnished: Database) -> None:
    await submit(furnished, "ann", 5)
    assert await serve(furnished, 5) == {"ann": 5}
    await submit(furnished, "ann", 20)
    await submit(furnished, "bob", 20)
    await submit(furnished, "ann", 10, rank=1)
    assert await serve(furnished, 10) == {"ann": 10}


async def test_a_call_that_two_keys_wait_for_has_the_earlier_turn(furnished: Database) -> None:
    for key, items, latest in (("ann", 10, 9), ("ann", 20, 29), ("bob", 20, 19)):
        await scene.submit_job(furnished, "closed-book", submitted_by=key, limit=items)
        await scene.advance(furnished)
        assert await scene.scalar(furnished, "SELECT max(place & 255) FROM queue") == latest
    assert await scene.scalar(furnished, "SELECT count(*) FROM queue") == 20


async def test_jobs_that_were_submitted_without_a_key_are_served_in_the_order_in_which_they_came(
    furnished: Database,
) -> None:
    first = await submit(furnished, None, 10)
    await submit(furnished, None, 10)
    taken = await scene.claim(furnished, 10)
    assert taken is not None
    asked = "SELECT DISTINCT CAST(j.public_id AS text) FROM steps t JOIN samples s ON s.id = t.sample_id"
    where = f"{asked} JOIN jobs j ON j.id = s.job_id WHERE t.call_id = ANY(:calls)"
    assert await scene.rows(furnished, where, calls=[call.id for call in taken.calls]) == [(str(first),)]


@pytest.mark.parametrize("order", [(None, "ann"), ("ann", None)])
async def test_jobs_without_a_key_share_as_if_they_had_one_more_key(
    furnished: Database, order: Sequence[str | None]
) -> None:
    for key in order:
        await submit(furnished, key, 20)
    assert await serve(furnished, 10) == {None: 5, "ann": 5}
    await submit(furnished, None, 5)
    assert await serve(furnished, 10) == {None: 5, "ann": 5}


async def test_a_job_of_an_earlier_release_shares_with_the_keys(furnished: Database) -> None:
    old = await scene.submit_job(furnished, "closed-book", limit=20, reuse="none")
    await scene.run_sql(furnished, "UPDATE jobs SET code = code - 'turn' WHERE public_id = :job", job=old)
    await scene.advance(furnished)
    await submit(furnished, "ann", 20)
    assert await serve(furnished, 10) == {None: 5, "ann": 5}


# Limits.


async def post(database: Database, redis_url: str, limits: Limits, asked: Sequence[str]) -> list[httpx2.Response]:
    settings = scene.SETTINGS.model_copy(update={"access": Access(keys="required"), "limits": limits})
    made = {name: await keys.create_key(database, "local", name, {Scope.SUBMIT}) for name in sorted(set(asked))}
    async with serving(database, redis_url, settings) as api:
        return [
            await api.http.post(
                "/v1/jobs",
                json={"name": f"j{number}", "dataset": "items", "pipeline": "closed-book", "limit": 5},
                headers={"authorization": f"Bearer {made[name]}"},
            )
            for number, name in enumerate(asked)
        ]


async def test_a_key_has_no_more_samples_in_live_jobs_than_the_operator_allows(
    furnished: Database, redis_url: str
) -> None:
    replies = await post(furnished, redis_url, Limits(samples_per_key=12), ["ann", "ann", "ann", "bob"])
    assert [reply.status_code for reply in replies] == [202, 202, 429, 202]
    problem = replies[2].json()["detail"]
    assert "the live jobs of the key 'ann' have 10 samples; 5 more are too many" in problem
    assert "`limits.samples_per_key` (12)" in problem


async def test_a_job_that_alone_has_more_samples_than_its_key_may_have_is_too_large(
    furnished: Database, redis_url: str
) -> None:
    [reply] = await post(furnished, redis_url, Limits(samples_per_key=4), ["ann"])
    assert reply.status_code == 413
    problem = reply.json()["detail"]
    assert "5 samples at once are more than `limits.samples_per_key` allows the key 'ann' (4)" in problem
    assert "fewer items" in reply.json()["hint"]


async def test_a_key_that_has_used_its_gpu_time_of_the_day_submits_no_more(furnished: Database, redis_url: str) -> None:
    await submit(furnished, "ann", 3)
    taken = await scene.claim(furnished, 3)
    assert taken is not None
    now = datetime.now(UTC)
    # Two of 200 s each that overlap by 100 s are 300 s. The last one is of the day before yesterday.
    ends = (now, now - timedelta(seconds=100), now - timedelta(days=2))
    answers = [
        AnsweredCall(
            call_id=call.id,
            reply=scene.answered(call).reply,
            receipt=Receipt(started_at=end - timedelta(seconds=200), ended_at=end, epoch=1, device="cpu:0"),
        )
        for call, end in zip(taken.calls, ends, strict=True)
    ]
    await Claims(furnished, "worker-1", 60.0).answer(taken.token, answers)
    generous = await post(furnished, redis_url, Limits(gpu_s_per_key=301), ["ann"])
    assert [reply.status_code for reply in generous] == [202]
    await scene.run_sql(furnished, "UPDATE api_keys SET revoked_at = now()")
    strict = await post(furnished, redis_url, Limits(gpu_s_per_key=300), ["ann", "bob"])
    assert [reply.status_code for reply in strict] == [429, 202]
    assert "have used 300 s of GPU time in the last 24 hours" in strict[0].json()["detail"]
