"""A commit whose answer never comes: whether it happened or not, it costs a moment, and no call and no sample."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from shared.calls import Lane
from shared.lease.lease import StreamBroken
from shared.replies import Failure, FailureKind
from shared.runtime.advance import Advancer
from shared.runtime.queue import Claims, lapse_expired, sweep
from shared.storage.database import Database, is_passing
from tests.faults.proxy import Proxy
from tests.faults.wire import Cuts, PostgresWire
from tests.integration.api import Api, serving
from tests.integration.scene import (
    ScriptedExecutor,
    answered,
    furnish,
    let_pauses_pass,
    model,
    rows,
    sample_states,
    scalar,
    stuck,
    worker,
)
from tests.integration.test_idempotency import BODY, JOBS, post
from tests.integration.test_reconciler import Rig
from tests.integration.test_worker import Refusing, pending, queue

pytestmark = pytest.mark.anyio

CLAIM = "delete queue, update outages, update queue"
ANSWER = "delete queue, insert attempts"
RETRY = "insert attempts, update queue"
RELEASE = "update queue"
LOOK = "update samples"
END = "insert outcomes, update samples"
SUBMIT = "delete idempotency, insert idempotency, insert jobs, insert samples, update jobs"
FAILED = Failure(kind=FailureKind.TIMEOUT, detail="too late")
BOTH = pytest.mark.parametrize("happened", [True, False], ids=["it happened", "it did not"])


@pytest.fixture
def cuts() -> Cuts:
    return Cuts()


@pytest.fixture
async def cut(database: Database, cuts: Cuts) -> AsyncIterator[Database]:
    url = make_url(database.engine.url)
    with Proxy(url.port or 5432, lambda: PostgresWire(cuts)) as proxy:
        through = Database(url.set(host="127.0.0.1", port=proxy.port), pinned=True)  # type: ignore[arg-type]
        yield through
        await through.close()


async def claims(database: Database) -> Claims:
    return Claims(database, "worker-1", 15.0)


@BOTH
async def test_a_claim_is_ours_if_it_happened_and_else_nobodys(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await pending(database)
    mine, generator = await claims(cut), await model(database)
    cuts.cut_next(CLAIM, happened=happened)
    if happened:
        taken = await mine.claim(Lane.GENERATE, generator, 100)
        assert taken is not None
        assert len(taken.calls) == 4
    else:
        with pytest.raises(DBAPIError) as raised:
            await mine.claim(Lane.GENERATE, generator, 100)
        assert is_passing(raised.value)
    assert await queue(database) == [(happened, 0, 0)] * 4


@BOTH
async def test_an_answer_is_stored_once_and_wakes_its_sample(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await pending(database)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(ANSWER, happened=happened)
    committed = await mine.answer(taken.token, [answered(call) for call in taken.calls])
    assert sorted(committed.calls) == [call.id for call in taken.calls]
    assert committed.ready == 4
    assert await rows(database, "SELECT accepted, count(*) FROM attempts GROUP BY 1") == [(True, 4)]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


@BOTH
async def test_a_failed_try_is_charged_once(database: Database, cut: Database, cuts: Cuts, happened: bool) -> None:
    await pending(database, items=1)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(RETRY, happened=happened)
    await mine.answer(taken.token, [answered(taken.calls[0], FAILED)])
    assert await queue(database) == [(False, 0, 1)]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


@BOTH
async def test_what_is_given_back_is_given_back(database: Database, cut: Database, cuts: Cuts, happened: bool) -> None:
    await pending(database)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(RELEASE, happened=happened)
    await mine.release(taken.token, [call.id for call in taken.calls])
    assert await queue(database) == [(False, 0, 0)] * 4


@BOTH
@pytest.mark.parametrize("kind", [CLAIM, ANSWER, LOOK, END])
async def test_a_worker_that_is_cut_off_ends_its_samples_all_the_same(
    database: Database, cut: Database, cuts: Cuts, kind: str, happened: bool
) -> None:
    await pending(database)
    executor = ScriptedExecutor()
    cuts.cut_next(kind, happened=happened)
    await worker(cut, Lane.GENERATE, executor).drain()
    await sweep(database, "sweeper")
    await Advancer(database).advance()
    assert cuts.hits.total() == 1
    assert await sample_states(database) == [2] * 4
    assert set(executor.ran.values()) == {1}
    assert await rows(database, "SELECT accepted, outcome, count(*) FROM attempts GROUP BY 1, 2") == [
        (True, "value", 4)
    ]


@BOTH
async def test_a_chunk_that_broke_off_is_charged_once(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await pending(database)
    cuts.cut_next("delete queue, insert attempts, update queue", happened=happened)
    await worker(cut, Lane.GENERATE, Refusing(StreamBroken("gone"), 2)).drain()
    assert await rows(database, "SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("lapsed", 2),
        ("value", 4),
    ]


async def test_commits_that_are_cut_over_and_over_fail_no_sample(database: Database, cut: Database, cuts: Cuts) -> None:
    await pending(database, items=30)
    executor = ScriptedExecutor()
    cuts.arm(every=3, most=1000)
    while await scalar(database, "SELECT count(*) FROM samples WHERE state < 2"):
        await worker(cut, Lane.GENERATE, executor, chunk=2).drain()
        await let_pauses_pass(database)
        await sweep(database, "sweeper")
    assert set(await sample_states(database)) == {2}
    assert await lapse_expired(database, "sweeper") == []
    assert await stuck(database) == []
    assert set(executor.ran.values()) == {1}
    assert cuts.hits.total() > 10


@pytest.fixture
async def api(database: Database, cut: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database)
    async with serving(cut, redis_url) as serving_api:
        yield serving_api


@BOTH
async def test_a_submission_that_is_sent_again_is_one_job(
    api: Api, database: Database, cuts: Cuts, happened: bool
) -> None:
    await post(api, "k-0", body={**BODY, "name": "before"})
    cuts.cut_next(SUBMIT, happened=happened)
    first = await post(api, "k-1")
    assert (first.status_code, first.json()["type"]) == (503, "urn:mathrag:unavailable")
    assert "retry-after" in first.headers
    again = await post(api, "k-1")
    assert (again.status_code, "idempotency-replayed" in again.headers) == (202, happened)
    assert await scalar(database, JOBS) == 2


@pytest.mark.parametrize("every", [1, 2])
async def test_a_flip_whose_steps_are_cut_off_opens_all_the_same(
    database: Database, cut: Database, cuts: Cuts, every: int
) -> None:
    rig = await Rig(cut).register()
    epoch = await rig.want("judge")
    cuts.arm(every=every, most=2)
    await rig.reconciler.reconcile()
    assert cuts.hits.total() >= 2
    assert await rows(database, "SELECT state, jsonb_array_length(servers) FROM residencies") == [("open", 1)]
    assert rig.guard.epoch == epoch
