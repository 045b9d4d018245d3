"""Streams of chat completions: answers that were cut, log-probabilities, and what is no piece of an answer."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from services.guard.drivers.plugin import ScriptedServer
from services.guard.guard import Guard, ServedModel
from shared import canonical
from shared.calls import Completion, Decoding, Generate, ModelAnswer, ModelCall, Request, RunRequest
from shared.models.chat import MIN_LOGPROB, ChatFailed, gives_logprobs, parse_tokens
from shared.models.ollama import Ollama
from shared.models.openai_compatible import OpenAICompatible
from shared.params import Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.rag.provenance import SampleFacts, classify_ending, make_outcome
from shared.replies import Failure, FailureKind, Generated, Token
from shared.runtime.prompting import read_reply
from shared.settings import REPOSITORY
from tests.doubles.chat_server import ChatServer, Reply, answer, as_json, by_word, chat_server, events, lines
from tests.doubles.ollama_server import ollama_server
from tests.doubles.puppets import PuppetServer, StepClock

pytestmark = pytest.mark.anyio

# Answers that a server ended before the model did: what came before is kept, and how it ended is named.
#
# `tests/recorded/endings.jsonl` holds what real servers sent, with their versions and the date.

GREEDY = Decoding(temperature=0.0, max_tokens=10)
KEY = "sk-very-secret-0123456789"
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


async def ask(server: ChatServer, reply: Reply | None = None, logprobs: int = 0) -> ModelAnswer:
    if reply is not None:
        server.respond = lambda _: reply
    client = OpenAICompatible(server.url, model="m", api_key=KEY, timeout_s=30)
    try:
        return await client.complete("q", GREEDY, 5, logprobs)
    finally:
        await client.close()


async def ask_ollama(server: ChatServer, reply: Reply | None = None) -> ModelAnswer:
    if reply is not None:
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


def completion(text: str, **more: Any) -> Completion:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Completion(id=1, started_at=now, ended_at=now, device="cpu:0", epoch=7, concurrency=1, text=text, **more)


GENERATE, JUDGE = Request(role="generate", model=""), Request(role="judge", model="")


@pytest.mark.parametrize("ended", ["repetition", "broken_byte", "cut", "content_filter"])
def test_a_cut_answer_is_an_answer_whose_ending_is_named(ended: str) -> None:
    reply = read_reply(GENERATE, completion("So 4 = 4 = 4", finish_reason=ended))
    assert reply == Generated(text="So 4 = 4 = 4", truncated=True, truncated_by=ended)
    outcome = make_outcome(reply)
    assert (outcome.truncated, outcome.truncated_by) == (True, ended)
    wrong = classify_ending(SampleFacts(correct=False, truncated=True, truncated_by=ended))
    limit = classify_ending(SampleFacts(correct=False, truncated=True))
    assert wrong.ending is limit.ending
    assert wrong.reason != limit.reason


def test_answers_that_end_as_they_always_did_keep_their_bytes() -> None:
    for ended, truncated in (("stop", False), ("length", True)):
        reply = read_reply(GENERATE, completion("So", finish_reason=ended))
        assert reply == Generated(text="So", truncated=truncated)
        assert b"truncated_by" not in canonical.encode(reply) + canonical.encode(make_outcome(reply))


def test_a_rating_that_was_cut_off_is_truncated() -> None:
    reply = read_reply(JUDGE, completion("the document is", finish_reason="repetition"))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.TRUNCATED


def test_an_empty_text_says_what_ended_it() -> None:
    reply = read_reply(GENERATE, completion("", finish_reason="broken_byte"))
    assert reply == Failure(kind=FailureKind.REFUSED, detail="the model gave an empty text, ended by 'broken_byte'")


# Log-probabilities on their way from a model server to a reply; whoever does not ask for them notices nothing.

HALF = math.log(1 / 2)
SPOKEN = (
    Token(text="So", logprob=HALF, top={"So": HALF, "other0": -2.0}),
    Token(text=" x", logprob=HALF, top={" x": HALF, "other0": -2.0}),
)
"""What the doubles say of "So x" when two alternatives are wanted."""


@pytest.fixture
async def scoring() -> AsyncIterator[ChatServer]:
    def logprobs(body: dict[str, int]) -> object:
        return by_word("So x", body["top_logprobs"]) if body.get("logprobs") else None

    async with chat_server(lambda seen: answer("So x", logprobs=logprobs(seen.json))) as double:
        yield double


async def test_openai_compatible_servers_are_asked_in_openais_words(scoring: ChatServer) -> None:
    assert (await ask(scoring, logprobs=2)).tokens == SPOKEN
    assert (scoring.seen[0].json["logprobs"], scoring.seen[0].json["top_logprobs"]) == (True, 2)


async def test_a_request_without_log_probabilities_is_what_it_always_was(scoring: ChatServer) -> None:
    assert await ask(scoring) == ModelAnswer(text="So x", finish_reason="stop")
    assert not {"logprobs", "top_logprobs"} & scoring.seen[0].json.keys()


async def test_a_server_that_gives_none_has_answered_all_the_same(scoring: ChatServer) -> None:
    scoring.respond = lambda _: answer("So x")
    assert await ask(scoring, logprobs=2) == ModelAnswer(text="So x", finish_reason="stop")


async def test_ollama_is_asked_by_its_native_fields() -> None:
    async with ollama_server("judge:latest") as (double, http), Ollama(http.url, {"num_ctx": 64}) as api:
        double.answer = lambda _: "So x"
        await api.load("judge:latest")
        plain = (await api.chat("judge:latest", "q", GREEDY, 5)).answer
        asked = (await api.chat("judge:latest", "q", GREEDY, 5, 2)).answer
    without, with_them = double.bodies[1:]
    assert (plain.tokens, asked.tokens) == ((), SPOKEN)
    assert with_them == without | {"logprobs": True, "top_logprobs": 2}


async def test_the_scripted_model_is_certain() -> None:
    said = await ScriptedServer().complete("What is 1 plus 1?", GREEDY, 0, 5)
    assert said.tokens == (Token(text=said.text, logprob=0.0, top={said.text: 0.0}),)
    assert not (await ScriptedServer().complete("What is 1 plus 1?", GREEDY, 0)).tokens


async def test_the_guard_passes_them_on_both_ways() -> None:
    puppet, guard = PuppetServer(), Guard("cpu:0", StepClock())  # type: ignore[arg-type]
    guard.open(7, {1: ServedModel(puppet, 8)})
    calls = [ModelCall(id=n, model_id=1, prompt=str(n), decoding=GREEDY, seed=0, logprobs=n) for n in (0, 5)]
    sent = asyncio.create_task(ended(guard, RunRequest(epoch=7, calls=tuple(calls))))
    await puppet.has(2)
    puppet.answer()
    assert {each.id: each.tokens for each in await sent} == {0: (), 5: (Token(text="re: 5", logprob=-0.5),)}
    assert puppet.alternatives == {"0": 0, "5": 5}


async def ended(guard: Guard, request: RunRequest) -> list[Completion]:
    return [each async for together in guard.run(request) for each in together]


def test_between_worker_and_guard_nothing_is_said_of_what_was_not_asked() -> None:
    call = ModelCall(id=1, model_id=2, prompt="p", decoding=Decoding(), seed=3)
    assert msgspec.to_builtins(call) == {
        "id": 1, "model_id": 2, "prompt": "p", "decoding": {"temperature": 0.0, "max_tokens": 512}, "seed": 3,
    }  # fmt: skip
    assert "tokens" not in msgspec.to_builtins(completion("So x"))


def test_a_reply_keeps_the_tokens() -> None:
    reply = read_reply(GENERATE, completion("So x", tokens=SPOKEN))
    assert reply == Generated(text="So x", tokens=SPOKEN)
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Generated) == reply


def test_a_call_that_wants_them_is_another_call() -> None:
    binding = Binding(pins={"generate": Pin(model_id=1, hash="aa")}, params=Params())
    plain, asking = (bind(Generate(template="cot", question="q", logprobs=n), binding, 0) for n in (0, 5))
    assert plain.key != asking.key
    assert json.loads(asking.body) == json.loads(plain.body) | {"logprobs": 5}


@pytest.mark.parametrize("content", [None, [], "none", [{"token": "a"}], [{"token": 1, "logprob": -1}], {"token": "a"}])
def test_what_cannot_be_read_is_none(content: object) -> None:
    assert parse_tokens(content) == ()


@pytest.mark.parametrize(
    ("given", "kept"),
    [(-1.5, -1.5), (0, 0.0), (0.25, 0.0), (-1e300, MIN_LOGPROB), (-math.inf, MIN_LOGPROB), (math.nan, MIN_LOGPROB)],
)
def test_a_log_probability_is_a_number_that_can_be_stored(given: float, kept: float) -> None:
    [token] = parse_tokens([{"token": "a", "logprob": given, "top_logprobs": [{"token": "b", "logprob": given}]}])
    assert (token.logprob, token.top) == (kept, {"b": kept})


def test_of_alternatives_that_read_alike_the_likeliest_stands() -> None:
    top = [{"token": "\ufffd", "logprob": -3.0}, {"token": "\ufffd", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    assert parse_tokens([{"token": "b", "logprob": -2.0, "top_logprobs": top}])[0].top == {"\ufffd": -1.0, "b": -2.0}


def test_what_a_database_cannot_hold_is_replaced() -> None:
    assert [token.text for token in parse_tokens([{"token": each, "logprob": -1} for each in ("\0", "a\ud83d")])] == [
        "\ufffd",
        "a?",
    ]


async def test_a_refusal_of_so_many_alternatives_is_said(scoring: ChatServer) -> None:
    said = "Input validation error: `top_n_tokens` must be >= 0 and <= 5. Given: 20"
    scoring.respond = lambda _: as_json({"error": said, "error_type": "validation"}, 422)
    with pytest.raises(ChatFailed, match="top_n_tokens") as caught:
        await ask(scoring, logprobs=20)
    assert caught.value.kind is FailureKind.BACKEND_ERROR


# Streams as servers and gateways really send them: heartbeats between the pieces, and what is no piece at all.

Ask = Callable[[ChatServer], Awaitable[ModelAnswer]]


def chunk_text(content: Any, finish_reason: str | None = None) -> str:
    return json.dumps(chunk(content, finish_reason), ensure_ascii=False)


def line_text(content: str, **more: object) -> str:
    return json.dumps(line(content, **more), ensure_ascii=False)


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
    found = await streamed(ask, body, EVENTS)
    assert (found.text, found.finish_reason) == ("the result is 4", "stop")


SEPARATORS = "a\u2028b\u2029c\u0085d"


async def test_a_character_that_ends_lines_elsewhere_stays_in_the_answer() -> None:
    stream = f"data: {chunk_text(SEPARATORS)}\n\ndata: {STOP}\n\n"
    assert (await streamed(ask, stream, EVENTS)).text == SEPARATORS
    stream = f"{line_text(SEPARATORS)}\n{line_text('', done=True, done_reason='stop')}\n"
    assert (await streamed(ask_ollama, stream, LINES)).text == SEPARATORS


@pytest.mark.parametrize("heartbeat", ["", " ", "\r", "\t \r"])
async def test_a_blank_line_of_ollama_is_no_piece_of_the_answer(heartbeat: str) -> None:
    lines = [line_text("the res"), line_text("ult is 4"), line_text("", done=True, done_reason="stop")]
    found = await streamed(ask_ollama, heartbeat + "\n" + f"\n{heartbeat}\n".join(lines), LINES)
    assert (found.text, found.finish_reason) == ("the result is 4", "stop")


NO_JSON = ("ping", "{oops", '{"choices": [', "OK", "'x'", "{'choices': []}", "\udcff", f"{{{KEY}")
NO_PIECE = ("null", "[]", '"ping"', "17", "NaN", "{}", '{"type": "ping"}', '{"choices": 7}', '{"choices": [null]}',
            '{"choices": [{"index": 0}]}', chunk_text([{"type": "text", "text": "4"}]), chunk_text({"text": "4"}),
            chunk_text(4),
            '{"choices": [{"delta": {"content": "a"}, "finish_reason": 3}]}',
            '{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}")  # fmt: skip


@pytest.mark.parametrize("said", NO_JSON)
async def test_what_is_not_json_is_named_and_quoted(said: str) -> None:
    failed = await fail(ask, f"data: {A}\n\ndata: {said}\n\n{WHOLE}", EVENTS)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the model server sent an event that is not JSON: ")
    assert "Error" not in failed.detail
    assert KEY not in failed.detail
    assert len(failed.detail) <= 500


@pytest.mark.parametrize("said", NO_PIECE, ids=[each[:30] for each in NO_PIECE])
async def test_json_that_is_no_piece_of_an_answer_is_a_failure_in_words(said: str) -> None:
    failed = await fail(ask, f"data: {said}\n\n{WHOLE}", EVENTS)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the model server sent ")
    assert "Error" not in failed.detail
    assert "attribute" not in failed.detail
    assert len(failed.detail) <= 500


async def test_a_page_in_place_of_a_stream_is_quoted_in_words() -> None:
    failed = await fail(ask, "<html><body>502 Bad Gateway</body></html>", "text/html")
    assert failed.detail.startswith("the server does not stream its answer: '<html>")


OLLAMA_NO_PIECE = (
    *("ping", "{oops", "null", "[]", "17", '{"message": 7}'),
    '{"logprobs": ' + "[" * 100_000 + "]" * 100_000 + "}",
)


@pytest.mark.parametrize("said", OLLAMA_NO_PIECE, ids=[each[:30] for each in OLLAMA_NO_PIECE])
async def test_a_line_of_ollama_that_is_no_piece_is_a_failure_in_words(said: str) -> None:
    failed = await fail(ask_ollama, f"{line_text('a')}\n{said}\n", LINES)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert failed.detail.startswith("the answer is not in Ollama's format: ")


@pytest.mark.parametrize(
    ("backend", "version", "gives"),
    [
        ("llama.cpp", "b10434-7e4c0a9", True), ("vllm", "0.32.0", True), ("ollama", "0.12.11", True),
        ("ollama", "0.13.0-rc1", True), ("ollama", "0.12.10", False), ("openai", "", False), ("plugin x", "1", False),
    ],
)  # fmt: skip
def test_it_is_known_which_servers_give_log_probabilities(backend: str, version: str, gives: bool) -> None:
    assert gives_logprobs(backend, version) is gives
