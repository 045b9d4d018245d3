"""What one key may take of the service, how keys share it, and what each is shown to use."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import httpx2
import pytest

from mathrag.errors import Invalid, NotFound
from shared.runtime.lifecycle import cancel_all
from shared.runtime.queue import AnsweredCall, Claims, Receipt
from shared.runtime.shares import Share, load_shares
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
        assert await scene.scalar(furnished, "SELECT max(place & 262143) FROM queue") == 5040 * latest
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


# Weights.


async def weigh(database: Database, **weights: int) -> None:
    for name, weight in weights.items():
        await keys.create_key(database, "local", name, {Scope.SUBMIT}, weight=weight)


async def claim_in_order(database: Database) -> list[str]:
    """The keys whose calls are claimed, one call after the other."""
    served = []
    while taken := await scene.claim(database, 1):
        [(owner, _)] = await scene.rows(database, OWNERS, calls=[call.id for call in taken.calls])
        served.append(owner)
    return served


def queue_fairly(weights: dict[str, int], jobs: Iterable[tuple[str, int]]) -> list[tuple[Fraction, str]]:
    """Start-time fair queueing of packets of length 1 that arrive before any is served: Goyal, Vin and Cheng (1996),
    equations 1 and 2, where the virtual time is 0."""
    finish: defaultdict[str, Fraction] = defaultdict(Fraction)
    tagged = []
    for key, samples in jobs:
        for _ in range(samples):
            tagged.append((finish[key], key))
            finish[key] += Fraction(1, weights[key])
    return sorted(tagged)


async def test_a_key_of_weight_three_is_served_three_samples_for_one_of_the_others(furnished: Database) -> None:
    await weigh(furnished, ann=1, bob=3)
    await submit(furnished, "ann", 10)
    await submit(furnished, "bob", 30)
    served = await claim_in_order(furnished)
    assert Counter(served) == {"ann": 10, "bob": 30}
    for first in range(40):
        for end in range(first + 1, 41):
            assert abs(served[first:end].count("ann") - (end - first) / 4) < 1, (first, end)


@pytest.mark.parametrize("seed", range(3))
async def test_calls_are_claimed_as_start_time_fair_queueing_orders_them(furnished: Database, seed: int) -> None:
    rng = Random(seed)  # noqa: S311
    weights = {name: rng.randint(1, 10) for name in ("ann", "bob", "cal")}
    # Most jobs have one sample, as chats have.
    jobs = [(rng.choice(list(weights)), rng.choice((1, 1, 1, 2, 5))) for _ in range(15)]
    await weigh(furnished, **weights)
    for name, samples in jobs:
        await submit(furnished, name, samples)
    queued = await scene.rows(
        furnished,
        "SELECT q.place, j.code ->> 'submitted_by' FROM queue q JOIN steps t USING (call_id)"
        " JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id ORDER BY 1, 2",
    )
    assert [name for _, name in queued] == [name for _, name in queue_fairly(weights, jobs)]


async def test_samples_of_the_largest_weight_keep_their_order(furnished: Database) -> None:
    await weigh(furnished, ann=keys.MAX_WEIGHT)
    await submit(furnished, "ann", 30)
    places = "SELECT count(DISTINCT place), array_agg(s.ordinal ORDER BY place) FROM queue JOIN steps USING (call_id)"
    found = await scene.rows(furnished, f"{places} JOIN samples s ON s.id = sample_id")
    assert found == [(30, list(range(30)))]


async def test_a_key_that_comes_later_catches_up_to_its_share_and_no_further(furnished: Database) -> None:
    await weigh(furnished, ann=1, bob=3)
    await submit(furnished, "ann", 20)
    assert await serve(furnished, 4) == {"ann": 4}
    await submit(furnished, "bob", 30)
    assert await serve(furnished, 12) == {"bob": 12}
    for _ in range(3):
        assert await serve(furnished, 4) == {"ann": 1, "bob": 3}


async def test_a_new_weight_is_that_of_later_jobs(furnished: Database) -> None:
    await weigh(furnished, ann=1, bob=1)
    await submit(furnished, "ann", 20)
    await submit(furnished, "bob", 4)
    assert await keys.change_key(furnished, "local", "bob", 3) == (3, None)
    await submit(furnished, "bob", 12)
    assert await serve(furnished, 8) == {"ann": 4, "bob": 4}
    assert await serve(furnished, 16) == {"ann": 4, "bob": 12}


async def test_a_smaller_rank_goes_before_every_weight(furnished: Database) -> None:
    await weigh(furnished, ann=1, bob=100)
    await submit(furnished, "bob", 20)
    await submit(furnished, "ann", 10, rank=1)
    assert await serve(furnished, 10) == {"ann": 10}


async def test_a_rotated_key_keeps_weight_and_project_and_all_its_valid_keys_change(
    furnished: Database,
) -> None:
    await keys.create_key(furnished, "local", "ann", {Scope.SUBMIT}, weight=3, project="thesis")
    await keys.rotate_key(furnished, "local", "ann", timedelta(hours=1))
    assert [(key.weight, key.project) for key in await keys.list_keys(furnished)] == [(3, "thesis")] * 2
    assert await keys.change_key(furnished, "local", "ann", project=None) == (3, None)
    assert await keys.change_key(furnished, "local", "ann", 5, "course") == (5, "course")
    assert {(key.weight, key.project) for key in await keys.list_keys(furnished)} == {(5, "course")}
    assert {key.project for key in (await keys.load_valid_keys(furnished)).values()} == {"course"}
    journal = "SELECT detail ->> 'weight', detail ->> 'project' FROM operations WHERE action = 'key set' ORDER BY id"
    assert await scene.rows(furnished, journal) == [("3", None), ("5", "course")]


@pytest.mark.parametrize(
    ("change", "problem"), [({"weight": 0}, "weight"), ({"weight": 101}, "weight"), ({"project": "a b"}, "project")]
)
async def test_a_wrong_weight_or_project_is_refused(furnished: Database, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(Invalid, match=f"`{problem}`"):
        await keys.create_key(furnished, "local", "ann", {Scope.SUBMIT}, **change)
    await weigh(furnished, ann=1)
    with pytest.raises(Invalid, match=f"`{problem}`"):
        await keys.change_key(furnished, "local", "ann", **change)
    with pytest.raises(NotFound):
        await keys.change_key(furnished, "local", "bob", 2)


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


async def work(database: Database, executions: Sequence[tuple[int, int]]) -> None:
    """Answer a call for each pair: when it ended, in seconds before now, and how long it took."""
    taken = await scene.claim_some(database, len(executions))
    now = datetime.now(UTC)
    answers = []
    for call, (before, took) in zip(taken.calls, executions, strict=True):
        end = now - timedelta(seconds=before)
        receipt = Receipt(started_at=end - timedelta(seconds=took), ended_at=end, epoch=1, device="cpu:0")
        answers.append(AnsweredCall(call_id=call.id, reply=scene.answered(call).reply, receipt=receipt))
    await Claims(database, "worker-1", 60.0).answer(taken.token, answers)


async def test_a_key_that_has_used_its_gpu_time_of_the_day_submits_no_more(furnished: Database, redis_url: str) -> None:
    await submit(furnished, "ann", 3)
    # Two of 200 s each that overlap by 100 s are 300 s. The last one is of the day before yesterday.
    await work(furnished, [(0, 200), (100, 200), (2 * 24 * 3600, 200)])
    generous = await post(furnished, redis_url, Limits(gpu_s_per_key=301), ["ann"])
    assert [reply.status_code for reply in generous] == [202]
    await scene.run_sql(furnished, "UPDATE api_keys SET revoked_at = now()")
    strict = await post(furnished, redis_url, Limits(gpu_s_per_key=300), ["ann", "bob"])
    assert [reply.status_code for reply in strict] == [429, 202]
    assert "have used 300 s of GPU time in the last 24 hours" in strict[0].json()["detail"]


# What keys are shown.


async def test_a_share_counts_unfinished_and_ended_samples_and_gpu_time(furnished: Database) -> None:
    await keys.create_key(furnished, "local", "ann", {Scope.SUBMIT}, weight=2, project="thesis")
    await weigh(furnished, bob=1)
    await submit(furnished, "ann", 3)
    await work(furnished, [(0, 200), (100, 200)])
    await scene.drain(furnished, scene.ScriptedExecutor())
    await submit(furnished, "bob", 4)
    async with furnished.transaction() as connection:
        found = await load_shares(connection, Limits(samples_per_key=9))
        own = await load_shares(connection, Limits(), "bob")
    bob = Share(key="bob", weight=1, project=None, live_samples=4, ended_samples=0, gpu_s=0, storage_mib=0)
    ann = Share(key="ann", weight=2, project="thesis", live_samples=0, ended_samples=3, gpu_s=300, storage_mib=0)
    assert (found.samples_per_key, found.gpu_s_per_key, found.keys) == (9, 0, [ann, bob])
    assert own.keys == [bob]


async def test_only_operators_see_the_shares_of_others(furnished: Database, redis_url: str) -> None:
    made = {
        name: await keys.create_key(furnished, "local", name, {scope})
        for name, scope in (("ann", Scope.READ), ("bob", Scope.OPERATE))
    }
    settings = scene.SETTINGS.model_copy(update={"access": Access(keys="required")})
    async with serving(furnished, redis_url, settings) as api:
        for name, seen in (("ann", ["ann"]), ("bob", ["ann", "bob"])):
            reply = await api.http.get("/v1/shares", headers={"authorization": f"Bearer {made[name]}"})
            assert [each["key"] for each in reply.json()["keys"]] == seen
