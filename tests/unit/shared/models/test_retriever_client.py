"""The retriever's client: how long it waits for what, and what it makes of a retriever that does not answer."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from shared.models.retriever_client import BUILD_S, NoReply, Orphans, RetrieverClient
from shared.replies import FailureKind, Retrieved, Scored
from shared.settings import Reranker, Retrieval, Settings

pytestmark = pytest.mark.anyio

SETTINGS = Settings(
    retriever_url="http://retriever:8083", retrieval=Retrieval(timeout_s=7, reranker=Reranker(timeout_s=5, batch=4))
)
Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> RetrieverClient:
    return RetrieverClient(httpx2.AsyncClient(transport=httpx2.MockTransport(handler)), SETTINGS)


async def refused(handler: Handler) -> NoReply:
    with pytest.raises(NoReply) as caught:
        await client(handler).search([{}])
    return caught.value


async def test_every_request_has_the_time_limit_of_its_work() -> None:
    limits: dict[tuple[str, str], Any] = {}
    replies: dict[str, Any] = {
        "/search": [{"type": "retrieved", "hits": []}] * 3,
        "/rerank": {"type": "scored", "scores": [0.5] * 9},
        "/indexes": {"corpus": 1, "indexes": []},
        "/orphans": {"orphans": ["one"], "deleted": True},
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        timeout = request.extensions["timeout"]
        assert len(set(timeout.values())) == 1
        limits[request.method, request.url.path] = timeout["read"]
        return httpx2.Response(200, json=replies[request.url.path])

    asked = client(answer)
    assert await asked.search([{}] * 3) == [Retrieved(hits=())] * 3
    assert await asked.rerank("hash", "What?", ["text"] * 9) == Scored(scores=(0.5,) * 9)
    assert (await asked.build_indexes(1)).corpus == 1
    await asked.list_orphans()
    assert await asked.delete_orphans() == Orphans(orphans=("one",), deleted=True)
    assert limits == {
        ("POST", "/search"): 7,
        ("POST", "/rerank"): 5 * (1 + 3),
        ("POST", "/indexes"): BUILD_S,
        ("GET", "/orphans"): BUILD_S,
        ("DELETE", "/orphans"): BUILD_S,
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("nobody"), FailureKind.CONNECTION),
        (httpx2.ReadTimeout("late"), FailureKind.TIMEOUT),
        (httpx2.ConnectTimeout("late"), FailureKind.TIMEOUT),
    ],
)
async def test_a_retriever_that_is_not_heard_of_has_no_status(error: Exception, kind: FailureKind) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise error

    found = await refused(answer)
    assert (found.kind, found.status, found.problem.detail) == (kind, None, "")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(413, FailureKind.CONTEXT_EXCEEDED), (500, FailureKind.BACKEND_ERROR), (503, FailureKind.BACKEND_ERROR)],
)
async def test_what_the_retriever_says_is_read_from_its_problem(status: int, kind: FailureKind) -> None:
    problem = {"type": "unavailable", "detail": "away", "hint": "start it", "what": "Elasticsearch", "status": status}
    found = await refused(lambda _: httpx2.Response(status, json=problem))
    assert (found.kind, found.status) == (kind, status)
    said = found.problem
    assert (said.type, said.detail, said.hint, said.what) == ("unavailable", "away", "start it", "Elasticsearch")


@pytest.mark.parametrize("text", ["<html>Bad gateway</html>", "[]", ""])
async def test_what_another_answers_is_no_problem_of_the_retriever(text: str) -> None:
    found = await refused(lambda _: httpx2.Response(502, text=text))
    assert found.problem.detail == ""
    assert str(found) == f"HTTP 502: {text}"


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'[{"type": "scored", "scores": []}]'])
async def test_an_answer_that_is_none_is_trouble_of_the_retriever(body: bytes) -> None:
    found = await refused(lambda _: httpx2.Response(200, content=body))
    assert (found.kind, found.status) == (FailureKind.BACKEND_ERROR, None)


async def test_it_is_named_by_host_and_port() -> None:
    assert client(lambda _: httpx2.Response(500)).address == "retriever:8083"
