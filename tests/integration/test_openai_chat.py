"""`/openai/v1` as the unmodified client of OpenAI sees it: models, chat completions, streams, errors by their class."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest

from shared.audit import check
from shared.replies import Failure, FailureKind
from shared.runtime import submit
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

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
async def api(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(submit, "LONGEST_PAUSE_S", 0.01)
    await scene.furnish(database, 1)
    async with serving(database, redis_url, SETTINGS) as api:
        yield api


@pytest.fixture
async def client(api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api.app))
    base = "http://localhost/openai/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="anything", http_client=http, max_retries=0) as client:
        yield client


@asynccontextmanager
async def workers(database: Database, answer: scene.Answer = scene.by_rule) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            if await scene.scalar(database, "SELECT count(*) FROM jobs WHERE ended_at IS NULL"):
                await finished(database, answer)
            await asyncio.sleep(0.01)

    working = asyncio.create_task(work())
    yield
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_conversation_is_answered_by_the_model_that_is_named(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    async with workers(database):
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED)
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == ("chat.completion", MODEL, "stop")
    assert answer.choices[0].message.content
    job = answer.model_extra["mathrag"]["job"]  # type: ignore[index]
    request = await scene.scalar(database, "SELECT convert_from(request, 'UTF8') FROM calls WHERE role = 'generate'")
    assert '{"role":"user","content":"And minus 4?"}' in str(request)
    assert await check(database, job) == []


async def test_a_pipeline_over_a_corpus_is_a_model(client: openai.AsyncOpenAI, database: Database) -> None:
    async with workers(database):
        answer = await client.chat.completions.create(
            model="hybrid@docs", messages=[{"role": "user", "content": "What is 3 plus 4?"}]
        )
    assert answer.choices[0].message.content
    assert answer.model_extra["mathrag"]["context"]  # type: ignore[index]


async def test_a_stream_ends_with_the_usage_where_it_is_wanted(client: openai.AsyncOpenAI, database: Database) -> None:
    async with workers(database):
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
    async with workers(database):
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


@pytest.mark.parametrize(
    ("sent", "param"),
    [
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
    ],
)
async def test_what_is_not_supported_is_refused_by_its_name(
    client: openai.AsyncOpenAI, database: Database, sent: dict[str, Any], param: str
) -> None:
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
    async with workers(database, lambda _: TOO_LONG):
        with pytest.raises(openai.BadRequestError, match="5000 tokens") as too_long:
            await client.chat.completions.create(model=MODEL, messages=ASKED)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "messages")


async def test_neutral_values_that_clients_send_by_themselves_are_taken(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    async with workers(database):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASKED, n=1, top_p=1, presence_penalty=0, frequency_penalty=0, logprobs=False,
            stop=None, user="somebody", metadata={"run": "5"}, store=False, response_format={"type": "text"},
            max_completion_tokens=20, top_logprobs=0, logit_bias={}, modalities=["text"], service_tier="auto", tools=[],
            tool_choice="none", parallel_tool_calls=True, safety_identifier="a", prompt_cache_key="b", verbosity=None,
        )  # fmt: skip
    assert answer.usage is not None


async def test_an_answer_can_be_sent_again_with_all_its_fields(client: openai.AsyncOpenAI, database: Database) -> None:
    async with workers(database):
        answer = await client.chat.completions.create(model=MODEL, messages=ASKED)
        said: Any = {**answer.choices[0].message.model_dump(), "annotations": []}
        again = await client.chat.completions.create(model=MODEL, messages=[*ASKED, said, ASKED[-1]])
    assert again.choices[0].message.content
