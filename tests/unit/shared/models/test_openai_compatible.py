"""The client of OpenAI-compatible and TGI servers, against a server that speaks the protocol and breaks it."""

import base64
from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest
from huggingface_hub import get_async_session

from services.guard.drivers.ports import DriverError
from services.guard.drivers.remote import RemoteDriver
from shared.calls import Decoding, ModelAnswer
from shared.models import openai_compatible
from shared.models.chat import BY_BACKEND, TGI, ChatFailed, PromptCut, ServerAway, ServerUnreached
from shared.models.openai_compatible import ForeignHost, OpenAICompatible
from shared.replies import FailureKind
from shared.settings import Device, Model
from tests.doubles.chat_server import ChatServer, Reply, Seen, answer, as_json, chat_server
from tests.doubles.ollama_server import ollama_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
GREEDY = Decoding(temperature=0.0, max_tokens=10)

# As the servers write them (TGI: router/src/validation.rs; llama.cpp: tools/server; vLLM: its OpenAI front end).
TGI_TOTAL = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."
    " Given: 4000 `inputs` tokens and 512 `max_new_tokens`"
)
TGI_INPUT = "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"
LLAMA = "the request exceeds the available context size, try increasing it"
VLLM = "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens."
SGLANG = "The input (2100 tokens) is longer than the model's context length (2048 tokens)."


# vLLM 0.32.0, recorded 2026-11-22.
VLLM_MAX_TOKENS = (
    "max_tokens=5000 cannot be greater than max_model_len=1024. Please request fewer output tokens."
    " (parameter=max_tokens, value=5000)"
)


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with chat_server(lambda _: answer("hi")) as double:
        yield double


async def ask(server: ChatServer, prompt: str = "q", *, path: str = "", timeout_s: float = 30.0) -> ModelAnswer:
    client = OpenAICompatible(server.url + path, model="a-model", api_key=KEY, timeout_s=timeout_s)
    try:
        with anyio.fail_after(60):
            return await client.complete(prompt, GREEDY, seed=5)
    finally:
        await client.close()


async def failure(server: ChatServer, reply: Reply, *, timeout_s: float = 30.0) -> ChatFailed:
    server.respond = lambda _: reply
    with pytest.raises(ChatFailed) as caught:
        await ask(server, timeout_s=timeout_s)
    return caught.value


async def test_a_prompt_goes_out_as_one_user_message_with_its_decoding(server: ChatServer) -> None:
    await ask(server, "What is $x^2$? 求")
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.json["messages"] == [{"role": "user", "content": "What is $x^2$? 求"}]
    sent = {name: seen.json[name] for name in ("model", "temperature", "max_tokens", "seed")}
    assert sent == {"model": "a-model", "temperature": 0.0, "max_tokens": 10, "seed": 5}
    assert (seen.json["stream"], seen.json["stream_options"]) == (True, {"include_usage": True})


LABELS = ("[[1]]", "[[2]]")
GRAMMAR = r'root ::= "[[1]]" | "[[2]]"'
PATTERN = r"(\[\[1\]\]|\[\[2\]\])"


@pytest.mark.parametrize(
    ("backend", "field"),
    [
        ("llama.cpp", {"grammar": GRAMMAR}),
        ("vllm", {"structured_outputs": {"choice": ["[[1]]", "[[2]]"]}}),
        ("sglang", {"regex": PATTERN}),
        ("tgi", {"response_format": {"type": "regex", "value": PATTERN}}),
    ],
)
async def test_a_server_is_told_in_its_own_words_which_replies_are_allowed(
    server: ChatServer, backend: str, field: dict[str, object]
) -> None:
    client = OpenAICompatible(server.url, model="m", backend=backend)
    for choices in ((), LABELS):
        await client.complete("q", GREEDY, seed=5, choices=choices)
    await client.close()
    free, constrained = (seen.json for seen in server.seen)
    assert constrained == free | field
    assert not free.keys() & field.keys()


