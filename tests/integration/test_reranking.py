"""Rerank calls from a job to a rerank server and back, and what happens when the operator changes the reranker."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from services.judge.executors import RerankExecutor
from services.retriever.app import MAX_RERANKED, create_app
from shared.calls import DocumentRef, Request
from shared.models.retriever_client import RetrieverClient
from shared.models.servers import sigmoid
from shared.pipelines.binding import Pin
from shared.replies import Failure, FailureKind, Reply, Scored
from shared.runtime.pins import NO_RERANKER, pin_reranker
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Lapse, Release, Wait
from shared.settings import Reranker, Retrieval, Settings
from shared.storage.database import Database
from tests.doubles.chat_server import ChatServer, chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, drain, furnish, rows, run_sql, scalar, submit_job

pytestmark = pytest.mark.anyio

LOGITS = {f"{document.problem}\n{document.text}": at / 4 - 2.5 for at, document in enumerate(DOCUMENTS)}
"""From -2.5 upwards: the relevance of the last ones is above one half."""
FLOOR = {"rerank": {"floor": 0.5}}
REGISTERED = "SELECT max(registered_at) FROM models WHERE name = 'reranker'"
_REPLY = msgspec.json.Decoder(Reply)


@dataclass
class Setting:
    client: httpx2.AsyncClient
    executor: RerankExecutor


@pytest.fixture
async def double() -> RetrievalServer:
    return RetrievalServer(logits=LOGITS)


@pytest.fixture
async def server(double: RetrievalServer) -> AsyncIterator[ChatServer]:
    async with chat_server(double.respond) as server:
        yield server


class ByRole(ScriptedExecutor):
    def __init__(self, reranking: RerankExecutor) -> None:
        super().__init__()
        self.reranking = reranking

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.reranking.run(calls, epoch) if calls[0].role == "rerank" else super().run(calls, epoch)


@pytest.fixture
def retriever(database: Database, database_url: str, tmp_path: Path) -> Any:
    @asynccontextmanager
    async def started(**given: Any) -> AsyncIterator[Setting]:
        retrieval = Retrieval(reranker=Reranker(**given))
        settings = Settings(database_url=database_url, data_dir=tmp_path, retrieval=retrieval)
        before = await scalar(database, REGISTERED)
        app = create_app(settings)
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            async with asyncio.timeout(60):
                while before == await scalar(database, REGISTERED):  # noqa: ASYNC110 - the row is all there is
                    await asyncio.sleep(0.01)
            executor = RerankExecutor(database, settings)
            executor.retriever = RetrieverClient(client, settings)
            yield Setting(client, executor)

    return started


async def pinned(database: Database) -> Pin:
    async with database.transaction() as connection:
        return await pin_reranker(connection)


async def replies(database: Database) -> list[Reply]:
    sql = "SELECT reply FROM attempts a JOIN calls c ON c.id = a.call_id WHERE role = 'rerank' ORDER BY c.id, accepted"
    return [_REPLY.decode(bytes(reply)) for (reply,) in await rows(database, sql)]  # type: ignore[call-overload]


def call(pin: Pin, *documents: str, question: str = "question") -> ClaimedCall:
    values: Any = {"question": question, "documents": [DocumentRef(document) for document in documents]}
    body = msgspec.json.encode(Request(role="rerank", model=pin.hash, values=values))
    return ClaimedCall(id=1, key=b"", role="rerank", model_id=pin.model_id, request=body)


async def answers(executor: RerankExecutor, *calls: ClaimedCall) -> list[Reply]:
    return [each.reply async for each in executor.run(calls, None) if isinstance(each, AnsweredCall)]


async def test_a_jobs_documents_are_scored_in_the_order_asked(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, revision="1") as setting:
        await submit_job(database, params=FLOOR)
        await drain(database, ByRole(setting.executor))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    requests = await rows(database, "SELECT request FROM calls WHERE role = 'rerank' ORDER BY id")
    by_hash = {document.hash: f"{document.problem}\n{document.text}" for document in DOCUMENTS}
    assert len(requests) == 5
    for (request,), reply in zip(requests, await replies(database), strict=True):
        asked: Any = msgspec.json.decode(bytes(request))["values"]["documents"]  # type: ignore[call-overload]
        assert isinstance(reply, Scored)
        expected = [sigmoid(LOGITS[by_hash[each["doc"]]]) for each in asked]
        assert reply.scores == pytest.approx(expected)
    assert len(double.bodies) == 5


async def test_without_a_reranker_every_call_says_so_at_once(database: Database, retriever: Any) -> None:
    await furnish(database)
    async with retriever() as setting:
        await submit_job(database, params=FLOOR)
        await drain(database, ByRole(setting.executor))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    found = await replies(database)
    assert len(found) == await scalar(database, "SELECT count(*) FROM calls WHERE role = 'rerank'") == 5
    assert {reply.kind for reply in found if isinstance(reply, Failure)} == {FailureKind.NOT_CONFIGURED}


async def test_trouble_of_the_server_is_tried_again(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database, items=1)
    double.tell("424", 1)
    async with retriever(kind="endpoint", url=server.url) as setting:
        await submit_job(database, params=FLOOR)
        await drain(database, ByRole(setting.executor))
        await run_sql(database, "UPDATE queue SET not_before = NULL")
        await drain(database, ByRole(setting.executor))
    failed, scored = await replies(database)
    assert isinstance(failed, Failure)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert isinstance(scored, Scored)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("too_long", FailureKind.CONTEXT_EXCEEDED),
        ("hang", FailureKind.TIMEOUT),
        ("few", FailureKind.BACKEND_ERROR),
    ],
)
async def test_each_kind_of_trouble_arrives_as_what_it_is(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer, how: str, kind: FailureKind
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, timeout_s=0.3) as setting:
        double.tell(how)
        [reply] = await answers(setting.executor, call(await pinned(database), DOCUMENTS[0].hash, DOCUMENTS[1].hash))
    assert isinstance(reply, Failure)
    assert reply.kind is kind


async def test_a_rerank_server_that_is_away_is_waited_for(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url) as setting:
        double.tell("reset")
        asked = call(await pinned(database), DOCUMENTS[0].hash, DOCUMENTS[1].hash)
        [found] = [each async for each in setting.executor.run([asked], None)]
    assert isinstance(found, Wait)
    assert found.what == f"the server at {server.url.removeprefix('http://')}"


async def test_calls_of_a_chunk_fail_alone(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url) as setting:
        double.tell("too_long", 1)
        pin = await pinned(database)
        found = await answers(setting.executor, *(call(pin, document.hash) for document in DOCUMENTS[:3]))
    assert [type(reply) for reply in found] == [Failure, Scored, Scored]


async def test_no_document_needs_no_server(database: Database, retriever: Any) -> None:
    async with retriever(kind="endpoint", url="http://127.0.0.1:1", timeout_s=0.2) as setting:
        pin = await pinned(database)
        nothing, missing = await answers(setting.executor, call(pin), call(pin, "0" * 64))
    assert nothing == Scored(scores=())
    assert isinstance(missing, Failure)
    assert "does not exist" in missing.detail


async def test_jobs_are_given_what_the_retriever_was_started_with_last(
    database: Database, retriever: Any, server: ChatServer
) -> None:
    first: dict[str, Any] = {"kind": "endpoint", "url": server.url, "model": "m", "revision": "1"}
    changes: list[dict[str, Any]] = [
        {}, {"model": "n"}, {"revision": "2"}, {"activation": "none"}, {"max_chars": 9}, {"protocol": "tei"}
    ]  # fmt: skip
    pins = []
    for change in changes:
        async with retriever(**{**first, **change}):
            pins.append(await pinned(database))
    assert len({pin.hash for pin in pins}) == len(changes)
    async with retriever():
        assert (await pinned(database)).hash == NO_RERANKER.hash.hex()
    async with retriever(**{**first, "url": f"{server.url}/", "batch": 3, "timeout_s": 9}):
        assert await pinned(database) == pins[0]


async def test_without_a_revision_replies_are_reused_inside_a_job_only(
    database: Database, retriever: Any, server: ChatServer
) -> None:
    for revision in ("", "1"):
        async with retriever(kind="endpoint", url=server.url, revision=revision):
            assert (await pinned(database)).pinned is bool(revision)


async def test_a_job_is_not_answered_by_another_reranker_than_it_was_given(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, revision="1"):
        given = await pinned(database)
    changed: tuple[dict[str, Any], ...] = ({"kind": "endpoint", "url": server.url, "revision": "2"}, {})
    for settings in changed:
        async with retriever(**settings) as setting:
            [reply] = await answers(setting.executor, call(given, DOCUMENTS[0].hash))
        assert isinstance(reply, Failure)
        assert reply.kind is FailureKind.BACKEND_ERROR
        assert "another reranker" in reply.detail
    assert double.bodies == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["x"] * (MAX_RERANKED + 1)}, "documents"),
        ({"question": ""}, "question"),
        ({"question": "x" * 32_769}, "question"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
async def test_limits_name_the_field(retriever: Any, database: Database, change: dict[str, Any], field: str) -> None:
    async with retriever() as setting:
        body = {"model": "", "question": "q", "documents": ["d"], **change}
        reply = await setting.client.post("/rerank", json=body)
    assert reply.status_code == 422
    assert f"`{field}`" in reply.json()["detail"]
