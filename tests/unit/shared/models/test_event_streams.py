"""Streams as servers and gateways really send them: heartbeats between the pieces, and what is no piece at all."""

import json
from collections.abc import Awaitable, Callable

import pytest

from shared.calls import Decoding, ModelAnswer
from shared.models.chat import ChatFailed
from shared.models.ollama import Ollama
from shared.models.openai_compatible import OpenAICompatible
from shared.replies import FailureKind
from tests.doubles.chat_server import ChatServer, Reply, chat_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
GREEDY = Decoding(temperature=0.0, max_tokens=10)
Ask = Callable[[ChatServer], Awaitable[ModelAnswer]]


def chunk_text(content: object, finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice]}, ensure_ascii=False)


def line_text(content: str, **more: object) -> str:
    return json.dumps({"message": {"role": "assistant", "content": content}, "done": False, **more}, ensure_ascii=False)


async def stream_from_openai(server: ChatServer) -> ModelAnswer:
    client = OpenAICompatible(server.url, model="m", api_key=KEY)
    try:
        return await client.complete("q", GREEDY, seed=5)
    finally:
        await client.close()


async def stream_from_ollama(server: ChatServer) -> ModelAnswer:
    async with Ollama(server.url, {"num_ctx": 256}) as client:
        return (await client.chat("m", "q", GREEDY, 0)).answer


async def streamed(ask: Ask, body: str, kind: str) -> ModelAnswer:
    reply = Reply(body=body.encode("utf-8", "surrogateescape"), headers={"Content-Type": kind})
    async with chat_server(lambda _: reply) as server:
        return await ask(server)


async def fail(ask: Ask, body: str, kind: str) -> ChatFailed:
    with pytest.raises(ChatFailed) as caught:
        await streamed(ask, body, kind)
    return caught.value


EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
A, B, STOP = chunk_text("the res"), chunk_text("ult is 4"), chunk_text("", "stop")
WHOLE = f"data: {A}\n\ndata: {B}\n\ndata: {STOP}\n\n"

HEARTBEATS = {
    "an empty event first": f"data: \n\n{WHOLE}data: [DONE]\n\n",
    "an empty event without a blank": f"data:\n\n{WHOLE}",
    "a field without a colon": f"data\n\n{WHOLE}",
    "an empty event between the pieces": WHOLE.replace("\n\n", "\n\ndata: \n\n"),
    "several lines of nothing": f"data: \ndata:   \ndata:\n\n{WHOLE}",
    "a named heartbeat": f"event: ping\ndata: \n\n{WHOLE}",
    "comments": WHOLE.replace("\n\n", "\n\n: ping\n\n:\n\n: OPENROUTER PROCESSING\n\n"),
    "blank lines": "\n\n\n" + WHOLE.replace("\n\n", "\n\n\n\n"),
    "ids and pauses": WHOLE.replace("data: ", "id: 7\nretry: 3000\nevent: message\ndata: "),
    "a byte order mark": f"\ufeff{WHOLE}",
    "carriage returns and line feeds": f": hi\r\n\r\ndata: \r\n\r\n{WHOLE}".replace("\r", "").replace("\n", "\r\n"),
    "carriage returns alone": f"data: \n\n{WHOLE}".replace("\n", "\r"),
    "no blanks after the colon, and the last word so": f"{WHOLE}data: [DONE]\n\n".replace("data: ", "data:"),
    "no end of the last line": WHOLE.removesuffix("\n\n"),
    "more after the last word": f"{WHOLE}data: [DONE]\n\ndata: bye\n\n",
}


@pytest.mark.parametrize("body", HEARTBEATS.values(), ids=HEARTBEATS)
async def test_an_event_without_data_is_no_piece_of_the_answer(body: str) -> None:
    found = await streamed(stream_from_openai, body, EVENTS)
    assert (found.text, found.finish_reason) == ("the result is 4", "stop")


SEPARATORS = "a\u2028b\u2029c\u0085d"


async def test_a_character_that_ends_lines_elsewhere_stays_in_the_answer() -> None:
    stream = f"data: {chunk_text(SEPARATORS)}\n\ndata: {STOP}\n\n"
    assert (await streamed(stream_from_openai, stream, EVENTS)).text == SEPARATORS
    stream = f"{line_text(SEPARATORS)}\n{line_text('', done=True, done_reason='stop')}\n"
    assert (await streamed(stream_from_ollama, stream, LINES)).text == SEPARATORS


@pytest.mark.parametrize("heartbeat", ["", " ", "\r", "\t \r"])
async def test_a_blank_line_of_ollama_is_no_piece_of_the_answer(heartbeat: str) -> None:
    lines = [line_text("the res"), line_text("ult is 4"), line_text("", done=True, done_reason="stop")]
    found = await streamed(stream_from_ollama, heartbeat + "\n" + f"\n{heartbeat}\n".join(lines), LINES)
    assert (found.text, found.finish_reason) == ("the result is 4", "stop")


NO_JSON = ("ping", "{oops", '{"choices": [', "OK", "'x'", "{'choices': []}", "\udcff", f"{{{KEY}")
NO_PIECE = ("null", "[]", '"ping"', "17", "NaN", "{}", '{"type": "ping"}', '{"choices": 7}', '{"choices": [null]}',
            '{"choices": [{"index": 0}]}', chunk_text([{"type": "text", "text": "4"}]), chunk_text({"text": "4"}), chunk_text(4),
            '{"choices": [{"delta": {"content": "a"}, "finish_reason": 3}]}',
            '{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}")  # fmt: skip


@pytest.mark.parametrize("said", NO_JSON)
async def test_what_is_not_json_is_named_and_quoted(said: str) -> None:
    failed = await fail(stream_from_openai, f"data: {A}\n\ndata: {said}\n\n{WHOLE}", EVENTS)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the model server sent an event that is not JSON: ")
    assert "Error" not in failed.detail
    assert KEY not in failed.detail
    assert len(failed.detail) <= 500


@pytest.mark.parametrize("said", NO_PIECE, ids=[each[:30] for each in NO_PIECE])
async def test_json_that_is_no_piece_of_an_answer_is_a_failure_in_words(said: str) -> None:
    failed = await fail(stream_from_openai, f"data: {said}\n\n{WHOLE}", EVENTS)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the model server sent ")
    assert "Error" not in failed.detail
    assert "attribute" not in failed.detail
    assert len(failed.detail) <= 500


async def test_a_page_in_place_of_a_stream_is_quoted_in_words() -> None:
    failed = await fail(stream_from_openai, "<html><body>502 Bad Gateway</body></html>", "text/html")
    assert failed.detail.startswith("the server does not stream its answer: '<html>")


OLLAMA_NO_PIECE = (
    "ping",
    "{oops",
    "null",
    "[]",
    "17",
    '{"message": 7}',
    '{"logprobs": ' + "[" * 100_000 + "]" * 100_000 + "}",
)


@pytest.mark.parametrize("said", OLLAMA_NO_PIECE, ids=[each[:30] for each in OLLAMA_NO_PIECE])
async def test_a_line_of_ollama_that_is_no_piece_is_a_failure_in_words(said: str) -> None:
    failed = await fail(stream_from_ollama, f"{line_text('a')}\n{said}\n", LINES)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the answer is not Ollama's: ")
