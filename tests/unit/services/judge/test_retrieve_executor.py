"""Retrieve calls: what goes to the retriever, and what its answers become."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import msgspec
import pytest

from services.judge.executors import RetrieveExecutor
from shared.calls import Request
from shared.models.retriever_client import RetrieverClient
from shared.replies import Failure, FailureKind, Hit, Reply, Retrieved
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import CallEnd, Wait
from shared.settings import Retrieval, Settings

pytestmark = pytest.mark.anyio

SETTINGS = Settings(retriever_url="http://retriever", retrieval=Retrieval(timeout_s=7))
Handler = Callable[[httpx2.Request], httpx2.Response]


def call(question: str, **more: Any) -> ClaimedCall:
    body = msgspec.json.encode(Request(role="retrieve", model="m", values={"question": question}, k=5, **more))
    return ClaimedCall(id=1, key=b"", role="retrieve", model_id=3, request=body)


async def ends(handler: Handler, *calls: ClaimedCall) -> list[CallEnd]:
    database: Any = SimpleNamespace()
    executor = RetrieveExecutor(database, SETTINGS)
    executor._indexes = {3: 33}
    executor.retriever = RetrieverClient(httpx2.AsyncClient(transport=httpx2.MockTransport(handler)), SETTINGS)
    return [each async for each in executor.run(calls, None)]


async def replies(handler: Handler, *calls: ClaimedCall) -> list[Reply]:
    return [each.reply for each in await ends(handler, *calls) if isinstance(each, AnsweredCall)]


def found(request: httpx2.Request) -> httpx2.Response:
    searches = json.loads(request.content)["searches"]
    hits = [Retrieved(hits=(Hit(document=search["question"], rank=1, score=1.0),)) for search in searches]
    return httpx2.Response(200, content=msgspec.json.encode(hits))


async def test_a_chunk_is_one_request_with_all_that_determines_the_replies() -> None:
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return found(request)

    got = await replies(handler, call("one"), call("two", skip=5, hypothetical=("a", "b")))
    assert [reply.hits[0].document for reply in got if isinstance(reply, Retrieved)] == ["one", "two"]
    [request] = seen
    common = {"index": 33, "k": 5, "duplicates": "same-words", "item": "", "gold": ""}
    assert json.loads(request.content)["searches"] == [
        {**common, "question": "one", "skip": 0, "hypothetical": []},
        {**common, "question": "two", "skip": 5, "hypothetical": ["a", "b"]},
    ]


async def test_the_operators_limit_holds() -> None:
    limits: list[Any] = []

    def late(request: httpx2.Request) -> httpx2.Response:
        limits.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("late")

    got = await replies(late, call("one"), call("two"))
    assert limits == [7]
    assert [reply.kind for reply in got if isinstance(reply, Failure)] == [FailureKind.TIMEOUT] * 2


@pytest.mark.parametrize(("status", "kind"), [(413, FailureKind.CONTEXT_EXCEEDED), (422, FailureKind.BACKEND_ERROR)])
async def test_a_question_that_is_refused_fails_alone(status: int, kind: FailureKind) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        is_bad = any(search["question"] == "bad" for search in json.loads(request.content)["searches"])
        return httpx2.Response(status, text="not this one") if is_bad else found(request)

    first, second, third = await replies(handler, call("one"), call("bad"), call("three"))
    assert isinstance(first, Retrieved)
    assert isinstance(second, Failure)
    assert second.kind is kind
    assert isinstance(third, Retrieved)


@pytest.mark.parametrize("status", [404, 422, 500])
async def test_other_refusals_are_trouble_of_the_retriever(status: int) -> None:
    asked: list[int] = []

    def handler(_: httpx2.Request) -> httpx2.Response:
        asked.append(status)
        return httpx2.Response(status, text="away")

    got = await replies(handler, call("one"), call("two"))
    assert [reply.kind for reply in got if isinstance(reply, Failure)] == [FailureKind.BACKEND_ERROR] * 2
    assert len(asked) == 3


async def test_a_retriever_that_is_not_there_is_waited_for() -> None:
    def gone(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("nobody there")

    assert await ends(gone, call("one")) == [
        Wait(1, "the retriever at retriever", "ConnectError('nobody there')"),
    ]


@pytest.mark.parametrize("status", [401, 403, 429, 502, 503, 504])
async def test_a_retriever_that_refuses_everybody_is_waited_for(status: int) -> None:
    got = await ends(lambda _: httpx2.Response(status, text="no"), call("one"), call("two"))
    assert got == [Wait(1, "the retriever at retriever", f"HTTP {status}: no")] * 2


async def test_what_the_retriever_finds_away_is_waited_for_by_name() -> None:
    what = "Elasticsearch at 127.0.0.1:9200"
    problem = {"type": "unavailable", "detail": f"{what} cannot be reached", "what": what}
    got = await ends(lambda _: httpx2.Response(503, json=problem), call("one"))
    assert got == [Wait(1, what, f"{what} cannot be reached")]


async def test_what_is_there_and_has_nothing_for_a_search_is_a_failure_of_it() -> None:
    problem = {"type": "refused", "detail": "the index is damaged", "what": "the index is damaged"}
    [reply] = await replies(lambda _: httpx2.Response(503, json=problem), call("one"))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.BACKEND_ERROR


async def test_a_key_that_a_server_refuses_fails_the_call_with_the_whole_reason() -> None:
    detail = f"Elasticsearch at 127.0.0.1:9200 refuses us (403): {'action ' * 60}granted by the index privileges [read]"
    problem = {"type": "refused", "detail": detail, "hint": "make a new key", "what": "Elasticsearch at 127.0.0.1:9200"}
    [reply] = await replies(lambda _: httpx2.Response(503, json=problem), call("one"))
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.detail) == (FailureKind.UNAVAILABLE, f"{detail}; make a new key")
