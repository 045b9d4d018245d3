"""Servers of others: what they say that they serve is part of the model, and is looked at in use."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from services.guard.drivers import ports, remote
from services.guard.drivers.ports import Confirmation, DriverError
from services.guard.drivers.remote import RemoteDriver, RemoteServer
from shared.calls import Decoding
from shared.models.chat import BY_BACKEND
from shared.settings import Device, Model
from tests.doubles.chat_server import ChatServer, Reply, Seen, as_json, chat_server

pytestmark = pytest.mark.anyio

# Driver `remote`: what somebody else's server says that it serves is part of the model, and is looked at in use.

INFO = {"model_id": "Qwen/Q", "model_sha": "0123abcd", "version": "3.3.6", "max_total_tokens": 2048}
CARD = {"id": "judge", "object": "model", "created": 1795355523, "owned_by": "vllm", "root": "/models/q",
        "max_model_len": 1024, "permission": [{"id": "modelperm-1", "created": 1795355523}]}  # fmt: skip


class Served:
    def __init__(self) -> None:
        self.pages: dict[str, Any] = {"/v1/models": {"data": [CARD]}, "/version": {"version": "0.32.0"}}
        self.status = 200

    def __call__(self, seen: Seen) -> Reply:
        if self.status != 200:
            return as_json({"error": "busy"}, self.status)
        return as_json(self.pages[seen.path]) if seen.path in self.pages else as_json({"detail": "Not Found"}, 404)


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
async def http(served: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChatServer]:
    monkeypatch.setattr(ports, "INTERVAL_S", 0.0)
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    async with chat_server(served) as server:
        yield server


def driver(http: ChatServer, **fields: Any) -> RemoteDriver:
    return RemoteDriver("judge", Model(driver="remote", url=http.url, **fields), Device())


async def in_use(http: ChatServer) -> RemoteServer:
    made = driver(http)
    await made.identify()
    return await made.start()


async def test_a_model_is_what_its_server_lists_under_its_name(http: ChatServer, served: Served) -> None:
    before = await driver(http).identify()
    assert (before.backend, before.digest, before.version) == ("vllm", None, "0.32.0")
    listed = {"id": "judge", "root": "/models/q", "max_model_len": 1024, "owned_by": "vllm"}
    assert before.options["serves"] == listed
    served.pages["/v1/models"] = {"data": [CARD | {"created": 1, "permission": []}]}
    assert (await driver(http).identify()).hash == before.hash
    served.pages["/version"] = {"version": "0.33.0"}
    assert (await driver(http).identify()).hash != before.hash


async def test_a_server_that_answers_to_any_name_is_what_it_lists(http: ChatServer, served: Served) -> None:
    meta = {"n_params": 985728, "size": 1976832}
    card = {"id": "generator", "created": 3, "owned_by": "llamacpp", "meta": meta}
    props = {"build_info": "b1-7e4c0a9", "chat_template": "{{ messages }}"}
    served.pages = {"/v1/models": {"data": [card]}, "/props": props}
    found = await driver(http).identify()
    listed = {"id": "generator", "meta": meta, "owned_by": "llamacpp"}
    assert (found.backend, found.version, found.options["serves"]) == ("llama.cpp", "b1-7e4c0a9", listed)
    props["chat_template"] = "{{ other }}"
    assert (await driver(http).identify()).hash != found.hash


@pytest.mark.parametrize(
    ("owner", "backend"),
    [("vllm", "vllm"), ("llamacpp", "llama.cpp"), ("sglang", "sglang"), ("openai", "openai"), (None, "openai")],
)
async def test_a_server_is_told_how_to_sample_in_its_own_words(
    http: ChatServer, served: Served, owner: str | None, backend: str
) -> None:
    served.pages["/v1/models"] = {"data": [CARD | {"owned_by": owner}]}
    made = driver(http)
    assert (await made.identify()).options["sampling"] == BY_BACKEND[backend]
    served.pages["/v1/chat/completions"] = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
    await (await made.start()).complete("2 + 2 =", Decoding(), 0)
    assert http.seen[-1].json | BY_BACKEND[backend] == http.seen[-1].json
    assert ("top_k" in http.seen[-1].json) == (backend != "openai")
    if backend == "sglang":  # what its model's generation_config.json would set otherwise
        assert (
            http.seen[-1].json.items() >= {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}.items()
        )


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        ({"/v1/models": {"data": [CARD]}, "/version": {"version": "0.32.0"}}, None),
        ({"/v1/models": {"data": [CARD | {"owned_by": "sglang"}]}}, None),
        ({"/v1/models": {"data": [CARD | {"owned_by": "llamacpp"}]}}, None),
        ({"/info": INFO}, None),
        (
            {"/v1/models": {"data": [CARD]}, "/version": {"version": "0.10.1"}},
            r"needs vLLM 0\.11 or later, not 0\.10\.1",
        ),
        ({"/v1/models": {"data": [CARD]}}, r"needs vLLM 0\.11 or later, not an unknown version"),
        ({"/v1/models": {"data": [CARD | {"owned_by": "openai"}]}}, r"needs llama\.cpp, vLLM, SGLang, .*: remove it"),
    ],
)
async def test_labels_are_constrained_only_by_servers_that_are_known_to_do_it(
    http: ChatServer, served: Served, pages: dict[str, Any], problem: str | None
) -> None:
    served.pages = pages
    plain = await driver(http).identify()
    made = driver(http, constrain_labels=True)
    if problem is None:
        assert (await made.identify()).options == plain.options | {"constrain_labels": True}
        return
    with pytest.raises(DriverError, match=rf"model 'judge': `constrain_labels` {problem}"):
        await made.identify()


async def test_a_server_that_is_away_is_nothing_yet(http: ChatServer, served: Served) -> None:
    served.status = 503
    with pytest.raises(DriverError, match=r"'judge': http.* is away: .*HTTP 503 at /info"):
        await driver(http).identify()
    with pytest.raises(DriverError, match="is away: ConnectError"):
        await RemoteDriver("judge", Model(driver="remote", url="http://127.0.0.1:9"), Device()).identify()


async def test_replies_are_believed_as_long_as_the_server_says_the_same(http: ChatServer, served: Served) -> None:
    server = await in_use(http)
    served.pages["/v1/models"] = {"data": [CARD | {"created": 7}]}
    assert (await server.confirm(), server.alive) == (True, True)


@pytest.mark.parametrize(
    "change",
    [
        {"/info": INFO | {"model_sha": "ffff"}},
        {"/info": INFO | {"version": "3.3.7"}},
        {"/v1/models": {"data": [CARD | {"root": "/models/r"}]}},
        {"/v1/models": {"data": [CARD | {"id": "other"}, CARD | {"id": "another"}]}},
        {"/version": {"version": "0.33.0"}},
    ],
    ids=["revision", "version of TGI", "model", "taken from the list", "version"],
)
async def test_a_server_that_serves_something_else_is_not_believed_any_more(
    http: ChatServer, served: Served, change: dict[str, Any]
) -> None:
    if "/info" in change:
        served.pages["/info"] = INFO
    before = dict(served.pages)
    server = await in_use(http)
    served.pages |= change
    assert (await server.confirm(), server.alive, server.died) == (False, False, False)
    with anyio.fail_after(60):
        await server.wait_exited()
    served.pages = before
    assert not await server.confirm()


async def test_a_server_changed_between_its_identification_and_its_use_is_found_out(
    http: ChatServer, served: Served
) -> None:
    made = driver(http)
    await made.identify()
    served.pages["/version"] = {"version": "0.33.0"}
    assert not await (await made.start()).confirm()


async def test_replies_of_a_server_that_does_not_say_what_it_serves_are_not_believed(
    http: ChatServer, served: Served
) -> None:
    server = await in_use(http)
    served.status, asked = 500, len(http.seen)
    assert (await server.confirm(), server.alive) == (False, True)
    assert len(http.seen) - asked == remote.MAX_CHECKS
    served.status = 200
    assert await server.confirm()


# Looks that confirm replies: shared, later than the reply, and not more often than they may be.


class Server:
    def __init__(self) -> None:
        self.looks: list[asyncio.Future[bool]] = []
        self.confirmation = Confirmation(self._look)

    async def _look(self) -> bool:
        self.looks.append(asyncio.get_running_loop().create_future())
        return await self.looks[-1]

    async def has_looked(self, count: int) -> None:
        while len(self.looks) < count:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)

    def wait(self) -> "asyncio.Task[bool]":
        return asyncio.create_task(self.confirmation.check())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(ports, "INTERVAL_S", 0.0)
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 0.0)
    return Server()


async def test_replies_that_wait_at_once_share_a_look(server: Server) -> None:
    waiting = [server.wait() for _ in range(5)]
    await server.has_looked(1)
    server.looks[0].set_result(False)
    assert await asyncio.gather(*waiting) == [False] * 5
    assert len(server.looks) == 1


async def test_a_reply_that_comes_during_a_look_waits_for_the_next(server: Server) -> None:
    first = server.wait()
    await server.has_looked(1)
    second, third = server.wait(), server.wait()
    await asyncio.sleep(0)
    server.looks[0].set_result(True)
    assert await first
    await server.has_looked(2)
    server.looks[1].set_result(False)
    assert await asyncio.gather(second, third) == [False, False]
    assert len(server.looks) == 2


async def test_a_look_that_was_cancelled_is_made_again_for_those_who_wait(server: Server) -> None:
    done = server.wait()
    await server.has_looked(1)
    server.looks[0].set_result(True)
    await done
    cancelled, waiting = server.wait(), server.wait()
    await server.has_looked(2)
    cancelled.cancel()
    await server.has_looked(3)
    server.looks[2].set_result(False)
    assert not await waiting


async def test_while_calls_run_looks_keep_their_interval(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.wait()
    await server.has_looked(1)
    server.looks[0].set_result(True)
    assert await first
    monkeypatch.setattr(ports, "INTERVAL_S", 3600.0)
    with server.confirmation.track_call():
        with server.confirmation.track_call():
            waiting = server.wait()
        await asyncio.sleep(0.01)
        assert len(server.looks) == 1
    await server.has_looked(2)
    server.looks[1].set_result(True)
    assert await waiting


async def test_looks_of_an_idle_server_keep_a_shorter_interval(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 3600.0)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(ports.asyncio, "sleep", sleep)
    for number in range(2):
        waiting = server.wait()
        while len(server.looks) <= number:
            await asyncio.wait([waiting], timeout=0.01)
        server.looks[number].set_result(True)
        assert await waiting
    assert pauses[0] == 0.0
    assert 3500 < pauses[1] <= 3600