async def test_a_server_of_an_unknown_kind_is_not_asked_for_what_it_may_ignore(server: ChatServer) -> None:
    client = OpenAICompatible(server.url, model="m")
    with pytest.raises(ValueError, match=r"`constrain_labels` needs llama\.cpp, vLLM"):
        await client.complete("q", GREEDY, seed=5, choices=LABELS)
    await client.close()
    assert server.seen == []


async def test_a_server_that_refuses_to_constrain_a_reply_fails_the_call(server: ChatServer) -> None:
    server.respond = lambda _: as_json({"error": "grammar is not supported", "error_type": "validation"}, 422)
    client = OpenAICompatible(server.url, model="m", backend="tgi")
    with pytest.raises(ChatFailed, match="grammar is not supported") as caught:
        await client.complete("q", GREEDY, seed=5, choices=LABELS)
    await client.close()
    assert caught.value.kind is FailureKind.BACKEND_ERROR


@pytest.mark.parametrize("backend", sorted(BY_BACKEND))
async def test_every_sampling_setting_is_sent_with_the_value_that_changes_nothing(
    server: ChatServer, backend: str
) -> None:
    client = OpenAICompatible(server.url, model="m", backend=backend)
    await client.complete("q", Decoding(temperature=0.7, max_tokens=10), seed=5)
    await client.close()
    known = {"model", "messages", "temperature", "max_tokens", "seed", "stream", "stream_options"}
    assert {name: value for name, value in server.seen[0].json.items() if name not in known} == BY_BACKEND[backend]


def test_text_generation_inference_is_not_sent_what_it_refuses_or_turns_round() -> None:
    assert not {"top_p", "presence_penalty", "repetition_penalty"} & TGI.keys()


async def test_a_base_url_may_end_in_v1(server: ChatServer) -> None:
    await ask(server, path="/v1")
    assert server.seen[0].path == "/v1/chat/completions"


async def test_a_reply_comes_back_with_reason_and_tokens(server: ChatServer) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    server.respond = lambda _: answer("[[4]]", "length", usage)
    assert await ask(server) == ModelAnswer(text="[[4]]", finish_reason="length", prompt_tokens=7, completion_tokens=2)


async def test_a_server_that_counts_no_tokens_is_believed_all_the_same(server: ChatServer) -> None:
    reply = await ask(server)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("hi", None, None)


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        ({"prompt_ms": 12.5, "predicted_ms": 3}, (12.5, 3.0)),
        ({"prompt_ms": -1, "predicted_ms": 1e300}, (None, None)),
        ({"prompt_ms": "fast"}, (None, None)),
        (["prompt_ms"], (None, None)),
    ],
)
async def test_the_servers_own_times_are_kept_where_they_are_times(
    server: ChatServer, timings: object, expected: tuple[float | None, float | None]
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    server.respond = lambda _: as_json({"choices": [choice], "timings": timings})
    reply = await ask(server)
    assert (reply.prompt_ms, reply.completion_ms) == expected


@pytest.mark.parametrize(
    ("usage", "timings", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}}, None, 5),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, None, 0),
        ({"prompt_tokens_details": {"cached_tokens": 5}}, {"cache_n": 4}, 5),
        ({}, {"cache_n": 4, "prompt_n": 3}, 4),
        ({}, {"prompt_n": 3}, None),
        ({"prompt_tokens_details": None}, None, None),
        ({"prompt_tokens_details": {}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": "5"}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 8}}, None, None),
    ],
)
async def test_tokens_from_the_servers_cache_are_known_only_where_it_reports_a_possible_number(
    server: ChatServer, usage: dict[str, object], timings: object, expected: int | None
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    counted = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8, **usage}
    server.respond = lambda _: as_json({"choices": [choice], "usage": counted, "timings": timings})
    reply = await ask(server)
    assert (reply.prompt_tokens, reply.cached_tokens) == (7, expected)


