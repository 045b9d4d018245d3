"""`POST /v1/chat` and its form at `/openai/v1`: a question is a job, with a price before and a cost after."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec
import openai
import pytest

from shared.audit import check
from shared.calls import Generate
from shared.lease import residencies
from shared.params import Params
from shared.rag.answering import make_refusal_outcome
from shared.rag.provenance import make_outcome, make_search, make_single_trace
from shared.replies import Failure, FailureKind, require
from shared.runtime import submit
from shared.samples import Decision, Library, Sample, Steps
from shared.storage.database import Database
from shared.storage.datasets import name_unlisted
from tests.integration import scene
from tests.integration.api import Api, finished, serving

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
async def answering(database: Database, answer: scene.Answer = scene.by_rule) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            if await scene.scalar(database, "SELECT count(*) FROM jobs WHERE ended_at IS NULL"):
                await finished(database, answer)
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
    assert (await api.upload("datasets", name_unlisted("online", [QUESTION]), [{"question": "x"}])).status_code == 422


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
        ("program-aided", "a-generator", 0, 0.0, {"retrieve": 2, "generate": 2, "execute": 1}),
        ("mathrag-gate", "a-judge", 1, None, {"retrieve": 2, "judge": 15, "generate": 1}),
        ("mathrag-gate", "a-generator", 2, None, {"retrieve": 2, "judge": 15, "generate": 1}),
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


# `/openai/v1` as the unmodified client of OpenAI sees it: models, chat completions, streams, errors by their class.

ASKED: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 3 plus 4?"},
    {"role": "assistant", "content": "7"},
    {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "minus 4?"}]},
]
MODEL = "a-generator"
SETTINGS = scene.SETTINGS.model_copy(update={"models": {MODEL: scene.SETTINGS.models["world-generator"]}})
TOO_LONG = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="5000 tokens, of 4096")


@pytest.fixture
async def openai_api(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(submit, "LONGEST_PAUSE_S", 0.01)
    await scene.furnish(database, 1)
    async with serving(database, redis_url, SETTINGS) as openai_api:
        yield openai_api


@pytest.fixture
async def client(openai_api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=openai_api.app))
    base = "http://localhost/openai/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="anything", http_client=http, max_retries=0) as client:
        yield client


async def test_a_conversation_is_answered_by_the_model_that_is_named(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    async with answering(database):
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED)
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == ("chat.completion", MODEL, "stop")
    assert answer.choices[0].message.content
    job = answer.model_extra["mathrag"]["job"]  # type: ignore[index]
    request = await scene.scalar(database, "SELECT convert_from(request, 'UTF8') FROM calls WHERE role = 'generate'")
    assert '{"role":"user","content":"And minus 4?"}' in str(request)
    assert await check(database, job) == []


async def test_a_pipeline_over_a_corpus_is_a_model(client: openai.AsyncOpenAI, database: Database) -> None:
    async with answering(database):
        answer = await client.chat.completions.create(
            model="hybrid@docs", messages=[{"role": "user", "content": "What is 3 plus 4?"}]
        )
    assert answer.choices[0].message.content
    assert answer.model_extra["mathrag"]["context"]  # type: ignore[index]


async def test_a_stream_ends_with_the_usage_where_it_is_wanted(client: openai.AsyncOpenAI, database: Database) -> None:
    async with answering(database):
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert not chunks[-1].choices


async def test_greedy_requests_share_one_reply_and_sampled_ones_do_not(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    async with answering(database):
        for sampling in ({"temperature": 0}, {"temperature": 0}, {"temperature": 1}, {"temperature": 1},
                         {"temperature": 1, "seed": 5}, {"temperature": 1, "seed": 5}):  # fmt: skip
            await client.chat.completions.create(model=MODEL, messages=ASKED, **sampling)
    assert await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'generate'") == 4


async def test_every_name_in_the_list_of_models_can_be_looked_up(client: openai.AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert "mathrag-gate@docs" in names
    assert "closed-book" in names
    assert "imported" not in names
    assert (await client.models.retrieve("mathrag-gate@docs")).id == "mathrag-gate@docs"
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        await client.models.retrieve("no-such-model")


async def test_what_is_not_supported_is_refused_by_its_name(
    client: openai.AsyncOpenAI, database: Database, subtests: pytest.Subtests
) -> None:
    for sent, param in (
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"top_p": 0.5}, "top_p"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"stop": ["."]}, "stop"),
        ({"stop": "."}, "stop"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.content.type",
        ),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"extra_body": {"min_p": 0.5}}, "min_p"),
        ({"messages": [{"role": "assistant", "content": "7"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages"),
        ({"model": "hybrid@docs"}, "messages"),
    ):
        with subtests.test(sent=sent):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(**{"model": MODEL, "messages": ASKED, **sent})
            assert str(refused.value.param).startswith(param)
            assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 0


async def test_an_unknown_model_and_a_conversation_that_is_too_long_are_different_errors(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    with pytest.raises(openai.NotFoundError, match=r"mathrag-gate@dosc.*mathrag-gate@docs") as unknown:
        await client.chat.completions.create(model="mathrag-gate@dosc", messages=ASKED)
    assert unknown.value.code == "model_not_found"
    async with answering(database, lambda _: TOO_LONG):
        with pytest.raises(openai.BadRequestError, match="5000 tokens") as too_long:
            await client.chat.completions.create(model=MODEL, messages=ASKED)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "messages")


async def test_neutral_values_that_clients_send_by_themselves_are_taken(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    async with answering(database):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASKED, n=1, top_p=1, presence_penalty=0, frequency_penalty=0, logprobs=False,
            stop=None, user="somebody", metadata={"run": "5"}, store=False, response_format={"type": "text"},
            max_completion_tokens=20, top_logprobs=0, logit_bias={}, modalities=["text"], service_tier="auto", tools=[],
            tool_choice="none", parallel_tool_calls=True, safety_identifier="a", prompt_cache_key="b", verbosity=None,
        )  # fmt: skip
    assert answer.usage is not None


async def test_an_answer_can_be_sent_again_with_all_its_fields(client: openai.AsyncOpenAI, database: Database) -> None:
    async with answering(database):
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED)
        said: Any = {**answer.choices[0].message.model_dump(), "annotations": []}
        again = await client.chat.completions.create(model=MODEL, messages=[*ASKED, said, ASKED[-1]])
    assert again.choices[0].message.content
