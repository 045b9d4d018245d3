"""Calls that are made again, or are not: reuse, requeues, suspects, and what a dead process has left."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from shared import canonical
from shared.calls import Lane, Request
from shared.replies import Failure, FailureKind, Reply
from shared.runtime import lifecycle, queue
from shared.runtime.queue import LAPSES, AnsweredCall, Claim, ClaimedCall, Claims, lanes_with_work, lapse, lapse_expired
from shared.runtime.worker import Lapse, Release
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    add_dataset,
    advance,
    answer,
    by_rule,
    claim,
    claim_some,
    commit_while_waited_for,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    processes,
    queue_job,
    repair,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    stuck,
    submit_job,
)

pytestmark = pytest.mark.anyio


# What is asked twice is answered once: which calls a job makes depends on what is new in it, and on nothing else.

GATE = {"gate": {"min_pairs": 1000}}
"""Too few pairs to trust rules: the judge scores, in every job alike."""


async def calls_of(database: Database, pipeline: str = "mathrag-gate", **fields: Any) -> Counter[str]:
    executor = ScriptedExecutor()
    await submit_job(database, pipeline, **fields)
    await drain(database, executor)
    assert set(await job_states(database)) == {"completed"}
    assert set(executor.ran.values()) <= {1}
    roles = dict(await rows(database, "SELECT key, role FROM calls"))  # type: ignore[arg-type]
    return Counter(str(roles[key]) for key in executor.ran)


async def requests(database: Database, role: str) -> list[Request]:
    found = await rows(database, "SELECT request FROM calls WHERE role = :r ORDER BY created_at", r=role)
    return [msgspec.json.decode(request, type=Request) for (request,) in found]  # type: ignore[arg-type]


async def answers_of(database: Database, name: str) -> list[tuple[object, ...]]:
    return await rows(
        database,
        "SELECT s.ordinal, s.repeat, o.answer, o.record_hash FROM jobs j JOIN samples s ON s.job_id = j.id"
        " JOIN outcomes o ON o.sample_id = s.id WHERE j.name = :n AND s.kind = 'item' ORDER BY 1, 2",
        n=name,
    )


async def test_the_same_job_again_makes_no_call(database: Database) -> None:
    await furnish(database, items=4)
    first = await calls_of(database, params=GATE, name="first")
    assert first["generate"] == 4
    assert first["retrieve"] == 8
    assert await calls_of(database, params=GATE, name="second") == {}
    assert await answers_of(database, "first") == await answers_of(database, "second")
    assert (
        await scalar(
            database,
            "SELECT count(*) FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
            " WHERE j.name = 'second' AND t.created",
        )
        == 0
    )


async def test_a_job_with_three_changed_items_makes_their_calls_only(database: Database) -> None:
    await furnish(database, items=8)
    await calls_of(database, params=GATE)
    await add_dataset(database, 8, "changed", changed=frozenset({1, 4, 6}))
    judged = {canonical.digest(request) for request in await requests(database, "judge")}
    again = await calls_of(database, params=GATE, dataset="changed")
    assert (again["retrieve"], again["generate"]) == (6, 3)
    new = {canonical.digest(request) for request in await requests(database, "judge")} - judged
    assert again["judge"] == len(new)
    asked = [request.values["question"] for request in (await requests(database, "generate"))[-3:]]
    assert sorted(map(str, asked)) == [f"What is {n} plus {n} really?" for n in (1, 4, 6)]


async def test_a_changed_anchor_makes_every_judgement_new_and_no_search(database: Database) -> None:
    await furnish(database, items=5)
    first = await calls_of(database, params=GATE, name="first")
    old = {canonical.digest(request) for request in await requests(database, "judge")}
    second = await calls_of(database, params={**GATE, "anchors": {"negative": "A guess: 7."}}, name="second")
    assert second["judge"] == first["judge"] > 0
    assert second["retrieve"] == 0
    prompts = {msgspec.json.encode(request.values, order="sorted") for request in await requests(database, "generate")}
    assert first["generate"] + second["generate"] == len(prompts)
    judged = await requests(database, "judge")
    new = [request for request in judged if canonical.digest(request) not in old]
    assert {request.values["negative"] for request in new} == {"A guess: 7."}
    assert {str(request.values["document"]) for request in judged if canonical.digest(request) in old} == {
        str(request.values["document"]) for request in new
    }


async def test_five_greedy_repeats_execute_the_calls_of_one(database: Database) -> None:
    await furnish(database, items=3)
    five = await calls_of(database, params=GATE, repeats=5, name="five")
    assert await scalar(database, "SELECT count(*) FROM steps WHERE created") == five.total()
    assert await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'item' AND state = 2") == 15
    assert await calls_of(database, params=GATE, name="one") == {}
    assert five["generate"] == 3
    assert five["retrieve"] == 6


async def test_five_sampled_repeats_generate_five_times_and_judge_once(database: Database) -> None:
    await furnish(database, items=3)
    sampled = {**GATE, "generate": {"temperature": 0.7}}
    five = await calls_of(database, params=sampled, repeats=5)
    assert five["generate"] == 15
    assert five["retrieve"] == 6
    drawn = Counter((str(r.values["question"]), r.draw) for r in await requests(database, "generate"))
    assert drawn == Counter({(f"What is {n} plus {n}?", draw): 1 for n in range(3) for draw in range(5)})
    judged = Counter(str(request.values["document"]) for request in await requests(database, "judge"))
    assert set(judged.values()) == {1}
    assert {request.draw for request in await requests(database, "judge")} == {0}


async def test_more_repeats_later_make_the_missing_draws_only(database: Database) -> None:
    await furnish(database, items=2)
    sampled = {"generate": {"temperature": 0.7}}
    assert (await calls_of(database, "closed-book", params=sampled, repeats=2))["generate"] == 4
    assert (await calls_of(database, "closed-book", params=sampled, repeats=4))["generate"] == 4


async def test_a_job_without_reuse_shares_nothing(database: Database) -> None:
    await furnish(database, items=2)
    first = await calls_of(database, "hybrid")
    assert await calls_of(database, "hybrid", reuse="none") == first
    assert await calls_of(database, "hybrid", reuse="none") == first
    assert await calls_of(database, "hybrid") == {}


async def test_repeats_without_reuse_are_drawn_each_for_itself(database: Database) -> None:
    await furnish(database, items=2)
    assert (await calls_of(database, "closed-book", reuse="none", repeats=3))["generate"] == 6


async def test_pipelines_share_what_they_ask_alike(database: Database) -> None:
    await furnish(database, items=3)
    assert (await calls_of(database, "dense"))["retrieve"] == 3
    assert (await calls_of(database, "sparse"))["retrieve"] == 3
    assert (await calls_of(database, "hybrid"))["retrieve"] == 0
    assert (await calls_of(database, params=GATE))["retrieve"] == 0


async def test_a_model_without_a_digest_is_reused_inside_its_job_only(database: Database) -> None:
    await furnish(database, items=2)
    await run_sql(database, "UPDATE models SET digest = NULL WHERE name = 'a-generator'")
    assert (await calls_of(database, "hybrid", repeats=3))["generate"] == 2
    again = await calls_of(database, "hybrid")
    assert again["generate"] == 2
    assert again["retrieve"] == 0


async def test_another_model_answers_anew(database: Database) -> None:
    await furnish(database, items=2)
    await calls_of(database, "hybrid")
    again = await calls_of(database, "hybrid", models={"generate": "a-judge"})
    assert again["generate"] == 2
    assert again["retrieve"] == 0


# Requeue: an ended job is asked for again, and only what failed for a passing reason is computed anew.


CALLS = "SELECT count(*) FROM calls"


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


# Suspects: a call under which a claim lapsed runs alone, and three times make it poison, for its own sample only.


async def suspect(database: Database, count: int) -> list[int]:
    taken = await claim_some(database, count)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    return [call.id for call in taken.calls]


async def test_an_expired_claim_makes_suspects_and_says_so(database: Database) -> None:
    await queue_job(database)
    taken = await claim_some(database)
    await let_claims_expire(database)
    assert await lapse_expired(database, "sweeper") == []
    assert await rows(database, "SELECT lapses, token, claim_until FROM queue") == [(1, None, None)] * 2
    assert (
        await rows(database, "SELECT accepted, outcome, token, worker FROM attempts")
        == [(False, "lapsed", taken.token, "sweeper")] * 2
    )
    assert await sample_states(database) == [1, 1]


async def test_a_claim_within_its_time_does_not_lapse(database: Database) -> None:
    await queue_job(database)
    await claim_some(database, 1)
    assert await lapse_expired(database, "sweeper") == []
    assert await rows(database, "SELECT lapses FROM queue") == [(0,), (0,)]


async def test_a_lapse_that_a_worker_reports_needs_its_token(database: Database) -> None:
    await queue_job(database)
    taken = await claim_some(database)
    first, second = (call.id for call in taken.calls)
    await lapse(database, "worker-1", taken.token, [first])
    await lapse(database, "worker-1", taken.token, [first])
    assert await rows(database, "SELECT call_id, lapses, token FROM queue ORDER BY call_id") == [
        (first, 1, None),
        (second, 0, taken.token),
    ]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


async def test_suspects_wait_until_nothing_else_runs(database: Database) -> None:
    await queue_job(database, 3)
    suspects = await suspect(database, 2)
    ordinary = await claim_some(database)
    assert [call.id for call in ordinary.calls if call.id in suspects] == []
    assert await claim(database) is None
    await answer(database, ordinary)
    assert (await claim_some(database)).calls[0].id in suspects


async def test_a_suspect_runs_alone(database: Database) -> None:
    await queue_job(database, 3)
    suspects = await suspect(database, 2)
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE lapses = 0")
    first = await claim_some(database)
    assert len(first.calls) == 1
    await run_sql(database, "UPDATE queue SET not_before = NULL")
    assert await claim(database) is None
    await answer(database, first)
    assert len((await claim_some(database)).calls) == 1
    assert {call.id for call in first.calls} < set(suspects)


async def test_another_models_suspect_holds_nobody_back(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "hybrid")
    await advance(database)
    dense = await claim(database, role="dense")
    assert dense is not None
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert len((await claim(database, role="dense")).calls) == 1  # type: ignore[union-attr]
    sparse = await claim(database, role="sparse")
    assert sparse is not None
    assert len(sparse.calls) == 2


async def test_a_suspect_that_is_being_claimed_gets_no_neighbour(database: Database) -> None:
    await queue_job(database)
    [chosen] = await suspect(database, 1)
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE lapses = 0")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one, first=1)  # the search for ordinary calls finds nothing and passes
        alone = asyncio.create_task(claim(held))
        await held.reached.wait()
        await run_sql(database, "UPDATE queue SET not_before = NULL WHERE lapses = 0")
        beside = asyncio.create_task(claim(two, who="worker-2"))
        await somebody_waits(database)
        held.go.set()
        taken = await alone
        assert taken is not None
        assert [call.id for call in taken.calls] == [chosen]
        assert await beside is None


async def test_a_suspect_does_not_start_beside_a_claim_that_is_not_committed_yet(database: Database) -> None:
    await queue_job(database)
    await suspect(database, 1)
    taken, beside = await commit_while_waited_for(database, claim, lambda two: claim(two, who="worker-2"))
    assert taken is not None
    assert len(taken.calls) == 1
    assert beside is None


async def test_two_claimers_take_one_suspect_between_them(database: Database) -> None:
    await queue_job(database)
    await suspect(database, 2)
    both = await commit_while_waited_for(database, claim, lambda two: claim(two, who="worker-2"), first=1)
    taken = [each for each in both if each is not None]
    assert [len(each.calls) for each in taken] == [1]
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NOT NULL") == 1


async def test_the_third_lapse_is_a_poisoned_reply(database: Database) -> None:
    await queue_job(database, 1)
    for _ in range(LAPSES):
        taken = await claim_some(database)
        await let_claims_expire(database)
        poisoned = await lapse_expired(database, "sweeper")
    assert poisoned == [taken.calls[0].id]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await rows(database, "SELECT accepted, outcome FROM attempts ORDER BY created_at") == [
        (False, "lapsed"),
        (False, "lapsed"),
        (True, "poisoned"),
    ]
    replies = await rows(
        database, "SELECT convert_from(reply, 'UTF8')::jsonb ->> 'detail' FROM attempts ORDER BY created_at"
    )
    assert [said for (said,) in replies] == [
        "1 claim of this call lapsed; after 3 it fails as poisoned",
        "2 claims of this call lapsed; after 3 it fails as poisoned",
        "3 claims of this call lapsed",
    ]
    assert await scalar(database, "SELECT failed FROM calls") is False
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples") == [(3, "poisoned")]


async def test_the_next_job_meets_the_poison_as_a_reply(database: Database) -> None:
    await test_the_third_lapse_is_a_poisoned_reply(database)
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT failure FROM samples") == [("poisoned",)] * 2
    assert await claim(database) is None


async def test_an_answer_after_the_poison_is_stale(database: Database) -> None:
    await queue_job(database, 1)
    await suspect(database, 1)
    await suspect(database, 1)
    taken = await claim_some(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, taken) == []
    assert await scalar(database, "SELECT outcome FROM attempts WHERE accepted") == "poisoned"


class Deadly(ScriptedExecutor):
    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question
        self.chunks: list[int] = []

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        deadly = [call for call in calls if self._kills(call)]
        if deadly:
            self.chunks.append(len(calls))
            for call in calls:
                yield Lapse(call.id)
            return
        async for each in super().run(calls, epoch):
            yield each

    def _kills(self, call: ClaimedCall) -> bool:
        request = msgspec.json.decode(call.request, type=Request)
        return request.role == "generate" and request.values["question"] == self._question


async def test_poison_fails_its_own_sample_and_the_batch_completes(database: Database) -> None:
    await furnish(database, items=6)
    await submit_job(database, "closed-book")
    executor = Deadly("What is 3 plus 3?")
    await drain(database, executor)
    assert await job_states(database) == ["completed"]
    assert await rows(database, "SELECT ordinal, failure FROM samples WHERE state = 3") == [(3, "poisoned")]
    assert sorted(await sample_states(database)) == [2, 2, 2, 2, 2, 3]
    assert executor.chunks == [6, 1, 1]
    assert set(executor.ran.values()) == {1}


async def test_an_infrastructure_failure_does_not_clear_a_suspect(database: Database) -> None:
    await queue_job(database, 1)
    await suspect(database, 1)
    taken = await claim_some(database)
    await answer(database, taken, Failure(kind=FailureKind.CONNECTION))
    assert await rows(database, "SELECT lapses, tries FROM queue") == [(1, 1)]


async def test_releasing_a_suspect_keeps_its_record(database: Database) -> None:
    await queue_job(database, 1)
    await suspect(database, 1)
    taken = await claim_some(database)
    await Claims(database, "worker-1", 60.0).release(taken.token, [taken.calls[0].id])
    assert await scalar(database, "SELECT lapses FROM queue") == 1


# The sweeper: whatever a process that died has left undone is found from the rows alone.


async def pending_sweeper(database: Database, items: int = 1) -> Claim:
    await queue_job(database, items)
    return await claim_some(database)


async def no_look(*_: object) -> list[int]:
    return []


async def test_a_reply_whose_process_died_before_it_looked_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await pending_sweeper(database)
    monkeypatch.setattr(queue, "mark_ready_samples", no_look)
    await answer(database, taken)
    assert len(await stuck(database)) == 1
    assert await repair(database) == {Lane.JUDGE}
    assert await sample_states(database) == [0]


async def test_a_sample_that_still_lacks_a_reply_stays_waiting(database: Database) -> None:
    taken = await pending_sweeper(database, items=2)
    await answer(database, taken, calls=taken.calls[:1])
    assert await repair(database) == {Lane.JUDGE}
    assert sorted(await sample_states(database)) == [0, 1]


async def test_a_claim_whose_worker_died_lapses(database: Database) -> None:
    await pending_sweeper(database)
    await let_claims_expire(database)
    assert await repair(database) == {Lane.GENERATE}
    assert await rows(database, "SELECT token, lapses FROM queue") == [(None, 1)]


async def test_the_third_lapse_wakes_the_sample_in_the_same_sweep(database: Database) -> None:
    await pending_sweeper(database)
    await run_sql(database, "UPDATE queue SET lapses = 2")
    await let_claims_expire(database)
    assert await repair(database) == {Lane.JUDGE}
    assert await sample_states(database) == [0]


async def test_a_parked_call_that_is_wanted_is_queued_again(database: Database) -> None:
    await pending_sweeper(database)
    await run_sql(database, "DELETE FROM queue")
    assert await repair(database) == {Lane.GENERATE}
    assert await scalar(database, "SELECT count(*) FROM queue") == 1
    await drain(database, ScriptedExecutor())
    assert await sample_states(database) == [2]


async def test_a_parked_call_that_nobody_wants_stays_parked(database: Database) -> None:
    await pending_sweeper(database)
    await run_sql(database, "DELETE FROM queue")
    await run_sql(database, "UPDATE samples SET state = 4")
    await run_sql(database, "UPDATE jobs SET state = 'cancelled'")
    assert await repair(database) == set()
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_an_answered_call_is_not_queued_again(database: Database) -> None:
    taken = await pending_sweeper(database, items=2)
    await answer(database, taken)
    await repair(database)
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def prepared(database: Database, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    await furnish(database, items=3)
    await submit_job(database)

    async def died(_database: Database, _most: int) -> list[int]:
        return []

    with monkeypatch.context() as context:
        context.setattr(lifecycle, "finish_due_jobs", died)
        await drain(database, executor)


async def test_a_prepared_job_is_expanded_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepared(database, ScriptedExecutor(), monkeypatch)
    assert await job_states(database) == ["preparing"]
    assert await repair(database) == {Lane.JUDGE}
    await repair(database)
    assert await job_states(database) == ["running"]
    assert await rows(database, "SELECT ordinal, repeat, state FROM samples WHERE kind = 'item' ORDER BY 1") == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    decision = "SELECT prepared = (SELECT outcome FROM outcomes) FROM jobs"
    assert await scalar(database, decision) is True


async def test_a_failed_calibration_fails_the_job_with_its_reason(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(request: Request) -> object:
        return Failure(kind=FailureKind.UNPARSED, detail="no rating") if request.role == "judge" else by_rule(request)

    await prepared(database, ScriptedExecutor(mute), monkeypatch)  # type: ignore[arg-type]
    await repair(database)
    assert await job_states(database) == ["failed"]
    reason = str(await scalar(database, "SELECT reason FROM jobs"))
    assert "judge unusable" in reason
    assert "gate.on_unusable=rules" in reason
    assert await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'item'") == 0
    assert await scalar(database, "SELECT ended_at IS NULL FROM jobs") is False


async def test_a_mute_judge_may_be_passed_over_if_the_job_says_so(database: Database) -> None:
    def mute(request: Request) -> object:
        return Failure(kind=FailureKind.UNPARSED, detail="no rating") if request.role == "judge" else by_rule(request)

    await furnish(database, items=2)
    await submit_job(database, params={"gate": {"on_unusable": "rules"}})
    await drain(database, ScriptedExecutor(mute))  # type: ignore[arg-type]
    assert await job_states(database) == ["completed"]
    assert b'"strategy":"rules"' in bytes(await scalar(database, "SELECT prepared FROM jobs"))  # type: ignore[arg-type]


async def test_an_anchor_without_a_slot_fails_the_job_and_names_it(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, params={"anchors": {"negative": "?"}})
    await run_sql(
        database,
        "UPDATE jobs SET params = convert_to(replace(convert_from(params, 'UTF8'), '\"negative\"', '\"no_such_slot\"'),"
        " 'UTF8')",
    )
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["failed"]
    assert "no_such_slot" in str(await scalar(database, "SELECT reason FROM jobs"))


async def test_a_drained_job_is_completed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = await pending_sweeper(database)
    await answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"]
    assert await repair(database) == set()
    assert await job_states(database) == ["completed"]
    ended = await rows(database, "SELECT ended_at, version FROM jobs")
    await repair(database)
    assert await rows(database, "SELECT ended_at, version FROM jobs") == ended


async def test_a_job_with_a_live_sample_is_not_completed(database: Database) -> None:
    taken = await pending_sweeper(database, items=2)
    await answer(database, taken, calls=taken.calls[:1])
    await advance(database)
    await repair(database)
    assert await job_states(database) == ["running"]


async def test_a_job_all_of_whose_samples_failed_is_completed(database: Database) -> None:
    taken = await pending_sweeper(database, items=2)
    await answer(database, taken, Failure(kind=FailureKind.REFUSED))
    await advance(database)
    await repair(database)
    assert await job_states(database) == ["completed"]
    assert await sample_states(database) == [3, 3]


async def test_lanes_with_work_are_those_with_pending_calls_or_ready_samples(database: Database) -> None:
    await furnish(database, items=1)
    assert await lanes_with_work(database) == set()
    await submit_job(database, "closed-book")
    assert await lanes_with_work(database) == {Lane.JUDGE}
    await advance(database)
    assert await lanes_with_work(database) == {Lane.GENERATE}
    await claim(database)
    assert await lanes_with_work(database) == set()


async def test_a_queue_row_of_an_answered_call_does_not_stop_the_sweeper(database: Database) -> None:
    taken = await pending_sweeper(database)
    await answer(database, taken)
    await run_sql(
        database,
        "INSERT INTO queue (lane, model_id, place, call_id, lapses, token, claim_until)"
        " SELECT lane, model_id, 100, id, 2, gen_random_uuid(), now() - interval '1 s' FROM calls",
    )
    await repair(database)
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 1
