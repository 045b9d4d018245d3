"""Log-probabilities on their way from a model server to a reply; whoever does not ask for them notices nothing."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from services.guard.drivers.plugin import ScriptedServer
from services.guard.guard import Guard, ServedModel
from shared.calls import Completion, Decoding, Generate, ModelAnswer, ModelCall, RunRequest
from shared.models.chat import MIN_LOGPROB, ChatFailed, parse_tokens
from shared.models.ollama import Ollama
from shared.models.openai_compatible import OpenAICompatible
from shared.params import Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.replies import FailureKind, Generated, Token
from shared.runtime.prompting import read_reply
from tests.doubles.answers import by_word
from tests.doubles.chat_server import ChatServer, answer, as_json, chat_server
from tests.doubles.ollama_server import ollama_server
from tests.doubles.puppets import PuppetServer, StepClock

pytestmark = pytest.mark.anyio

GREEDY = Decoding(temperature=0.0, max_tokens=10)
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


async def ask_for_logprobs(scoring: ChatServer, logprobs: int = 0) -> ModelAnswer:
    client = OpenAICompatible(scoring.url, model="a-model", timeout_s=30)
    try:
        return await client.complete("q", GREEDY, 5, logprobs)
    finally:
        await client.close()


async def test_openai_compatible_servers_are_asked_in_openais_words(scoring: ChatServer) -> None:
    assert (await ask_for_logprobs(scoring, 2)).tokens == SPOKEN
    assert (scoring.seen[0].json["logprobs"], scoring.seen[0].json["top_logprobs"]) == (True, 2)


async def test_a_request_without_log_probabilities_is_what_it_always_was(scoring: ChatServer) -> None:
    assert await ask_for_logprobs(scoring) == ModelAnswer(text="So x", finish_reason="stop")
    assert not {"logprobs", "top_logprobs"} & scoring.seen[0].json.keys()


async def test_a_server_that_gives_none_has_answered_all_the_same(scoring: ChatServer) -> None:
    scoring.respond = lambda _: answer("So x")
    assert await ask_for_logprobs(scoring, 2) == ModelAnswer(text="So x", finish_reason="stop")


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
    assert "tokens" not in msgspec.to_builtins(completion_of())


def test_a_reply_keeps_the_tokens() -> None:
    reply = read_reply("generate", completion_of(SPOKEN))
    assert reply == Generated(text="So x", tokens=SPOKEN)
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Generated) == reply


def completion_of(said: tuple[Token, ...] = ()) -> Completion:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Completion(
        id=1, started_at=now, ended_at=now, device="cpu:0", epoch=7, concurrency=1, text="So x", tokens=said
    )  # fmt: skip


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
        await ask_for_logprobs(scoring, 20)
    assert caught.value.kind is FailureKind.BACKEND_ERROR
