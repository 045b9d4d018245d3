"""Calls in the queue: claims, leases, parking, and what becomes of those that nobody wants."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.drivers.plugin import ScriptedDriver
from shared.calls import Completion, Decoding, End, ModelCall, RunRequest
from shared.replies import Failure, FailureKind, Generated
from shared.runtime import advance as advance_runtime
from shared.runtime import queue
from shared.runtime.advance import Advancer
from shared.runtime.pins import ModelIdentity
from shared.runtime.queue import BACKOFF_S, RETRIES, Claim, Claims, lapse_expired
from shared.settings import Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server
from tests.doubles.chat_server import answer as chat_server_answer
from tests.integration.conftest import EmptyDatabase
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    advance,
    answer,
    answered,
    claim,
    claim_some,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    let_pauses_pass,
    processes,
    queue_job,
    rows,
    run_sql,
    sample_states,
    scalar,
    submit_job,
)

# Claims: who holds a call, what a late answer may still change, and how failures are charged.


pytestmark = pytest.mark.anyio

BROKEN = Failure(kind=FailureKind.CONNECTION, detail="nobody listens")
FOREVER = 500.0


async def fail_for_good(database: Database) -> None:
    for _ in range(RETRIES):
        await let_pauses_pass(database)
        await answer(database, await claim_some(database), BROKEN)


# The token.


async def test_a_frozen_workers_answer_changes_nothing_once_another_has_answered(database: Database) -> None:
    await queue_job(database, 1)
    frozen = await claim_some(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    second = await claim_some(database)
    assert await answer(database, second, Generated(text="second")) == [second.calls[0].id]
    assert await answer(database, frozen, Generated(text="frozen")) == []
    assert await rows(database, "SELECT convert_from(reply, 'UTF8') FROM attempts WHERE accepted") == [
        ('{"type":"generated","text":"second"}',)
    ]


async def test_a_frozen_workers_answer_changes_nothing_while_another_computes(database: Database) -> None:
    await queue_job(database, 1)
    frozen = await claim_some(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    second = await claim_some(database)
    assert await answer(database, frozen) == []
    assert await scalar(database, "SELECT token FROM queue") == second.token
    assert await sample_states(database) == [1]
    assert await answer(database, second) == [second.calls[0].id]


async def test_an_answer_after_the_lapse_is_discarded_although_nobody_has_claimed_since(database: Database) -> None:
    await queue_job(database, 1)
    frozen = await claim_some(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, frozen) == []
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 0
    assert await rows(database, "SELECT token, lapses FROM queue") == [(None, 1)]


async def test_an_expired_claim_that_nobody_has_charged_may_still_answer(database: Database) -> None:
    await queue_job(database, 1)
    late = await claim_some(database)
    await let_claims_expire(database)
    assert await answer(database, late) == [late.calls[0].id]
    assert await lapse_expired(database, "sweeper") == []
    assert await sample_states(database) == [0]


@pytest.mark.parametrize("reply", [Generated(text="again"), BROKEN])
async def test_answering_twice_counts_once(database: Database, reply: Generated | Failure) -> None:
    await queue_job(database, 1)
    taken = await claim_some(database)
    await answer(database, taken)
    assert await answer(database, taken, reply) == []
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


async def test_an_infrastructure_failure_under_a_lost_token_is_not_charged(database: Database) -> None:
    await queue_job(database, 1)
    frozen = await claim_some(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, frozen, BROKEN) == []
    assert await rows(database, "SELECT tries, not_before FROM queue") == [(0, None)]


async def test_a_renewed_claim_does_not_lapse(database: Database) -> None:
    await queue_job(database)
    taken = await claim_some(database)
    await let_claims_expire(database)
    ids = [call.id for call in taken.calls]
    assert sorted(await Claims(database, "worker-1", FOREVER).renew(taken.token, ids[:1])) == ids[:1]
    await lapse_expired(database, "sweeper")
    assert await rows(database, "SELECT lapses, token FROM queue ORDER BY call_id") == [(0, taken.token), (1, None)]


async def test_a_foreign_token_renews_and_releases_nothing(database: Database) -> None:
    await queue_job(database, 1)
    taken = await claim_some(database)
    ids = [call.id for call in taken.calls]
    stranger, claims = uuid.uuid4(), Claims(database, "worker-2", FOREVER)
    assert await claims.renew(stranger, ids) == []
    await claims.release(stranger, ids)
    assert await scalar(database, "SELECT token FROM queue") == taken.token


async def test_a_released_call_is_not_charged_and_soon_claimable(database: Database) -> None:
    await queue_job(database, 1)
    taken = await claim_some(database)
    await Claims(database, "worker-1", FOREVER).release(taken.token, [taken.calls[0].id], pause_s=FOREVER)
    assert await rows(database, "SELECT token, claim_until, lapses, tries FROM queue") == [(None, None, 0, 0)]
    assert await claim(database) is None
    await let_pauses_pass(database)
    again = await claim_some(database)
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
    first = await claim_some(database, 2)
    hurried = await rows(
        database,
        "SELECT t.call_id FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
        " WHERE j.rank = 10 ORDER BY 1",
    )
    assert [(call.id,) for call in first.calls] == hurried


async def test_samples_of_smaller_ranks_are_advanced_first(database: Database) -> None:
    await furnish(database, items=2)
    for rank in (100, 10):
        await submit_job(database, "closed-book", rank=rank)
    assert (await Advancer(database).advance(limit=2)).samples == 2
    states = "SELECT j.rank, s.state FROM samples s JOIN jobs j ON j.id = s.job_id ORDER BY s.id"
    assert await rows(database, states) == [(100, 0), (100, 0), (10, 1), (10, 1)]


async def furnish_another(database: Database) -> None:
    await run_sql(database, "INSERT INTO datasets (name, hash, items) VALUES ('others', 'others', 2)")
    await run_sql(
        database,
        "INSERT INTO items (dataset_id, ordinal, hash, question) SELECT d.id, i.ordinal, i.hash, 'Else: ' || i.question"
        " FROM items i, datasets d WHERE d.name = 'others'",
    )


async def test_calls_with_the_same_place_are_claimed_in_the_order_they_came(database: Database) -> None:
    await queue_job(database, 4)
    await run_sql(database, "UPDATE queue SET place = 0")
    order = [call for (call,) in await rows(database, "SELECT call_id FROM queue ORDER BY seq")]
    first, second = await claim_some(database, 2), await claim_some(database, 2)
    assert [call.id for taken in (first, second) for call in taken.calls] == order


async def test_a_call_is_not_claimed_before_its_time(database: Database) -> None:
    await queue_job(database)
    later = await scalar(database, "SELECT max(call_id) FROM queue")
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE call_id = :c", c=later)
    taken = await claim_some(database)
    assert len(taken.calls) == 1
    assert taken.calls[0].id != later


@pytest.mark.parametrize("column", ["claim_until", "not_before"])
async def test_nobody_waits_until_a_clock_that_went_back_has_caught_up(database: Database, column: str) -> None:
    await queue_job(database, 1)
    if column == "claim_until":
        await claim_some(database)
    await run_sql(database, f"UPDATE queue SET {column} = now() + interval '1 hour'")  # noqa: S608 - one of two columns
    await lapse_expired(database, "sweeper")
    assert len((await claim_some(database)).calls) == 1


async def test_claims_take_calls_of_one_lane_and_one_model_only(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "hybrid")
    await advance(database)
    assert await claim(database) is None
    taken = await claim_some(database, role="sparse")
    assert len(taken.calls) == 3
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 3


async def test_concurrent_claims_never_share_a_call(database: Database) -> None:
    await queue_job(database, 10)
    async with processes(database, 5) as others:
        taken = await asyncio.gather(*(claim(other, 2, who=f"worker-{n}") for n, other in enumerate(others)))
    held = [call.id for each in taken if each is not None for call in each.calls]
    assert len(held) == len(set(held)) == 10
    assert await scalar(database, "SELECT count(DISTINCT token) FROM queue") == 5


async def test_claimed_calls_are_passed_over_not_waited_for(database: Database) -> None:
    await queue_job(database, 4)
    async with processes(database, 1) as [other]:
        async with other.transaction() as connection:
            await connection.execute(
                queue.text(
                    "SELECT 1 FROM queue WHERE call_id IN (SELECT call_id FROM queue ORDER BY seq LIMIT 2) FOR UPDATE"
                )
            )
            taken = await claim_some(database)
        assert len(taken.calls) == 2


# Failures.


async def test_an_infrastructure_failure_is_retried_after_growing_pauses(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "BACKOFF_S", (200.0, 500.0))
    await queue_job(database, 1)
    for tries, pause in ((1, 200), (2, 500)):
        await answer(database, await claim_some(database), BROKEN)
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
    await queue_job(database, 1)
    for _ in range(RETRIES - 1):
        await answer(database, await claim_some(database), BROKEN)
        await let_pauses_pass(database)
    await answer(database, await claim_some(database))
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
    await queue_job(database, 1)
    await submit_job(database, "closed-book")
    await advance(database)
    for _ in range(RETRIES):
        await let_pauses_pass(database)
        await answer(database, await claim_some(database), Failure(kind=kind, detail="nobody listens"))
    await advance(database)
    assert await rows(database, "SELECT state, failure, detail FROM samples") == [(3, kind.value, "nobody listens")] * 2
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_a_call_that_failed_for_good_leaves_its_key_to_the_next_asker(database: Database) -> None:
    await queue_job(database, 1)
    await fail_for_good(database)
    await advance(database)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim_some(database)
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
    await queue_job(database, 1)
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
    await queue_job(database, 1)
    await answer(database, await claim_some(database), Failure(kind=kind, detail="too long"))
    await advance(database)
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT state, failure, detail FROM samples") == [(3, kind.value, "too long")] * 2
    assert await rows(database, "SELECT accepted, outcome FROM attempts") == [(True, kind.value)]
    assert await claim(database) is None


async def test_a_chunk_of_values_and_failures_is_committed_each_as_what_it_is(database: Database) -> None:
    await queue_job(database, 3)
    taken = await claim_some(database)
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
    await queue_job(database, 1)
    for _ in range(RETRIES - 1):
        await answer(database, await claim_some(database), BROKEN)
        await let_pauses_pass(database)
    last = await claim_some(database)
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
    await queue_job(database, 1)
    for _ in range(RETRIES - 1):
        await answer(database, await claim_some(database), BROKEN)
        await let_pauses_pass(database)
    last, real = await claim_some(database), advance_runtime.record

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
    await queue_job(database, 5)
    taken = await claim_some(database)
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


# A guard finds out what its models are while it is up: one may be slow to say it, another may become another one.


async def registered(database: Database, *names: str) -> None:
    with anyio.fail_after(60):
        wanted = [(name,) for name in names]
        while await rows(database, "SELECT name FROM models WHERE served ORDER BY id") != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_model_that_is_slow_to_be_identified_delays_neither_the_guard_nor_other_models(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "REGISTER_S", 0.2)
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    known, identify = asyncio.Event(), ScriptedDriver.identify

    async def slow(self: ScriptedDriver) -> ModelIdentity:
        if self._name == "slow":
            await known.wait()
        return await identify(self)

    monkeypatch.setattr(ScriptedDriver, "identify", slow)
    models = {name: Model(driver="scripted") for name in ("slow", "quick")}
    settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
    async with serve_app(create_app(settings)):
        await registered(database, "quick")
        known.set()
        await registered(database, "quick", "slow")


async def test_a_guard_that_stops_waits_for_no_version(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "REGISTER_S", 0.2)
    broken_off = asyncio.Event()

    async def endless(_: ScriptedDriver) -> ModelIdentity:
        try:
            await asyncio.Event().wait()
        finally:
            broken_off.set()
        raise AssertionError

    monkeypatch.setattr(ScriptedDriver, "identify", endless)
    models = {"slow": Model(driver="scripted")}
    settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
    async with serve_app(create_app(settings)):
        await registered(database)
    assert broken_off.is_set()


async def test_a_remote_server_that_serves_something_else_is_registered_anew(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    sha = ["aaaa"]

    def tgi(seen: Seen) -> Reply:
        info = {"model_id": "Qwen/Q", "model_sha": sha[0], "version": "3.3.6"}
        return as_json(info) if seen.path == "/info" else chat_server_answer("4")

    async with chat_server(tgi) as far:
        models = {"far": Model(driver="remote", url=far.url)}
        settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
        app = create_app(settings)
        async with serve_app(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
            await registered(database, "far")
            ((model_id,),) = await rows(database, "SELECT id FROM models WHERE served")
            sha[0] = "bbbb"
            call = ModelCall(id=1, model_id=int(str(model_id)), prompt="2 + 2", decoding=Decoding(max_tokens=4), seed=1)
            request = RunRequest(epoch=None, calls=(call,))
            said = (await http.post("/run", content=msgspec.json.encode(request))).text
            assert msgspec.json.decode(said, type=Completion).end == End.RELEASED
            with anyio.fail_after(60):
                while await rows(database, "SELECT digest FROM models WHERE served") != [("bbbb",)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await http.post("/run", content=msgspec.json.encode(request))).status_code == 409
    assert await rows(database, "SELECT digest, served FROM models ORDER BY id") == [("aaaa", False), ("bbbb", True)]


# A test begins with empty tables and with the first numbers, whatever the test before it did to the database.

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
# `gpu_epoch` is of no table, and only goes up.
DRAWN = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL AND sequencename <> 'gpu_epoch'"
DATASET = "INSERT INTO datasets (name, hash, items) VALUES ('a', '', 1)"
ROLLED_BACK = f"DO $$ BEGIN {DATASET}; RAISE unique_violation; END $$"
REFUSED = "INSERT INTO datasets (name, hash, items) VALUES ('a', NULL, 1)"
DOCUMENT = r"INSERT INTO documents VALUES ('\x00', 'problem', 'text')"


async def filled(database: Database) -> set[object]:
    tables = [name for (name,) in await rows(database, TABLES)]
    with_rows = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})" for name in tables)  # noqa: S608
    return {name for (name,) in [*await rows(database, with_rows), *await rows(database, DRAWN)]}


async def test_of_a_whole_job_nothing_is_left(database: Database, empty_database: EmptyDatabase) -> None:
    await furnish(database)
    await submit_job(database)
    await drain(database, ScriptedExecutor())
    assert {"datasets", "jobs", "samples", "calls", "steps", "attempts", "outcomes"} <= await filled(database)
    await to_thread.run_sync(empty_database)
    assert await filled(database) == set()


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        ((DATASET,), {"datasets", "datasets_id_seq"}),
        ((ROLLED_BACK,), {"datasets_id_seq"}),
        ((DOCUMENT,), {"documents"}),
        ((REFUSED,), {"datasets_id_seq"}),
        ((), set()),
    ],
    ids=["a row", "a row that was rolled back", "a row without a number", "a number without a row", "nothing"],
)
async def test_a_row_and_a_number_are_found_where_they_are(
    database: Database, empty_database: EmptyDatabase, statements: tuple[str, ...], left: set[str]
) -> None:
    for statement in statements:
        with suppress(IntegrityError):
            await run_alone(database, statement)
    assert await filled(database) == left
    await to_thread.run_sync(empty_database)
    assert await filled(database) == set()


async def run_alone(database: Database, statement: str) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.parametrize("time", ["first", "second"])
async def test_what_a_test_leaves_the_next_one_does_not_find(database: Database, time: str) -> None:
    assert await filled(database) == set()
    await run_alone(database, DATASET)
    assert await rows(database, "SELECT id FROM datasets") == [(1,)]


# Parking: calls that nobody waits for leave the queue, and whoever comes to want one brings it back.

ORPHANS = """
    SELECT count(*) FROM calls c
    WHERE c.id NOT IN (SELECT call_id FROM queue UNION SELECT call_id FROM attempts WHERE accepted)"""
MADE = """
    SELECT s.job_id - (SELECT min(id) FROM jobs), t.created, count(*) FROM steps t JOIN samples s ON s.id = t.sample_id
    GROUP BY 1, 2 ORDER BY 1"""


async def lose_interest(database: Database) -> None:
    await run_sql(database, "UPDATE jobs SET state = 'cancelling'")
    await run_sql(database, "UPDATE samples SET state = 4 WHERE state IN (0, 1)")


async def forgotten(_database: Database, _calls: Sequence[int]) -> list[int]:
    return []


async def test_claimed_calls_that_nobody_wants_are_parked(database: Database) -> None:
    await queue_job(database, 3)
    await lose_interest(database)
    assert await claim(database) is None
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await scalar(database, ORPHANS) == 3
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0


async def test_only_the_unwanted_calls_of_a_chunk_are_parked(database: Database) -> None:
    await queue_job(database, 3)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE ordinal = 1")
    assert len((await claim_some(database)).calls) == 2
    assert await scalar(database, ORPHANS) == 1


async def test_a_claim_that_parked_everything_looks_for_more(database: Database) -> None:
    await queue_job(database, 4)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE ordinal IN (0, 1, 2)")
    taken = await claim_some(database, 1)
    assert len(taken.calls) == 1
    await answer(database, taken)
    assert sorted(await sample_states(database)) == [0, 4, 4, 4]


async def claim_that_parks_while_a_waiter_comes(database: Database) -> Claim | None:
    await queue_job(database, 1)
    await lose_interest(database)
    await submit_job(database, "closed-book")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one)
        claiming_it = asyncio.create_task(claim(held))
        await held.reached.wait()
        assert (await Advancer(two).advance()).samples == 1
        held.go.set()
        return await claiming_it


async def test_a_waiter_that_commits_while_its_call_is_being_parked_gets_it(database: Database) -> None:
    taken = await claim_that_parks_while_a_waiter_comes(database)
    assert taken is not None
    await answer(database, taken)
    await advance(database)
    assert await sample_states(database) == [4, 2]


async def test_parking_without_a_look_afterwards_would_lose_the_call(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "revive_calls", forgotten)
    assert await claim_that_parks_while_a_waiter_comes(database) is None
    assert await scalar(database, ORPHANS) == 1
    assert await sample_states(database) == [4, 1]


async def waiter_that_commits_after_the_parking(database: Database) -> None:
    await queue_job(database, 1)
    await lose_interest(database)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other)
        waiting = asyncio.create_task(Advancer(held).advance())
        await held.reached.wait()
        assert await claim(database) is None
        held.go.set()
        await waiting


async def test_a_waiter_that_commits_after_its_call_was_parked_brings_it_back(database: Database) -> None:
    await waiter_that_commits_after_the_parking(database)
    assert await scalar(database, ORPHANS) == 0
    assert len((await claim_some(database)).calls) == 1


async def test_a_waiter_that_did_not_look_would_wait_for_a_parked_call(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance_runtime, "revive_calls", forgotten)
    await waiter_that_commits_after_the_parking(database)
    assert await scalar(database, ORPHANS) == 1
    assert await sample_states(database) == [4, 1]


async def test_a_later_job_revives_orphans_and_counts_them_as_its_own(database: Database) -> None:
    await queue_job(database)
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, MADE) == [(0, True, 2), (1, True, 2)]
    await answer(database, await claim_some(database))
    await advance(database)
    assert sorted(await sample_states(database)) == [2, 2, 4, 4]


async def test_calls_that_are_in_the_queue_or_answered_count_as_reused(database: Database) -> None:
    await queue_job(database)
    await answer(database, await claim_some(database, 1))
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, MADE) == [(0, True, 2), (1, False, 2)]


async def test_a_call_that_is_answered_while_a_job_attaches_counts_as_reused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue_job(database, 1)
    taken, real = await claim_some(database), advance_runtime.record

    async def record_after_the_reply(*arguments: object) -> object:
        await answer(database, taken)
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(advance_runtime, "record", record_after_the_reply)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        await Advancer(other).advance()
    assert await rows(database, "SELECT created FROM steps ORDER BY sample_id") == [(True,), (False,)]


async def test_lapses_survive_parking(database: Database) -> None:
    await queue_job(database, 1)
    for _ in range(2):
        await claim_some(database)
        await let_claims_expire(database)
        await lapse_expired(database, "sweeper")
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT lapses, token FROM queue") == [(2, None)]
    taken = await claim_some(database)
    await let_claims_expire(database)
    assert await lapse_expired(database, "sweeper") == [taken.calls[0].id]
    await advance(database)
    assert await rows(database, "SELECT failure FROM samples WHERE state = 3") == [("poisoned",)]


async def test_parking_a_call_that_another_live_sample_wants_does_not_happen(database: Database) -> None:
    await queue_job(database, 1)
    await submit_job(database, "closed-book")
    await advance(database)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE job_id = (SELECT min(id) FROM jobs)")
    await run_sql(database, "UPDATE jobs SET state = 'cancelling' WHERE id = (SELECT min(id) FROM jobs)")
    await answer(database, await claim_some(database))
    await advance(database)
    assert await sample_states(database) == [4, 2]
    assert await job_states(database) == ["cancelling", "running"]


async def test_a_revived_call_has_the_rank_of_the_job_that_wants_it(database: Database) -> None:
    await queue_job(database, 1)
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book", rank=10)
    await advance(database)
    assert await scalar(database, "SELECT place >> 47 FROM queue") == 10
