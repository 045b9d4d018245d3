"""A server that is asked by worker threads: what is tried again, how long, and what a failure says."""

import time

import pytest
from anyio import to_thread

from shared.errors import Unavailable
from shared.models.embedding import ModelFailed
from shared.models.servers import MAX_ATTEMPTS, Endpoint, read_key
from shared.replies import FailureKind
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server

pytestmark = pytest.mark.anyio

KEY = "sk-1234567890"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


class Script:
    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[Seen] = []

    def respond(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


GOOD = as_json({"a": 1})


async def asked(script: Script, clock: Clock | None = None, timeout_s: float = 60.0, key: str = "") -> dict[str, int]:
    clock = clock or Clock()
    async with chat_server(script.respond) as server:
        endpoint = Endpoint(server.url, key=key, timeout_s=timeout_s, pause=clock.pause, now=clock.now)
        try:
            return await to_thread.run_sync(endpoint.post, "/embed", {"x": 1}, dict[str, int])
        finally:
            endpoint.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_refusal_that_may_pass_is_tried_again_after_growing_pauses(status: int) -> None:
    script, clock = Script(as_json({}, status), as_json({}, status), GOOD), Clock()
    assert await asked(script, clock) == {"a": 1}
    assert clock.pauses == [0.2, 0.4]


async def test_a_broken_connection_is_tried_again() -> None:
    script = Script(Reply(body=b'{"a"', missing=10, reset=True), GOOD)
    assert await asked(script) == {"a": 1}


async def test_the_last_of_a_few_tries_says_what_the_server_said() -> None:
    script = Script(as_json({"error": "overloaded"}, 503))
    with pytest.raises(ModelFailed, match=r"HTTP 503: .*overloaded") as caught:
        await asked(script)
    assert (caught.value.kind, caught.value.what[:14]) == (FailureKind.UNAVAILABLE, "the server at ")
    assert len(script.seen) == MAX_ATTEMPTS


async def test_all_tries_share_one_deadline() -> None:
    script, clock = Script(as_json({}, 503)), Clock()
    with pytest.raises(ModelFailed):
        await asked(script, clock, timeout_s=0.5)
    assert clock.pauses == [0.2]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_other_refusals_are_final(status: int) -> None:
    script = Script(as_json({"error": "no"}, status), GOOD)
    with pytest.raises(ModelFailed, match=f"HTTP {status}"):
        await asked(script)
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "input (900 tokens) is too large to process. increase the physical batch size"}},
        {"error": "`inputs` must have less than 512 tokens. Given: 900"},
        {"error": {"message": "This model's maximum context length is 512 tokens"}},
        {"error": "the input length exceeds the context length"},
    ],
)
@pytest.mark.parametrize("status", [400, 413, 500])
async def test_a_text_that_is_too_long_is_a_fact_about_the_text(body: dict[str, str], status: int) -> None:
    script = Script(as_json(body, status))
    with pytest.raises(ModelFailed) as caught:
        await asked(script)
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert len(script.seen) == 1


async def test_a_server_that_hangs_is_left_after_the_time_limit() -> None:
    script = Script(Reply(hang=True))
    async with chat_server(script.respond) as server:
        endpoint = Endpoint(server.url, timeout_s=0.2, now=time.monotonic)
        with pytest.raises(ModelFailed, match=r"did not answer within 0\.2 s") as caught:
            await to_thread.run_sync(endpoint.post, "/embed", {}, dict[str, int])
        endpoint.close()
    assert caught.value.kind is FailureKind.TIMEOUT
    assert len(script.seen) == 1


async def test_nobody_there() -> None:
    endpoint = Endpoint("http://127.0.0.1:1", timeout_s=60, pause=lambda _: None)
    with pytest.raises(ModelFailed, match=r"127\.0\.0\.1:1/embed") as caught:
        endpoint.get("/embed", dict[str, int])
    assert (caught.value.kind, caught.value.what) == (FailureKind.UNAVAILABLE, "the server at 127.0.0.1:1")


@pytest.mark.parametrize("body", [b"<html>", b'{"a": "text"}', b'{"a": NaN}', b"\xff"])
async def test_an_answer_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ModelFailed, match="cannot be read") as caught:
        await asked(Script(Reply(body=body)))
    assert caught.value.kind is FailureKind.BACKEND_ERROR


async def test_the_key_is_sent_and_never_said() -> None:
    script = Script(as_json({"error": f"invalid key {KEY}"}, 401))
    with pytest.raises(ModelFailed) as caught:
        await asked(script, key=KEY)
    assert script.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)


async def test_proxies_of_the_environment_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await asked(Script(GOOD)) == {"a": 1}


@pytest.mark.parametrize("given", ["http://server", "http://server/", "http://server/v1", "http://server/v1/"])
def test_a_base_url_may_end_in_v1(given: str) -> None:
    assert Endpoint(given).url == "http://server"


def test_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", KEY)
    assert read_key("EMBEDDING_KEY") == KEY
    assert read_key(None) == ""
    monkeypatch.delenv("EMBEDDING_KEY")
    with pytest.raises(Unavailable, match="EMBEDDING_KEY is not set") as caught:
        read_key("EMBEDDING_KEY")
    assert "export EMBEDDING_KEY" in str(caught.value.hint)