async def test_a_server_that_counts_no_prompt_tokens_has_none_in_its_cache(server: ChatServer) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    server.respond = lambda _: as_json({"choices": [choice], "timings": {"cache_n": 4}})
    assert (await ask(server)).cached_tokens is None


@pytest.mark.parametrize(("counted", "whole"), [(4, True), (7, True), (3, False)])
async def test_a_server_that_counts_fewer_tokens_than_words_has_cut_the_prompt(
    server: ChatServer, counted: int, whole: bool
) -> None:
    server.respond = lambda _: answer("hi", "stop", {"prompt_tokens": counted, "completion_tokens": 1})
    if whole:
        assert (await ask(server, "What is two\nsquared?")).text == "hi"
        return
    with pytest.raises(PromptCut, match="it has 4 words, the server saw 3 tokens") as caught:
        await ask(server, "What is two\nsquared?")
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED


async def test_a_message_without_content_is_an_empty_text(server: ChatServer) -> None:
    message = {"role": "assistant", "content": None}
    server.respond = lambda _: as_json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert (await ask(server)).text == ""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"code": 400, "message": LLAMA, "type": "exceed_context_size_error", "n_ctx": 64}}),
        (422, {"error": TGI_TOTAL, "error_type": "validation"}),
        (400, {"object": "error", "message": VLLM, "code": 400}),
        (400, {"object": "error", "message": SGLANG, "type": "BadRequestError", "param": None, "code": 400}),
        (400, {"error": {"message": VLLM_MAX_TOKENS, "type": "BadRequestError", "param": "max_tokens", "code": 400}}),
        (422, {"error": TGI_INPUT, "error_type": "validation"}),
    ],
)
async def test_a_prompt_that_does_not_fit_is_a_fact_about_the_prompt(
    server: ChatServer, status: int, body: object
) -> None:
    failed = await failure(server, as_json(body, status))
    assert failed.kind is FailureKind.CONTEXT_EXCEEDED


async def test_what_a_prompt_says_does_not_make_an_overload_a_content_failure(server: ChatServer) -> None:
    failed = await failure(server, as_json({"error": "max_new_tokens: internal"}, 500))
    assert failed.kind is FailureKind.BACKEND_ERROR


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_refuses_everybody_for_now_is_away(server: ChatServer, status: int) -> None:
    failed = await failure(server, as_json({"error": "Model is overloaded"}, status))
    assert isinstance(failed, ServerAway)
    assert failed.kind is FailureKind.UNAVAILABLE
    assert f"HTTP {status}" in failed.detail


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error": "Request failed during generation", "error_type": "generation"}),
        (424, {"error": "Request failed during generation", "error_type": "generation"}),
        (404, {"error": "no such model"}),
        (401, {"error": "who are you"}),
        (422, {"error": "Input validation error: `temperature` must be strictly positive", "error_type": "validation"}),
    ],
)
async def test_every_other_refusal_is_the_servers_and_says_which(
    server: ChatServer, status: int, body: dict[str, str]
) -> None:
    failed = await failure(server, as_json(body, status))
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert str(status) in failed.detail
    assert body["error"] in failed.detail


@pytest.mark.parametrize(
    ("status", "said"), [(429, "Model is overloaded"), (502, "upstream"), (503, "no free slot"), (504, "upstream")]
)
async def test_a_server_that_refuses_everybody_is_away(server: ChatServer, status: int, said: str) -> None:
    failed = await failure(server, as_json({"error": said}, status))
    assert isinstance(failed, ServerAway)
    assert said in failed.detail


async def test_a_server_may_say_within_its_stream_that_it_is_overloaded(server: ChatServer) -> None:
    said = b'data: {"error": {"message": "Model is overloaded", "http_status_code": 422}}\n\n'
    failed = await failure(server, Reply(body=said, headers={"Content-Type": "text/event-stream"}))
    assert isinstance(failed, ServerAway)


