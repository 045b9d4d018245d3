"""Answers that a server ended before the model did: what came before is kept, and how it ended is named.

`tests/recorded/endings.jsonl` holds what real servers sent, with their versions and the date.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from shared import canonical
from shared.calls import Completion, Decoding, ModelAnswer
from shared.models.chat import ChatFailed
from shared.models.ollama import Ollama
from shared.models.openai_compatible import OpenAICompatible
from shared.rag.provenance import SampleFacts, classify_ending, make_outcome
from shared.replies import Failure, FailureKind, Generated
from shared.runtime.prompting import read_reply
from shared.settings import REPOSITORY
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.doubles.streams import events, lines

pytestmark = pytest.mark.anyio

GREEDY = Decoding(temperature=0.0, max_tokens=10)
RECORDED = REPOSITORY / "tests" / "recorded" / "endings.jsonl"
NOT_UTF8 = {"code": 500, "message": "The model produced output that does not match the expected peg-native format"}


def recorded(server: str, name: str) -> Reply:
    rows = map(json.loads, RECORDED.read_text().splitlines())
    found = next(row["response"] for row in rows if (row["server"], row["name"]) == (server, name))
    return Reply(found["status"], found["body"].encode(), {"Content-Type": found["content_type"]})


def chunk(content: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}]}


def line(content: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "done": False, **more}


def sse(*chunks: Any, **more: Any) -> Reply:
    return Reply(body=events(*chunks), headers={"Content-Type": "text/event-stream"}, **more)


def ndjson(*pieces: Any, **more: Any) -> Reply:
    return Reply(body=lines(*pieces), headers={"Content-Type": "application/x-ndjson"}, **more)


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with chat_server(lambda _: as_json({})) as double:
        yield double


async def ask(server: ChatServer, reply: Reply) -> ModelAnswer:
    server.respond = lambda _: reply
    client = OpenAICompatible(server.url, model="m", timeout_s=30)
    try:
        return await client.complete("q", GREEDY, seed=5)
    finally:
        await client.close()


async def ask_ollama(server: ChatServer, reply: Reply) -> ModelAnswer:
    server.respond = lambda _: reply
    async with Ollama(server.url, {"num_ctx": 1024}) as api:
        return (await api.chat("m", "q", GREEDY, 5)).answer


async def test_text_before_an_invalid_byte_is_kept(server: ChatServer) -> None:
    reply = await ask(server, recorded("llama-server", "a byte that is no UTF-8"))
    assert (reply.text, reply.finish_reason) == ("a opzz", "broken_byte")


async def test_an_answer_that_begins_with_an_invalid_byte_is_empty(server: ChatServer) -> None:
    reply = await ask(server, as_json({"error": NOT_UTF8}, 500))
    assert (reply.text, reply.finish_reason) == ("", "broken_byte")


async def test_text_before_a_repetition_stop_is_kept(server: ChatServer) -> None:
    reply = await ask_ollama(server, recorded("Ollama", "a token 31 times"))
    assert reply.finish_reason == "repetition"
    assert (reply.text[:3], reply.text[-93:]) == (" +b", ".\n\n" * 31)


@pytest.mark.parametrize("reply", [ndjson(line("2 + 2"), {"error": "prediction aborted, token repeat limit reached"})])
async def test_a_repetition_stop_that_is_called_an_error_is_one_all_the_same(server: ChatServer, reply: Reply) -> None:
    found = await ask_ollama(server, reply)
    assert (found.text, found.finish_reason) == ("2 + 2", "repetition")


async def test_an_answer_that_ollama_ends_for_no_known_reason_is_cut(server: ChatServer) -> None:
    reply = await ask_ollama(server, ndjson(line("The answer"), line(" is")))
    assert (reply.text, reply.finish_reason) == ("The answer is", "cut")


async def test_an_answer_at_the_token_limit_comes_with_its_figures(server: ChatServer) -> None:
    reply = await ask(server, recorded("llama-server", "length, with log-probabilities"))
    assert (reply.finish_reason, reply.prompt_tokens, reply.completion_tokens) == ("length", 20, 6)
    assert "".join(token.text for token in reply.tokens) == reply.text
    assert all(len(token.top) == 2 for token in reply.tokens)
    assert None not in (reply.prompt_ms, reply.completion_ms)
    found = await ask(server, recorded("vLLM", "length"))
    assert (found.text, found.finish_reason) == ("a zorlo b = (2*a)*b. 2*7=4. 4*7=", "length")
    assert (found.prompt_tokens, found.completion_tokens) == (20, 24)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (sse(chunk("half")), FailureKind.CONNECTION),
        (sse(chunk("half"), missing=10), FailureKind.CONNECTION),
        (sse(chunk("half"), missing=10, reset=True), FailureKind.CONNECTION),
        (sse(chunk("half"), "[DONE]"), FailureKind.CONNECTION),
        (sse(chunk("half"), {"error": {"message": "EngineCore encountered an issue"}}), FailureKind.BACKEND_ERROR),
        (sse(chunk("half"), {"error": "Request failed", "error_type": "generation"}), FailureKind.BACKEND_ERROR),
        (sse(chunk("half"), {"object": "error", "message": "?"}), FailureKind.BACKEND_ERROR),
        (sse(chunk("half"), chunk("", "abort"), "[DONE]"), FailureKind.BACKEND_ERROR),
        (Reply(body=b"data: {", headers={"Content-Type": "text/event-stream"}), FailureKind.BACKEND_ERROR),
        (as_json({"error": {"code": 500, "message": "another error"}}, 500), FailureKind.BACKEND_ERROR),
    ],
    ids=[
        "no end", "closed", "reset", "over without an end", "engine", "generation", "an old error", "given up",
        "half an event", "another 500",
    ],
)  # fmt: skip
async def test_half_a_stream_is_no_answer(server: ChatServer, reply: Reply, kind: FailureKind) -> None:
    with pytest.raises(ChatFailed) as caught:
        await ask(server, reply)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ndjson(line("half"), missing=10), FailureKind.CONNECTION),
        (ndjson(line("half"), missing=10, reset=True), FailureKind.CONNECTION),
        (ndjson(line("half"), {"error": "CUDA error: unspecified"}), FailureKind.CONNECTION),
        (ndjson(line("half"), {"error": "something else"}), FailureKind.BACKEND_ERROR),
        (ndjson(line("half"), line("", done=True, done_reason="unload")), FailureKind.BACKEND_ERROR),
        (ndjson(), FailureKind.BACKEND_ERROR),
        (Reply(body=lines(line("half")) + b'{"mess'), FailureKind.BACKEND_ERROR),
    ],
    ids=["closed", "reset", "its runner died", "another error", "unloaded", "nothing", "half a line"],
)
async def test_half_a_stream_of_ollama_is_no_answer(server: ChatServer, reply: Reply, kind: FailureKind) -> None:
    with pytest.raises(ChatFailed) as caught:
        await ask_ollama(server, reply)
    assert caught.value.kind is kind


async def test_a_prompt_that_does_not_fit_may_be_refused_within_the_stream(server: ChatServer) -> None:
    said = "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"
    for event in ({"error": said, "error_type": "validation"}, {"error": {"message": said, "http_status_code": 422}}):
        with pytest.raises(ChatFailed) as caught:
            await ask(server, sse(event))
        assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED


async def test_a_silence_in_mid_stream_is_a_timeout(server: ChatServer) -> None:
    server.respond = lambda _: sse(chunk("half"), missing=10, hold=True)
    client = OpenAICompatible(server.url, model="m", timeout_s=0.2)
    with pytest.raises(ChatFailed) as caught:
        await client.complete("q", GREEDY, seed=5)
    await client.close()
    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_call_that_is_cancelled_in_mid_stream_hangs_up_and_harms_no_other(server: ChatServer) -> None:
    server.respond = lambda seen: (
        sse(chunk("half"), missing=10, hold=True) if b"hold" in seen.body else sse(chunk("whole", "stop"), "[DONE]")
    )
    client = OpenAICompatible(server.url, model="m", timeout_s=30)
    async with asyncio.timeout(30):
        held = asyncio.create_task(client.complete("hold", GREEDY, seed=5))
        await server.arrived.wait()
        assert (await client.complete("q", GREEDY, seed=5)).text == "whole"
        held.cancel()
        await server.left.wait()
        assert (await client.complete("q", GREEDY, seed=5)).text == "whole"
    await client.close()


def completion(text: str, finish_reason: str) -> Completion:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Completion(
        id=1, started_at=now, ended_at=now, device="cpu:0", epoch=7, concurrency=1, text=text,
        finish_reason=finish_reason,
    )  # fmt: skip


@pytest.mark.parametrize("ended", ["repetition", "broken_byte", "cut", "content_filter"])
def test_a_cut_answer_is_an_answer_whose_ending_is_named(ended: str) -> None:
    reply = read_reply("generate", completion("So 4 = 4 = 4", ended))
    assert reply == Generated(text="So 4 = 4 = 4", truncated=True, truncated_by=ended)
    outcome = make_outcome(reply)
    assert (outcome.truncated, outcome.truncated_by) == (True, ended)
    wrong = classify_ending(SampleFacts(correct=False, truncated=True, truncated_by=ended))
    limit = classify_ending(SampleFacts(correct=False, truncated=True))
    assert wrong.ending is limit.ending
    assert wrong.reason != limit.reason


def test_answers_that_end_as_they_always_did_keep_their_bytes() -> None:
    for ended, truncated in (("stop", False), ("length", True)):
        reply = read_reply("generate", completion("So", ended))
        assert reply == Generated(text="So", truncated=truncated)
        assert b"truncated_by" not in canonical.encode(reply) + canonical.encode(make_outcome(reply))


def test_a_rating_that_was_cut_off_is_truncated() -> None:
    reply = read_reply("judge", completion("the document is", "repetition"))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.TRUNCATED


def test_an_empty_text_says_what_ended_it() -> None:
    reply = read_reply("generate", completion("", "broken_byte"))
    assert reply == Failure(kind=FailureKind.REFUSED, detail="the model gave an empty text, ended by 'broken_byte'")
