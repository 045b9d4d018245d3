"""Claims: who holds a call, what a late answer may still change, and how failures are charged."""

import asyncio
import uuid

import msgspec
import pytest

from shared.replies import Failure, FailureKind, Generated
from shared.runtime import advance as advance_runtime
from shared.runtime import queue
from shared.runtime.advance import Advancer
from shared.runtime.queue import BACKOFF_S, RETRIES, Claim, Claims, lapse_expired
from shared.storage.database import Database
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    answer,
    answered,
    claim,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    let_pauses_pass,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    submit_job,
    without_gold,
)

pytestmark = pytest.mark.anyio

BROKEN = Failure(kind=FailureKind.CONNECTION, detail="nobody listens")
FOREVER = 500.0


async def pending(database: Database, items: int = 1, **fields: object) -> None:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, "closed-book", **fields)
    await advance(database)


async def claimed(database: Database, limit: int = 100) -> Claim:
    taken = await claim(database, limit)
    assert taken is not None
    return taken


async def fail_for_good(database: Database) -> None:
    for _ in range(RETRIES):
        await let_pauses_pass(database)
        await answer(database, await claimed(database), BROKEN)


# The token.


async def test_a_frozen_workers_answer_changes_nothing_once_another_has_answered(database: Database) -> None:
    await pending(database)
    frozen = await claimed(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    second = await claimed(database)
    assert await answer(database, second, Generated(text="second")) == [second.calls[0].id]
    assert await answer(database, frozen, Generated(text="frozen")) == []
    assert await rows(database, "SELECT convert_from(reply, 'UTF8') FROM attempts WHERE accepted") == [
        ('{"type":"generated","text":"second"}',)
    ]


async def test_a_frozen_workers_answer_changes_nothing_while_another_computes(database: Database) -> None:
    await pending(database)
    frozen = await claimed(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    second = await claimed(database)
    assert await answer(database, frozen) == []
    assert await scalar(database, "SELECT token FROM queue") == second.token
    assert await sample_states(database) == [1]
    assert await answer(database, second) == [second.calls[0].id]


async def test_an_answer_after_the_lapse_is_discarded_although_nobody_has_claimed_since(database: Database) -> None:
    await pending(database)
    frozen = await claimed(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, frozen) == []
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 0
    assert await rows(database, "SELECT token, lapses FROM queue") == [(None, 1)]


async def test_an_expired_claim_that_nobody_has_charged_may_still_answer(database: Database) -> None:
    await pending(database)
    late = await claimed(database)
    await let_claims_expire(database)
    assert await answer(database, late) == [late.calls[0].id]
    assert await lapse_expired(database, "sweeper") == []
    assert await sample_states(database) == [0]


@pytest.mark.parametrize("reply", [Generated(text="again"), BROKEN])
async def test_answering_twice_counts_once(database: Database, reply: Generated | Failure) -> None:
    await pending(database)
    taken = await claimed(database)
    await answer(database, taken)
    assert await answer(database, taken, reply) == []
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


async def test_an_infrastructure_failure_under_a_lost_token_is_not_charged(database: Database) -> None:
    await pending(database)
    frozen = await claimed(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, frozen, BROKEN) == []
    assert await rows(database, "SELECT tries, not_before FROM queue") == [(0, None)]


async def test_a_renewed_claim_does_not_lapse(database: Database) -> None:
    await pending(database, items=2)
    taken = await claimed(database)
    await let_claims_expire(database)
    ids = [call.id for call in taken.calls]
    assert sorted(await Claims(database, "worker-1", FOREVER).renew(taken.token, ids[:1])) == ids[:1]
    await lapse_expired(database, "sweeper")
    assert await rows(database, "SELECT lapses, token FROM queue ORDER BY call_id") == [(0, taken.token), (1, None)]


async def test_a_foreign_token_renews_and_releases_nothing(database: Database) -> None:
    await pending(database)
    taken = await claimed(database)
    ids = [call.id for call in taken.calls]
    stranger, claims = uuid.uuid4(), Claims(database, "worker-2", FOREVER)
    assert await claims.renew(stranger, ids) == []
    await claims.release(stranger, ids)
    assert await scalar(database, "SELECT token FROM queue") == taken.token


async def test_a_released_call_is_not_charged_and_soon_claimable(database: Database) -> None:
    await pending(database)
    taken = await claimed(database)
    await Claims(database, "worker-1", FOREVER).release(taken.token, [taken.calls[0].id], pause_s=FOREVER)
    assert await rows(database, "SELECT token, claim_until, lapses, tries FROM queue") == [(None, None, 0, 0)]
    assert await claim(database) is None
    await let_pauses_pass(database)
    again = await claimed(database)
    assert again.calls == taken.calls
    assert await answer(database, taken) == []
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0


# The order.


async def test_smaller_ranks_are_claimed_first(database: Database) -> None:
    await furnish(database, items=2)
    await furnish_another(database)
    await submit_job(database, "closed-book", rank=100)
    await advance(database)
    await submit_job(database, "closed-book", dataset="others", rank=10)
    await advance(database)
    first = await claimed(database, 2)
    hurried = await rows(
        database,
        "SELECT t.call_id FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
        " WHERE j.rank = 10 ORDER BY 1",
    )
    assert [(call.id,) for call in first.calls] == hurried


async def furnish_another(database: Database) -> None:
    await run_sql(database, "INSERT INTO datasets (name, hash, items) VALUES ('others', 'others', 2)")
    await run_sql(
        database,
        "INSERT INTO items (dataset_id, ordinal, hash, question) SELECT d.id, i.ordinal, i.hash, 'Else: ' || i.question"
        " FROM items i, datasets d WHERE d.name = 'others'",
    )


async def test_calls_with_the_same_place_are_claimed_in_the_order_they_came(database: Database) -> None:
    await pending(database, items=4)
    await run_sql(database, "UPDATE queue SET place = 0")
    order = [call for (call,) in await rows(database, "SELECT call_id FROM queue ORDER BY seq")]
    first, second = await claimed(database, 2), await claimed(database, 2)
    assert [call.id for taken in (first, second) for call in taken.calls] == order


async def test_a_call_is_not_claimed_before_its_time(database: Database) -> None:
    await pending(database, items=2)
    later = await scalar(database, "SELECT max(call_id) FROM queue")
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE call_id = :c", c=later)
    taken = await claimed(database)
    assert len(taken.calls) == 1
    assert taken.calls[0].id != later


@pytest.mark.parametrize("column", ["claim_until", "not_before"])
async def test_nobody_waits_until_a_clock_that_went_back_has_caught_up(database: Database, column: str) -> None:
    await pending(database)
    if column == "claim_until":
        await claimed(database)
    await run_sql(database, f"UPDATE queue SET {column} = now() + interval '1 hour'")  # noqa: S608 - one of two columns
    await lapse_expired(database, "sweeper")
    assert len((await claimed(database)).calls) == 1


async def test_claims_take_calls_of_one_lane_and_one_model_only(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "hybrid")
    await advance(database)
    assert await claim(database) is None
    taken = await claim(database, role="sparse")
    assert taken is not None
    assert len(taken.calls) == 3
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 3


async def test_concurrent_claims_never_share_a_call(database: Database) -> None:
    await pending(database, items=10)
    async with processes(database, 5) as others:
        taken = await asyncio.gather(*(claim(other, 2, who=f"worker-{n}") for n, other in enumerate(others)))
    held = [call.id for each in taken if each is not None for call in each.calls]
    assert len(held) == len(set(held)) == 10
    assert await scalar(database, "SELECT count(DISTINCT token) FROM queue") == 5


async def test_claimed_calls_are_passed_over_not_waited_for(database: Database) -> None:
    await pending(database, items=4)
    async with processes(database, 1) as [other]:
        async with other.transaction() as connection:
            await connection.execute(
                queue.text(
                    "SELECT 1 FROM queue WHERE call_id IN (SELECT call_id FROM queue ORDER BY seq LIMIT 2) FOR UPDATE"
                )
            )
            taken = await claimed(database)
        assert len(taken.calls) == 2


# Failures.


async def test_an_infrastructure_failure_is_retried_after_growing_pauses(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "BACKOFF_S", (200.0, 500.0))
    await pending(database)
    for tries, pause in ((1, 200), (2, 500)):
        await answer(database, await claimed(database), BROKEN)
        [(token, count, rest)] = await rows(
            database, "SELECT token, tries, extract(epoch FROM not_before - now())::float FROM queue"
        )
        assert (token, count) == (None, tries)
        assert pause - 150 < rest <= pause  # type: ignore[operator]
        assert await claim(database) is None
        await let_pauses_pass(database)
    assert await sample_states(database) == [1]
    assert await rows(database, "SELECT accepted, outcome FROM attempts") == [(False, "connection")] * 2


def test_the_pauses_grow_and_there_is_one_before_every_retry() -> None:
    assert len(BACKOFF_S) == RETRIES - 1
    assert list(BACKOFF_S) == sorted(set(BACKOFF_S))


async def test_a_retried_call_may_succeed(database: Database) -> None:
    await pending(database)
    for _ in range(RETRIES - 1):
        await answer(database, await claimed(database), BROKEN)
        await let_pauses_pass(database)
    await answer(database, await claimed(database))
    await advance(database)
    assert await sample_states(database) == [2]
    assert await rows(database, "SELECT accepted, outcome FROM attempts ORDER BY created_at") == [
        (False, "connection"),
        (False, "connection"),
        (True, "value"),
    ]


@pytest.mark.parametrize("kind", [FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.BACKEND_ERROR])
async def test_the_last_infrastructure_failure_ends_its_waiters_with_its_kind(
    database: Database, kind: FailureKind
) -> None:
    await pending(database)
    await submit_job(database, "closed-book")
    await advance(database)
    for _ in range(RETRIES):
        await let_pauses_pass(database)
        await answer(database, await claimed(database), Failure(kind=kind, detail="nobody listens"))
    await advance(database)
    assert await rows(database, "SELECT state, failure, detail FROM samples") == [(3, kind.value, "nobody listens")] * 2
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_a_call_that_failed_for_good_leaves_its_key_to_the_next_asker(database: Database) -> None:
    await pending(database)
    await fail_for_good(database)
    await advance(database)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claimed(database)
    await answer(database, taken)
    await advance(database)
    assert await sample_states(database) == [3, 2]
    [(old, failed, key), (new, fresh, same)] = await rows(
        database, "SELECT id, failed, key FROM calls ORDER BY created_at"
    )
    assert (failed, fresh) == (True, False)
    assert key == same
    assert await rows(database, "SELECT call_id, created FROM steps ORDER BY sample_id") == [(old, True), (new, True)]


async def test_a_sample_replays_the_failure_it_saw_although_the_key_has_a_value_by_now(database: Database) -> None:
    await pending(database)
    await fail_for_good(database)
    await submit_job(database, "closed-book")
    await advance(database, limit=1)
    await run_sql(database, "UPDATE samples SET state = 0, ended_at = NULL WHERE state = 3")
    taken = await claim(database)
    if taken is not None:
        await answer(database, taken)
    await advance(database)
    assert await sample_states(database) == [3, 2]


@pytest.mark.parametrize(
    "kind", [FailureKind.CONTEXT_EXCEEDED, FailureKind.REFUSED, FailureKind.TRUNCATED, FailureKind.UNPARSED]
)
async def test_a_content_failure_is_a_reply_like_any_other(database: Database, kind: FailureKind) -> None:
    await pending(database)
    await answer(database, await claimed(database), Failure(kind=kind, detail="too long"))
    await advance(database)
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT state, failure, detail FROM samples") == [(3, kind.value, "too long")] * 2
    assert await rows(database, "SELECT accepted, outcome FROM attempts") == [(True, kind.value)]
    assert await claim(database) is None


async def test_a_chunk_of_values_and_failures_is_committed_each_as_what_it_is(database: Database) -> None:
    await pending(database, items=3)
    taken = await claimed(database)
    good, bad = taken.calls[:2], taken.calls[2:]
    done = await answer(database, taken, calls=good)
    assert done == [call.id for call in good]
    await answer(database, taken, BROKEN, calls=bad)
    assert await rows(database, "SELECT call_id, tries FROM queue") == [(bad[0].id, 1)]
    assert sorted(await sample_states(database)) == [0, 0, 1]


# A call that fails for good between the two statements of an advance.


@pytest.mark.parametrize("gap", ["before the insert", "between insert and select"])
async def test_a_call_that_vanishes_under_an_advance_is_asked_for_afresh(
    database: Database, monkeypatch: pytest.MonkeyPatch, gap: str
) -> None:
    await pending(database)
    for _ in range(RETRIES - 1):
        await answer(database, await claimed(database), BROKEN)
        await let_pauses_pass(database)
    last = await claimed(database)
    name = {"before the insert": "insert_calls", "between insert and select": "find_existing_calls"}[gap]
    real, fails = getattr(advance_runtime, name), [answer(database, last, BROKEN)]

    async def gapped(*arguments: object) -> object:
        while fails:
            await fails.pop()
        return await real(*arguments)

    monkeypatch.setattr(advance_runtime, name, gapped)

    async def nothing_known(self: Advancer, *_: object) -> dict[bytes, object]:
        return {}  # as for an advance that read the replies before the call was there

    monkeypatch.setattr(advance_runtime.Advancer, "_drive", nothing_known)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        await Advancer(other).advance()
    monkeypatch.undo()
    assert await scalar(database, "SELECT count(*) FROM calls WHERE NOT failed") == 1
    await drain(database, ScriptedExecutor())
    assert await sample_states(database) == [3, 2]
    assert await job_states(database) == ["completed", "completed"]


async def test_a_failure_that_is_committed_while_an_advance_attaches_reaches_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pending(database)
    for _ in range(RETRIES - 1):
        await answer(database, await claimed(database), BROKEN)
        await let_pauses_pass(database)
    last, real = await claimed(database), advance_runtime.record

    async def record_after_the_failure(*arguments: object) -> object:
        await answer(database, last, BROKEN)
        return await real(*arguments)  # type: ignore[arg-type]

    await submit_job(database, "closed-book")
    monkeypatch.setattr(advance_runtime, "record", record_after_the_failure)
    async with processes(database, 1) as [other]:
        await Advancer(other).advance()
    monkeypatch.undo()
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples") == [(3, "connection")] * 2


@pytest.mark.parametrize("broken", [{"finish_reason": "st\0p"}, {"concurrency": 40_000}])
async def test_a_reply_that_cannot_be_stored_fails_its_own_call(database: Database, broken: dict[str, object]) -> None:
    await pending(database, items=5)
    taken = await claimed(database)
    answers = [answered(call) for call in taken.calls]
    answers[3] = msgspec.structs.replace(answers[3], receipt=msgspec.structs.replace(answers[3].receipt, **broken))
    committed = await Claims(database, "worker-1", 60.0).answer(taken.token, answers)
    assert sorted(committed.calls) == sorted(call.id for call in taken.calls)
    [(call, outcome, reply)] = await rows(
        database, "SELECT call_id, outcome, convert_from(reply, 'UTF8') FROM attempts WHERE NOT accepted"
    )
    assert (call, outcome) == (taken.calls[3].id, "backend_error")
    assert "the reply cannot be stored: " in str(reply)
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 4
    assert await rows(database, "SELECT call_id, tries FROM queue") == [(call, 1)]