async def test_one_request_is_made_per_completion(server: ChatServer) -> None:
    await failure(server, as_json({"error": "overloaded"}, 503))
    await failure(server, Reply(body=b'{"choices"', missing=100, reset=True))
    assert len(server.seen) == 2


async def test_a_long_page_of_errors_is_cut(server: ChatServer) -> None:
    failed = await failure(server, Reply(status=500, body=b"x" * 100_000))
    assert len(failed.detail) < 1000


BROKEN = {
    "no choice": as_json({"object": "chat.completion", "choices": []}),
    "half a document": Reply(body=b'{"choices": [{"index": 0, "mess'),
    "no document": Reply(body=b""),
    "a page": Reply(body=b"<html>welcome</html>", headers={"Content-Type": "text/html"}),
    "no choices at all": as_json({"error": "with status 200"}),
    "another type": as_json([1, 2]),
    "a choice without a message": as_json({"choices": [{"index": 0, "finish_reason": "stop"}]}),
    "bytes that are no text": Reply(body=b"\xff\xfe\x00"),
    "a redirect": Reply(status=307, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"}),
}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b'{"choices": [', missing=500),
        Reply(body=b'{"choices": [', missing=500, reset=True),
        Reply(body=b'{"choices": [', headers={"Transfer-Encoding": "chunked", "Content-Length": ""}),
    ],
    ids=["closed", "reset", "garbage for a chunk"],
)
async def test_a_connection_lost_in_the_middle_of_a_reply_is_a_lost_connection(
    server: ChatServer, reply: Reply
) -> None:
    failed = await failure(server, reply)
    assert failed.kind is FailureKind.CONNECTION
    assert not isinstance(failed, ServerUnreached)


async def test_a_server_that_is_not_there_is_a_lost_connection_that_has_not_seen_the_call() -> None:
    async with chat_server(lambda _: answer("hi")) as gone:
        pass
    with pytest.raises(ServerUnreached) as caught:
        await ask(gone)
    assert caught.value.kind is FailureKind.CONNECTION


async def test_a_server_that_says_nothing_times_out(server: ChatServer) -> None:
    failed = await failure(server, Reply(hang=True), timeout_s=0.1)
    assert failed.kind is FailureKind.TIMEOUT
    with anyio.fail_after(30):
        await server.left.wait()


async def test_a_cancelled_call_hangs_up(server: ChatServer) -> None:
    server.respond = lambda _: Reply(hang=True)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, server)
        with anyio.fail_after(30):
            await server.arrived.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(30):
        await server.left.wait()


async def test_the_key_is_sent_and_stays_out_of_every_error(server: ChatServer) -> None:
    for reply in (as_json({"error": "no"}, 401), Reply(status=500), Reply(hang=True), Reply(missing=9)):
        failed = await failure(server, reply, timeout_s=0.2)
        assert KEY not in f"{failed} {failed.detail} {failed.__cause__!r}"
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}


async def test_a_key_that_the_server_echoes_is_not_kept(server: ChatServer) -> None:
    failed = await failure(server, as_json({"error": f"Incorrect API key provided: {KEY}"}, 401))
    assert "Incorrect API key provided" in failed.detail
    assert KEY not in failed.detail


