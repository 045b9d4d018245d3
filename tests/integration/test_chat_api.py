"""`POST /v1/chat`: one question is a job like every other, with its price stated before and its cost after."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shared.audit import check
from shared.calls import Generate
from shared.lease import residencies
from shared.params import Params
from shared.rag.answering import make_refusal_outcome
from shared.rag.provenance import make_outcome, make_search, make_single_trace
from shared.replies import require
from shared.runtime import submit
from shared.samples import Decision, Library, Sample, Steps
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished

pytestmark = pytest.mark.anyio

QUESTION = "What is 3 plus 4?"


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 1)
    return empty_api


async def ask(api: Api, status: int, **fields: Any) -> Any:
    reply = await api.http.post("/v1/chat", json={"question": QUESTION, "wait_s": 0, **fields})
    assert reply.status_code == status, reply.text
    return reply.json()


@asynccontextmanager
async def answering(database: Database) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            if await scene.scalar(database, "SELECT count(*) FROM jobs WHERE ended_at IS NULL"):
                await finished(database)
            await asyncio.sleep(0.01)

    working = asyncio.create_task(work())
    yield
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


@contextmanager
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(submit, "LONGEST_PAUSE_S", 0.01)
        yield


async def hold(database: Database, name: str, *, load_s: float = 0.25) -> None:
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, "cpu:0")
        model = await scene.model(database, name)
        epoch = await residencies.insert_wanted(connection, "cpu:0", newest.epoch if newest else 0, [model], "test")
        assert epoch is not None
        await residencies.record_server(connection, epoch, {"model": model, "seconds": load_s})
        if newest is not None:
            await residencies.set_state(connection, newest.epoch, "closed", datetime.now(UTC), "test")
        await residencies.set_state(connection, epoch, "open", datetime.now(UTC))


async def test_an_answer_that_comes_in_time_is_the_reply(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_pause(monkeypatch):
        async with answering(database):
            answer = await ask(api, 200, corpus="docs", wait_s=60)
    assert (answer["state"], answer["pipeline"], answer["extraction"]) == ("completed", "hybrid", "ok")
    assert answer["text"] == f"so \\boxed{{{answer['answer']}}}"
    (document,) = answer["context"]
    assert document["text"] in [each.text for each in scene.DOCUMENTS]
    assert answer["cost"]["calls_made"] == {"retrieve": 2, "generate": 1}
    assert answer["url"] == f"/v1/jobs/{answer['job']}"
    sample = await api.get(f"{answer['url']}/samples/0")
    assert sample["question"] == QUESTION
    assert await check(database, (await api.get(answer["url"]))["id"]) == []


async def test_an_answer_that_is_late_is_a_job_to_poll(api: Api, database: Database) -> None:
    reply = await api.http.post("/v1/chat", json={"question": QUESTION, "wait_s": 0})
    answer = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (202, f"/v1/jobs/{answer['job']}")
    assert (answer["state"], answer["answer"], answer["cost"]) == ("running", None, None)
    assert api.woken == 1
    await finished(database)
    assert (await api.get(reply.headers["location"]))["state"] == "completed"


async def test_the_same_question_again_makes_no_call(api: Api, database: Database) -> None:
    await ask(api, 202, corpus="docs")
    await finished(database)
    await ask(api, 202, corpus="docs")
    await finished(database)
    third = await ask(api, 202, corpus="docs")
    await finished(database)
    assert await scene.scalar(database, "SELECT count(*) FROM datasets WHERE online") == 1
    report = await api.get(f"/v1/jobs/{third['job']}/report")
    assert (report["model_calls"], report["calls_reused"]) == (0, {"retrieve": 2, "generate": 1})


async def test_it_is_in_no_list(api: Api) -> None:
    await ask(api, 202)
    assert (await api.get("/v1/jobs"))["data"] == []
    assert [each["name"] for each in (await api.get("/v1/datasets"))["data"]] == ["items"]
    assert (await api.upload("datasets", submit.dataset_name(QUESTION), [{"question": "x"}])).status_code == 422


async def test_without_a_corpus_it_is_answered_from_memory(api: Api) -> None:
    assert (await ask(api, 202))["pipeline"] == "closed-book"
    assert "`corpus`" in (await ask(api, 422, pipeline="dense"))["detail"]


async def test_its_calls_come_before_those_of_a_batch(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await scene.advance(database)
    await ask(api, 202)
    await scene.advance(database)
    claim = await scene.claim(database, 1)
    assert claim is not None
    assert b"3 plus 4" in claim.calls[0].request


@pytest.mark.parametrize(
    ("pipeline", "resident", "loads", "load_s", "calls"),
    [
        ("closed-book", "a-generator", 0, 0.0, {"generate": 1}),
        ("closed-book", "a-judge", 1, None, {"generate": 1}),
        ("hybrid", "a-generator", 0, 0.0, {"retrieve": 2, "generate": 1}),
        ("mathrag-gate", "a-judge", 1, None, {"retrieve": 2, "judge": 10, "generate": 1}),
        ("mathrag-gate", "a-generator", 2, None, {"retrieve": 2, "judge": 10, "generate": 1}),
        ("hyde", "a-judge", 1, None, {"write": 8, "retrieve": 1, "generate": 1}),
        ("enhanced", "a-judge", 1, None, {"write": 2, "retrieve": 10, "rerank": 1, "generate": 1}),
    ],
)
async def test_the_price_is_stated_before(
    api: Api, database: Database, pipeline: str, resident: str, loads: int, load_s: float | None, calls: dict[str, int]
) -> None:
    await hold(database, resident)
    price = (await ask(api, 202, pipeline=pipeline, corpus="docs"))["price"]
    assert price == {"loads": loads, "load_s": load_s, "loads_back": 0, "calls": calls, "calls_before": 0}


async def test_the_price_knows_what_loads_took_and_what_waits_before(api: Api, database: Database) -> None:
    await hold(database, "a-generator", load_s=9.0)
    await hold(database, "a-generator", load_s=1.5)
    await hold(database, "a-judge", load_s=0.25)
    await scene.add_dataset(database, 7, "batch")
    await api.job("closed-book", dataset="batch")
    await scene.advance(database)
    price = (await ask(api, 202))["price"]
    assert price == {"loads": 1, "load_s": 1.5, "loads_back": 0, "calls": {"generate": 1}, "calls_before": 7}


@pytest.mark.parametrize(("busy", "back"), [("a-judge", 1), ("a-generator", 0)])
async def test_the_price_tells_what_it_costs_others(api: Api, database: Database, busy: str, back: int) -> None:
    await hold(database, "a-judge")
    await api.job("closed-book", models={"generate": busy})
    await scene.advance(database)
    assert (await ask(api, 202))["price"]["loads_back"] == back


async def test_a_price_for_an_unused_device(api: Api) -> None:
    price = (await ask(api, 202, pipeline="mathrag-gate", corpus="docs"))["price"]
    assert (price["loads"], price["load_s"]) == (2, None)


async def test_the_cost_keeps_to_the_price_and_the_gate_asks_the_judge(api: Api, database: Database) -> None:
    stated = (await ask(api, 202, pipeline="mathrag-gate", corpus="docs"))["price"]
    await finished(database)
    (job,) = await scene.rows(database, "SELECT public_id::text FROM jobs")
    gate = (await api.get(f"/v1/jobs/{job[0]}"))["gate"]
    assert gate["strategy"] == "judge"
    assert "fewer than" in gate["reason"]
    made = (await api.get(f"/v1/jobs/{job[0]}/report"))["calls_made"]
    assert made.keys() == stated["calls"].keys()
    assert all(made[role] <= stated["calls"][role] for role in made)


async def test_loads_are_counted_if_they_came_after_the_question(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hold(database, "a-generator")
    await scene.run_sql(database, "UPDATE residencies SET epoch = 1")  # in which `answering` answers
    with no_pause(monkeypatch):
        async with answering(database):
            answer = await ask(api, 200, wait_s=60)
            assert answer["cost"] == {"loads": 0, "calls_made": {"generate": 1}, "calls_reused": {"generate": 0}}
            await scene.run_sql(database, "UPDATE residencies SET wanted_at = now() + interval '1 hour'")
            later = await ask(api, 200, wait_s=60, question="And 5 plus 6?")
    assert later["cost"]["loads"] == 1


async def test_a_question_that_fails_says_why(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("no such luck")
        yield

    scene.install(monkeypatch, "broken", broken)  # type: ignore[arg-type]
    with no_pause(monkeypatch):
        async with answering(database):
            refused = await api.http.post("/v1/chat", json={"question": QUESTION, "pipeline": "broken", "wait_s": 60})
    answer = refused.json()
    assert (refused.status_code, answer["answer"]) == (200, None)
    assert "no such luck" in answer["reason"]


async def test_waiting_holds_no_connection(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    pause = asyncio.sleep

    async def observed(seconds: float) -> None:
        held.append(database.engine.pool.checkedout())  # type: ignore[attr-defined]
        await pause(0)

    monkeypatch.setattr(submit.asyncio, "sleep", observed)
    await ask(api, 202, wait_s=0.2)
    assert held
    assert set(held) == {0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wait_s": 61}, "`wait_s`"),
        ({"question": ""}, "`question`"),
        ({"params": {"gate": {"tua": 1}}}, "`params.gate.tua`"),
        ({"pipeline": "nothing"}, "no pipeline 'nothing'"),
        ({"models": {"generate": "nothing"}}, "`models.generate`"),
        ({"repeats": 2}, "`repeats`"),
    ],
)
async def test_what_cannot_be_asked_is_named(api: Api, change: dict[str, Any], words: str) -> None:
    assert words in (await ask(api, 422, **change))["detail"]


async def test_an_unknown_corpus_is_not_found(api: Api) -> None:
    assert "no corpus" in (await ask(api, 404, corpus="nothing"))["detail"]


def deciding(sample: Sample, params: Params, _library: Library) -> Steps:
    found = require((yield make_search(sample.question, "dense", params)))
    decision = Decision(stage="crag", action="incorrect", detail={"tokens": float(params.compress.tokens)})
    trace = msgspec.structs.replace(make_single_trace(found, "dense", params), decisions=(decision,))
    if "nothing" in sample.question:
        return make_refusal_outcome("nothing is relevant", trace)
    texts = [require(reply) for reply in (yield [Generate(template="cot", question=n) for n in ("first", "second")])]
    return make_outcome(texts[0], (), trace)


async def test_an_answer_tells_what_was_decided_on_the_way(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.install(monkeypatch, "deciding", deciding)
    with no_pause(monkeypatch):
        async with answering(database):
            asked = {"corpus": "docs", "pipeline": "deciding", "params": {"compress": {"tokens": 512}}, "wait_s": 60}
            answer = await ask(api, 200, **asked)
    assert answer["decisions"] == [{"stage": "crag", "action": "incorrect", "detail": {"tokens": 512.0}}]
    assert (answer["text"], answer["refusal"]) == (f"so \\boxed{{{answer['answer']}}}", None)


async def test_a_refusal_is_an_answer_that_says_why(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.install(monkeypatch, "deciding", deciding)
    with no_pause(monkeypatch):
        async with answering(database):
            answer = await ask(api, 200, question="About nothing?", corpus="docs", pipeline="deciding", wait_s=60)
    assert (answer["state"], answer["reason"], answer["extraction"]) == ("completed", None, "refused")
    assert (answer["answer"], answer["text"], answer["refusal"]) == (None, None, "nothing is relevant")