async def test_without_a_key_none_of_the_machine_is_sent(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_persons_own")
    client = OpenAICompatible(server.url, model="a-model")
    await client.complete("q", GREEDY, seed=0)
    await client.close()
    assert "hf_persons_own" not in str(server.seen[0].headers)


async def test_no_proxy_of_the_environment_sees_a_prompt(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with chat_server(lambda _: answer("from the proxy")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert (await ask(server)).text == "hi"
        await RemoteDriver("m", Model(driver="remote", url=server.url), Device()).identify()
        assert proxy.seen == []
    asked = ["/v1/chat/completions", "/info", "/v1/models", "/version", "/props", "/api/version"]
    assert [seen.path for seen in server.seen] == asked


async def test_no_request_leaves_for_a_host_that_was_not_declared(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = OpenAICompatible(server.url, model="a-model")
    monkeypatch.setattr(openai_compatible, "_declared", {"127.0.0.1:1"})
    with pytest.raises((ForeignHost, ChatFailed)):
        await client.complete("q", GREEDY, seed=0)
    async with get_async_session() as session:
        with pytest.raises(ForeignHost, match="declared model servers"):
            await session.get(server.url)
    await client.close()
    assert server.seen == []


async def test_a_refused_host_is_a_typed_failure_of_the_call(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = OpenAICompatible(server.url, model="a-model")
    monkeypatch.setattr(openai_compatible, "_declared", set())
    with pytest.raises(ChatFailed) as caught:
        await client.complete("q", GREEDY, seed=0)
    assert caught.value.kind is FailureKind.BACKEND_ERROR


async def test_a_redirect_to_another_host_is_not_followed(server: ChatServer) -> None:
    async with chat_server(lambda _: answer("from elsewhere")) as elsewhere:
        server.respond = lambda seen: Reply(status=307, headers={"Location": elsewhere.url + seen.path})
        with pytest.raises((ChatFailed, ForeignHost, httpx2.HTTPError, ValueError)):
            await ask(server)
        assert elsewhere.seen == []


def tgi(seen: Seen) -> Reply:
    info = {"model_id": "Qwen/Qwen2.5-0.5B", "model_sha": "0123abcd", "version": "3.3.6", "max_total_tokens": 4096}
    return as_json(info) if seen.path == "/info" else answer("hi")


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_tgi_names_the_revision_that_it_serves(server: ChatServer, path: str) -> None:
    server.respond = tgi
    identity = await RemoteDriver("judge", Model(driver="remote", url=server.url + path), Device()).identify()
    assert (identity.backend, identity.digest, identity.version) == ("tgi", "0123abcd", "3.3.6")
    assert (identity.needs_lease, identity.device) == (False, "cpu:0")


@pytest.mark.parametrize(
    "reply",
    [as_json({"detail": "Not Found"}, 404), as_json({"hello": 1}), as_json([1]), Reply(body=b"<html>")],
    ids=["404", "no model_id", "a list", "a page"],
)
async def test_a_server_without_info_stays_unpinned(server: ChatServer, reply: Reply) -> None:
    server.respond = lambda _: reply
    identity = await RemoteDriver("judge", Model(driver="remote", url=server.url), Device()).identify()
    assert (identity.backend, identity.digest) == ("openai", None)


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
async def test_an_ollama_server_is_refused_whatever_its_version(path: str) -> None:
    async with ollama_server("m:latest") as (double, http):
        for version in ("0.40.2", "0.1.0"):
            double.version = version
            with pytest.raises(
                DriverError, match=rf"'m': {http.url} is Ollama.*`driver: ollama` with `url: {http.url}`$"
            ):
                await RemoteDriver("m", Model(driver="remote", url=http.url + path), Device()).identify()


async def test_another_revision_is_another_model(server: ChatServer) -> None:
    driver = RemoteDriver("judge", Model(driver="remote", url=server.url), Device())
    server.respond = tgi
    before = (await driver.identify()).hash
    server.respond = lambda _: as_json({"model_id": "Qwen/Qwen2.5-0.5B", "model_sha": "ffff", "version": "3.3.6"})
    assert (await driver.identify()).hash != before


async def test_the_key_of_a_remote_model_comes_from_the_environment_alone(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    driver = RemoteDriver("judge", Model(driver="remote", url=server.url, api_key_env="A_KEY"), Device())
    remote = await driver.start()
    await remote.complete("q", GREEDY, seed=0)
    await remote.stop()
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}
    identity = repr(await driver.identify())
    assert KEY not in identity
    assert base64.b64encode(KEY.encode()).decode() not in identity


def test_a_remote_model_needs_a_url() -> None:
    with pytest.raises(DriverError, match=r"'judge'.*`url`"):
        RemoteDriver("judge", Model(driver="remote"), Device())
