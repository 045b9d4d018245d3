"""The retriever against a real database: indexes are built once, survive restarts, refuse damage, and are searched."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import psutil
import pytest
from anyio import from_thread, to_thread
from sqlalchemy import text

from mathrag.errors import Conflict
from mathrag_gate.stack.redis import find_free_port
from services.retriever import builds
from services.retriever.app import MAX_BODY, MAX_SEARCHES, create_app
from services.retriever.builds import BuildQueue, IndexCache
from services.retriever.index import REBUILD, UNSIGNED, Batch, Bm25, Bm25Index, SearchIndex
from services.retriever.searches import MAX_HYPOTHETICAL
from shared import canonical
from shared.models import servers
from shared.replies import Document
from shared.settings import REPOSITORY, Dense, Elasticsearch, Embeddings, Retrieval, Settings, Sparse
from shared.storage.corpora import IndexProgress
from shared.storage.database import Database
from tests.doubles import bert_file
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.doubles.search_server import SearchServer, search_server
from tests.integration.api import Api
from tests.integration.scene import run_sql

pytestmark = pytest.mark.anyio


EMBEDDINGS = REPOSITORY / "models" / "static-embeddings"
TWIN = "How many positive whole numbers less than one hundred are divisible by seven and by two?"
DOCUMENTS = [
    Document(problem="What is the area of a circle with radius 3?", text=r"The area is $\pi r^2 = \boxed{9\pi}$."),
    Document(problem="What is the derivative of $x^3$?", text=r"By the power rule it is $\boxed{3x^2}$."),
    Document(problem=TWIN, text=r"They are multiples of 14, so $\boxed{7}$."),
    Document(problem="", text="A passage about whole numbers that are divisible by seven."),
    Document(problem="求三角形的面积", text="底乘高除以二"),
]


@pytest.fixture
async def corpus(database: Database) -> int:
    return await add_corpus(database, "five", [*DOCUMENTS, DOCUMENTS[0]])


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database_url, data_dir=tmp_path, retrieval=Retrieval(embeddings=Embeddings(path=EMBEDDINGS))
    )


@pytest.fixture
async def client(settings: Settings, database: Database) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(settings)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def add_corpus(database: Database, name: str, documents: list[Document]) -> int:
    digest = canonical.digest([document.hash for document in documents])
    async with database.transaction() as connection:
        for document in documents:
            await connection.execute(
                text("INSERT INTO documents VALUES (:hash, :problem, :body) ON CONFLICT DO NOTHING"),
                {"hash": bytes.fromhex(document.hash), "problem": document.problem, "body": document.text},
            )
        corpus = await connection.scalar(
            text("INSERT INTO corpora (name, hash, documents) VALUES (:name, :hash, :documents) RETURNING id"),
            {"name": name, "hash": digest, "documents": len(documents)},
        )
        for ordinal, document in enumerate(documents):
            await connection.execute(
                text("INSERT INTO corpus_documents VALUES (:corpus, :ordinal, :external, :hash)"),
                {
                    "corpus": corpus,
                    "ordinal": ordinal,
                    "external": str(ordinal),
                    "hash": bytes.fromhex(document.hash),
                },
            )
    return int(corpus)


async def build(client: httpx2.AsyncClient, corpus: int) -> dict[str, dict[str, Any]]:
    reply = await client.post("/indexes", json={"corpus": corpus})
    assert reply.status_code == 200, reply.text
    return {index["kind"]: index for index in reply.json()["indexes"]}


async def search(client: httpx2.AsyncClient, *searches: tuple[int, str, int]) -> list[dict[str, Any]]:
    body = [{"index": index, "question": question, "k": k} for index, question, k in searches]
    reply = await client.post("/search", json={"searches": body})
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()
    return found


async def rows(database: Database, query: str) -> list[Any]:
    async with database.transaction() as connection:
        return list((await connection.execute(text(query))).all())


async def test_is_healthy_and_says_what_is_loaded(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    nothing = {"asked": 0, "hits": 0}
    assert (await client.get("/healthz")).json() == {"status": "ok", "indexes": [], "embeddings": nothing}
    dense = built["dense"]["index"]
    await search(client, (dense, "area", 1), (dense, "area", 2), (dense, "volume", 1))
    await search(client, (dense, "area", 1), (built["sparse"]["index"], "area", 1))
    health = (await client.get("/healthz")).json()
    assert health["embeddings"] == {"asked": 4, "hits": 2}
    assert dense in health["indexes"]


async def test_builds_both_indexes_and_points_the_corpus_to_them(
    client: httpx2.AsyncClient, corpus: int, database: Database
) -> None:
    built = await build(client, corpus)
    assert {kind: index["documents"] for kind, index in built.items()} == {"dense": 5, "sparse": 5}
    [pointers] = await rows(database, "SELECT dense_index, sparse_index FROM corpora")
    assert tuple(pointers) == (built["dense"]["index"], built["sparse"]["index"])
    for row in await rows(database, "SELECT * FROM indexes"):
        assert row.signature.hex() == built[row.kind]["signature"] == canonical.digest(row.params).hex()
        assert row.state == "ready"
        assert len(row.file_hash) == 32


async def test_registers_each_index_as_a_model_without_lease(
    client: httpx2.AsyncClient, corpus: int, database: Database
) -> None:
    built = await build(client, corpus)
    models = await rows(database, "SELECT m.*, i.kind FROM models m JOIN indexes i ON i.model_id = m.id")
    assert len(models) == 2
    for model in models:
        assert (model.backend, model.name, model.needs_lease) == ("retriever", model.kind, False)
        assert model.digest == built[model.kind]["signature"]
        assert model.hash == canonical.digest([model.backend, model.digest, model.version, model.options])


async def test_same_signature_is_never_built_twice(client: httpx2.AsyncClient, corpus: int, database: Database) -> None:
    first = await build(client, corpus)
    second = await build(client, corpus)
    assert [index["reused"] for index in first.values()] == [False, False]
    assert [index["reused"] for index in second.values()] == [True, True]
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO corpora (name, hash, documents) SELECT 'twin', hash, documents FROM corpora")
        )
    third = await build(client, corpus + 1)
    assert {index["index"] for index in third.values()} == {index["index"] for index in first.values()}


async def test_other_content_is_another_index(client: httpx2.AsyncClient, corpus: int, database: Database) -> None:
    other = await add_corpus(database, "two", DOCUMENTS[:2])
    first, second = await build(client, corpus), await build(client, other)
    assert {index["signature"] for index in first.values()}.isdisjoint(i["signature"] for i in second.values())
    assert second["sparse"]["documents"] == 2


async def test_finds_by_terms_and_by_meaning_in_request_order(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    dense, sparse = built["dense"]["index"], built["sparse"]["index"]
    found = await search(
        client,
        (sparse, "circle of radius 5", 1),
        (dense, "how large is a disc", 3),
        (sparse, "三角形", 2),
        (dense, "slope of x cubed", 1),
    )
    assert [len(reply["hits"]) for reply in found] == [1, 3, 1, 1]
    assert [reply["hits"][0]["document"] for reply in found] == [DOCUMENTS[at].hash for at in (0, 0, 4, 1)]
    assert [hit["rank"] for hit in found[1]["hits"]] == [1, 2, 3]
    assert all(reply["type"] == "retrieved" for reply in found)


async def test_pages_and_hypothetical_documents_go_through(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    dense, sparse = built["dense"]["index"], built["sparse"]["index"]
    body: dict[str, Any] = {"index": dense, "question": "how large is a disc", "k": 2}
    asked = [{**body, "k": 4}, body, {**body, "skip": 2}, {**body, "hypothetical": ["The derivative of a power."]}]
    reply = await client.post("/search", json={"searches": asked})
    whole, first, second, moved = (each["hits"] for each in reply.json())
    assert first + second == whole
    assert moved[0]["document"] == DOCUMENTS[1].hash != whole[0]["document"]
    refused = await client.post("/search", json={"searches": [{**asked[3], "index": sparse}]})
    assert refused.status_code == 422
    assert "`searches.0.hypothetical`" in refused.json()["detail"]


async def test_drops_the_near_duplicate_of_the_question_and_names_it(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    for index in built.values():
        [reply] = await search(client, (index["index"], TWIN.upper(), 2))
        assert reply["duplicates"] == [DOCUMENTS[2].hash]
        assert DOCUMENTS[2].hash not in [hit["document"] for hit in reply["hits"]]
        assert [hit["rank"] for hit in reply["hits"]] == [1, 2][: len(reply["hits"])]


async def test_a_question_that_shares_no_term_finds_nothing(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    [reply] = await search(client, (built["sparse"]["index"], "zymurgy", 5))
    assert reply == {"type": "retrieved", "hits": [], "duplicates": []}


async def test_a_batch_gives_what_single_searches_give(client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    asked = [
        (index["index"], document.problem or document.text, 3) for index in built.values() for document in DOCUMENTS
    ]
    together = await search(client, *asked * 4)
    apart = [reply for each in asked for reply in await search(client, each)]
    assert together == apart * 4


async def test_index_survives_a_restart(settings: Settings, client: httpx2.AsyncClient, corpus: int) -> None:
    built = await build(client, corpus)
    asked = [(index["index"], "area of a circle", 3) for index in built.values()]
    before = await search(client, *asked)
    app = create_app(settings)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as fresh,
    ):
        assert await search(fresh, *asked) == before


@pytest.mark.parametrize("damage", ["change", "remove", "manifest"])
async def test_damaged_files_are_refused_and_can_be_rebuilt(
    settings: Settings, client: httpx2.AsyncClient, corpus: int, database: Database, damage: str
) -> None:
    built = await build(client, corpus)
    [row] = await rows(database, "SELECT id, path FROM indexes WHERE kind = 'sparse'")
    file = settings.data_dir / row.path / ("manifest.json" if damage == "manifest" else "documents.bin")
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes() + b" ")
    body = {"searches": [{"index": row.id, "question": "circle", "k": 1}]}
    reply = await client.post("/search", json=body)
    assert reply.status_code == 503
    assert file.name in reply.json()["detail"]
    assert "Build" in reply.json()["hint"]
    again = await build(client, corpus)
    assert (again["sparse"]["reused"], again["dense"]["reused"]) == (False, True)
    assert again["sparse"]["index"] == built["sparse"]["index"]
    assert (await client.post("/search", json=body)).status_code == 200
    assert [each.name[0] for each in (settings.data_dir / "indexes").iterdir()].count(".") == 0


async def test_another_recipe_is_refused(client: httpx2.AsyncClient, corpus: int, database: Database) -> None:
    built = await build(client, corpus)
    await run_sql(database, """UPDATE indexes SET params = params || '{"corpus": "ff"}'""")
    body = {"searches": [{"index": built["dense"]["index"], "question": "circle", "k": 1}]}
    reply = await client.post("/search", json=body)
    assert reply.status_code == 503
    assert "built with another corpus" in reply.json()["detail"]


async def test_unknown_index_and_corpus_are_problems_with_a_hint(client: httpx2.AsyncClient, corpus: int) -> None:
    await build(client, corpus)
    searches = [{"index": index, "question": "circle", "k": 1} for index in (1, 99)]
    for reply in (
        await client.post("/search", json={"searches": searches}),
        await client.post("/indexes", json={"corpus": 99}),
    ):
        assert reply.status_code == 404
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["type"] == "not_found"
        assert reply.json()["hint"]


async def test_empty_corpus_is_refused(client: httpx2.AsyncClient, database: Database) -> None:
    reply = await client.post("/indexes", json={"corpus": await add_corpus(database, "none", [])})
    assert reply.status_code == 422
    assert "no documents" in reply.json()["detail"]
    assert await rows(database, "SELECT * FROM indexes") == []


async def test_limits_name_the_field(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for change, field in (
        ({"k": 0}, "searches.0.k"),
        ({"k": 1001}, "searches.0.k"),
        ({"question": ""}, "searches.0.question"),
        ({"question": "x" * 32_769}, "searches.0.question"),
        ({"index": 0}, "searches.0.index"),
        ({"skip": -1}, "searches.0.skip"),
        ({"skip": 1001}, "searches.0.skip"),
        ({"hypothetical": ["x"] * (MAX_HYPOTHETICAL + 1)}, "searches.0.hypothetical"),
        ({"hypothetical": [""]}, "searches.0.hypothetical.0"),
        ({"mode": "hybrid"}, "searches.0.mode"),
    ):
        with subtests.test(change=change):
            body = {"index": 1, "question": "circle", "k": 1, **change}
            reply = await client.post("/search", json={"searches": [body]})
            assert reply.status_code == 422
            assert reply.headers["content-type"] == "application/problem+json"
            assert f"`{field}`" in reply.json()["detail"]


async def test_too_many_searches_and_too_large_bodies_are_refused(client: httpx2.AsyncClient) -> None:
    searches = [{"index": 1, "question": "circle", "k": 1}] * (MAX_SEARCHES + 1)
    assert (await client.post("/search", json={"searches": searches})).status_code == 422
    large = await client.post("/search", content=b" " * (MAX_BODY + 1))
    assert large.status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps({"searches": searches[:1]}).encode()

    assert (await client.post("/search", content=chunks())).status_code == 413


async def test_an_index_that_was_deleted_from_memory_is_loaded_again(
    client: httpx2.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.retriever.builds.INDEXES", 2)
    built = [
        await build(client, await add_corpus(database, str(at), DOCUMENTS[at : at + 2]))
        for at in range(len(DOCUMENTS) - 1)
    ]
    asked = [(index["index"], "area of whole numbers", 2) for each in built for index in each.values()]
    apart = [reply for each in asked for reply in await search(client, each)]
    assert (await client.get("/healthz")).json()["indexes"] == sorted(index for index, _, _ in asked[-2:])
    assert await search(client, *asked) == apart


async def test_an_index_that_does_not_fit_into_memory_is_refused_and_loaded_ones_stay(
    client: httpx2.AsyncClient, corpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = await build(client, corpus)
    dense, sparse = ((built[kind]["index"], "area of whole numbers", 2) for kind in ("dense", "sparse"))
    before = await search(client, dense)
    with monkeypatch.context() as short:
        short.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100))
        body = {"searches": [{"index": index, "question": question, "k": k} for index, question, k in (dense, sparse)]}
        refused = await client.post("/search", json=body)
        assert (refused.status_code, refused.json()["type"], refused.json()["what"]) == (503, "unavailable", "memory")
        said = f"the sparse index {sparse[0]} of {len(DOCUMENTS)} documents does not fit into memory"
        assert refused.json()["detail"].startswith(said)
        assert "memory" in refused.json()["hint"]
        assert (await client.get("/healthz")).json()["indexes"] == [dense[0]]
        assert await search(client, dense) == before
    assert len(await search(client, dense, sparse)) == 2


async def test_an_index_that_nobody_searches_makes_room_for_another(
    client: httpx2.AsyncClient, corpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = await build(client, corpus)
    dense, sparse = ((built[kind]["index"], "area of whole numbers", 2) for kind in ("dense", "sparse"))
    await search(client, dense)
    free = iter([100, 1 << 40, 1 << 40])
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=next(free)))
    monkeypatch.setattr(builds, "IDLE_S", 0)
    await search(client, sparse)
    assert (await client.get("/healthz")).json()["indexes"] == [sparse[0]]


async def test_searches_at_once_load_an_index_once(
    client: httpx2.AsyncClient, corpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = await build(client, corpus)
    loads: list[int] = []
    real = IndexCache._load

    async def counted(shelf: IndexCache, index: int) -> SearchIndex:
        loads.append(index)
        return await real(shelf, index)

    monkeypatch.setattr(IndexCache, "_load", counted)
    asked = (built["dense"]["index"], "area", 2)
    replies: list[Any] = []

    async def one() -> None:
        replies.append(await search(client, asked))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(one)
    assert loads == [asked[0]]
    assert all(reply == replies[0] for reply in replies)


async def test_builds_at_once_make_each_index_once(client: httpx2.AsyncClient, corpus: int, database: Database) -> None:
    made: list[dict[str, Any]] = []

    async def one() -> None:
        made.append(await build(client, corpus))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert sorted(index["reused"] for each in made for index in each.values()) == [False] * 2 + [True] * 4
    assert len(await rows(database, "SELECT * FROM indexes")) == 2


async def test_a_corpus_larger_than_a_batch_is_read_whole(
    client: httpx2.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "BATCH", 2)
    several = [DOCUMENTS[at] for at in (0, 1, 0, 1, 2, 0, 3, 4)]  # the second batch has only repeated ones
    built = await build(client, await add_corpus(database, "several", several))
    assert {index["documents"] for index in built.values()} == {len(DOCUMENTS)}


async def test_a_corpus_that_was_replaced_meanwhile_points_to_no_stale_index(
    settings: Settings, corpus: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builds.make_index

    async def replaced(*arguments: Any) -> Any:
        made = await real(*arguments)
        await run_sql(database, r"UPDATE corpora SET hash = '\x00'")
        return made

    monkeypatch.setattr(builds, "make_index", replaced)
    with pytest.raises(Conflict, match="deleted or replaced while it was being indexed"):
        await builds.build_corpus(database, settings.data_dir, [Bm25()], BuildQueue(), corpus)
    assert [row.sparse_index for row in await rows(database, "SELECT sparse_index FROM corpora")] == [None]


async def test_a_batch_ends_where_its_texts_are_long(
    client: httpx2.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "BATCH_BYTES", 10)
    seen: list[int] = []
    build_terms = Bm25.build

    def count(self: Bm25, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:
        kept = list(batches)
        seen.extend(map(len, kept))
        return build_terms(self, kept, signature)

    monkeypatch.setattr(Bm25, "build", count)
    texts = ["four", "five5", "six666", "a text that is longer than all", "end"]
    await build(client, await add_corpus(database, "texts", [Document(text=each) for each in texts]))
    assert seen == [3, 1, 1]


async def test_a_cancelled_build_ends_at_the_next_batch_and_leaves_nothing(
    settings: Settings, corpus: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "BATCH", 1)
    queue, seen, scope = BuildQueue(), list[Batch](), anyio.CancelScope()
    progress = list[list[IndexProgress]]()

    class Cancelled(Bm25):
        def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:
            for batch in batches:
                seen.append(batch)
                progress.append(queue.list_builds(corpus))
                if len(seen) == 2:
                    from_thread.run_sync(scope.cancel)
            return super().build(seen, signature)

    with scope:
        await builds.build_corpus(database, settings.data_dir, [Cancelled()], queue, corpus)
    assert (scope.cancelled_caught, len(seen), queue.signatures) == (True, 2, set())
    assert progress == [[IndexProgress(kind="sparse", documents=indexed)] for indexed in (0, 1)]
    assert queue.list_builds(corpus) == []
    assert list(settings.data_dir.iterdir()) == []
    assert await rows(database, "SELECT id FROM indexes") == []


async def test_a_build_ends_with_its_request(settings: Settings, corpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def run_for_ever(*_: object) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    monkeypatch.setattr(builds, "build_corpus", run_for_ever)
    async with serve_app(create_app(settings)) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(build, client, corpus)
            await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(60):
            await ended.wait()


async def test_who_waited_for_a_build_of_the_same_index_reuses_it(
    settings: Settings, corpus: int, database: Database
) -> None:
    queue, made = BuildQueue(), list[builds.Build]()

    async def build_once() -> None:
        made.extend(await builds.build_corpus(database, settings.data_dir, [Bm25()], queue, corpus))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(build_once)
    assert sorted(each.reused for each in made) == [False, True, True]
    assert len({each.index for each in made}) == 1


async def test_documents_that_score_alike_are_ordered_by_hash(client: httpx2.AsyncClient, database: Database) -> None:
    passages = [Document(text=f"same{' ' * blanks}words") for blanks in range(1, 8)]
    built = await build(client, await add_corpus(database, "alike", passages))
    for index in built.values():
        [reply] = await search(client, (index["index"], "same words", 7))
        found = [hit["document"] for hit in reply["hits"]]
        assert found == sorted(passage.hash for passage in passages)


async def test_runs_as_a_process(settings: Settings, database: Database, corpus: int) -> None:
    port = find_free_port()
    environment = {
        **os.environ,
        "MATHRAG_DATABASE_URL": settings.database_url,
        "MATHRAG_DATA_DIR": str(settings.data_dir),
    }
    command = [sys.executable, "-m", "services.retriever", "--port", str(port)]
    process = await anyio.open_process(command, env=environment, stdout=None, stderr=None)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            with anyio.fail_after(120):
                await ready(client)
            built = await build(client, corpus)
            [reply] = await search(client, (built["sparse"]["index"], "radius", 1))
            assert reply["hits"][0]["document"] == DOCUMENTS[0].hash
    finally:
        process.terminate()
        await process.wait()


async def ready(client: httpx2.AsyncClient) -> None:
    while True:
        with contextlib.suppress(httpx2.TransportError):
            if (await client.get("/healthz")).is_success:
                return
        await anyio.sleep(0.1)


# The retriever with other embedders than the shipped one: llama.cpp inside the process, and a server that is away.


@asynccontextmanager
async def retriever_other_embedders(
    database_url: str, folder: Path, **embeddings: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    retrieval = Retrieval.model_validate({"embeddings": embeddings})
    app = create_app(Settings(database_url=database_url, data_dir=folder, retrieval=retrieval))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client,
    ):
        yield client


async def asked(client: httpx2.AsyncClient, index: int, question: str) -> httpx2.Response:
    return await client.post("/search", json={"searches": [{"index": index, "question": question, "k": 5}]})


async def test_a_gguf_file_makes_vectors_inside_the_retriever(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    other_corpus = await add_corpus(database, "five", DOCUMENTS)
    path = bert_file.write(tmp_path / "encoder.gguf")
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path, max_chars=50) as client:
        dense = (await build(client, other_corpus))["dense"]["index"]
        [found] = await search(client, (dense, "area of a circle", 5))
        assert {hit["document"] for hit in found["hits"]} == {document.hash for document in DOCUMENTS}
    other = bert_file.write(tmp_path / "other.gguf", seed=1)
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=other, max_chars=50) as client:
        refused = await asked(client, dense, "area of a circle")
    assert refused.status_code == 503
    assert "built with another embedder" in refused.json()["detail"]


async def test_a_server_that_is_away_takes_no_searches_of_words_with_it(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
    other_corpus, double = await add_corpus(database, "five", DOCUMENTS), RetrievalServer()
    async with chat_server(double.respond) as server:
        given: dict[str, Any] = {"kind": "openai", "url": server.url, "model": "small"}
        async with retriever_other_embedders(database_url, tmp_path, **given) as client:
            built = await build(client, other_corpus)
        double.tell("500")
        async with retriever_other_embedders(database_url, tmp_path, **given) as client:
            words = await asked(client, built["sparse"]["index"], "circle")
            vectors = await asked(client, built["dense"]["index"], "circle")
            double.wrong.left.clear()
            again = await asked(client, built["dense"]["index"], "circle")
    assert words.status_code == 200
    assert vectors.status_code == 503
    assert "HTTP 500" in vectors.json()["detail"]
    assert again.status_code == 200


async def test_a_text_that_is_too_long_is_refused_as_such(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    other_corpus = await add_corpus(database, "five", DOCUMENTS[:1])
    path = bert_file.write(tmp_path / "encoder.gguf")
    long = "circle " * 100
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path) as client:
        dense = (await build(client, other_corpus))["dense"]["index"]
        for search in ({"question": long}, {"question": "circle", "hypothetical": [long]}):
            refused = await client.post("/search", json={"searches": [{"index": dense, "k": 1, **search}]})
            assert refused.status_code == 413
            assert "max_chars" in refused.json()["hint"]
        assert (await asked(client, dense, "circle")).status_code == 200


async def test_a_document_that_is_too_long_stops_the_build_with_the_setting_that_cuts_it(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    other_corpus = await add_corpus(database, "long", [*DOCUMENTS[:1], Document(text="circle " * 100)])
    path = bert_file.write(tmp_path / "encoder.gguf")
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path) as client:
        refused = await client.post("/indexes", json={"corpus": other_corpus})
    assert refused.status_code == 503
    assert "too long" in refused.json()["detail"]
    assert "max_chars" in refused.json()["hint"]
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path, max_chars=100) as client:
        assert (await build(client, other_corpus))["dense"]["documents"] == 2


# Settings that change after a corpus was indexed: the old index is refused when it is searched, and built anew.

POINTERS = "SELECT dense_index, sparse_index FROM corpora"


@pytest.fixture
async def other_corpus(database: Database) -> int:
    return await add_corpus(database, "five", DOCUMENTS)


@pytest.fixture
def double() -> Iterator[SearchServer]:
    with search_server() as double:
        yield double


@pytest.fixture
def where(database_url: str, tmp_path: Path) -> dict[str, Any]:
    return {"database_url": database_url, "data_dir": tmp_path}


@asynccontextmanager
async def retriever_other_settings(where: dict[str, Any], **retrieval: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(Settings(**where, retrieval=Retrieval(**retrieval)))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def refusal(client: httpx2.AsyncClient, index: int) -> dict[str, Any]:
    body = {"searches": [{"index": index, "question": "circle", "k": 1}]}
    reply = await client.post("/search", json=body)
    assert reply.status_code == 503, reply.text
    said: dict[str, Any] = reply.json()
    return said


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"sparse": Sparse(chinese="bigrams", k1=0.9)}, "sparse", "another k1 (1.2, now 0.9)"),
        ({"sparse": Sparse(chinese="jieba")}, "sparse", "another chinese (none, now jieba "),
        ({"dense": Dense(backend="hnsw")}, "dense", "another backend (faiss IndexFlatIP, now faiss "),
    ],
    ids=["parameter", "tokenizer", "back end"],
)
async def test_an_index_of_other_settings_is_refused_and_built_anew(
    where: dict[str, Any], other_corpus: int, database: Database, changed: dict[str, Any], kind: str, words: str
) -> None:
    before = {"sparse": Sparse(chinese="bigrams")}
    async with retriever_other_settings(where, **before) as client:
        first = await build(client, other_corpus)
        answers = await search(client, *((each["index"], "area of a circle", 2) for each in first.values()))
    async with retriever_other_settings(where, **{**before, **changed}) as client:
        said = await refusal(client, first[kind]["index"])
        assert f"it was built with {words}" in said["detail"]
        assert said["hint"] == REBUILD
        second = await build(client, other_corpus)
        assert {each: built["reused"] for each, built in second.items()} == {
            "dense": kind != "dense", "sparse": kind != "sparse",
        }  # fmt: skip
        assert (await search(client, (second[kind]["index"], "circle", 1)))[0]["hits"]
        [pointers] = await rows(database, POINTERS)
        assert pointers == (second["dense"]["index"], second["sparse"]["index"])
        assert len(await rows(database, "SELECT id FROM indexes")) == 3
    async with retriever_other_settings(where, **before) as client:
        assert await build(client, other_corpus) == {
            each: {**built, "reused": True, "seconds": pytest.approx(built["seconds"], abs=60)}
            for each, built in first.items()
        }
        assert await search(client, *((each["index"], "area of a circle", 2) for each in first.values())) == answers


def served(double: SearchServer) -> dict[str, Any]:
    return {
        "dense": Dense(backend="elasticsearch"),
        "sparse": Sparse(backend="elasticsearch"),
        "elasticsearch": Elasticsearch(url=double.url, retries=0),
    }


async def test_indexes_on_a_server_are_built_searched_and_found_again(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, other_corpus)
        asked = [(each["index"], "area of a circle", 3) for each in built.values()]
        before = await search(client, *asked)
        assert all(reply["hits"][0]["document"] == DOCUMENTS[0].hash for reply in before)
    signatures = {kind: f"mathrag-{kind}-{each['signature']}" for kind, each in built.items()}
    assert double.aliases == {f"mathrag-{kind}-corpus-{other_corpus}": {name} for kind, name in signatures.items()}
    async with retriever_other_settings(where, **served(double)) as client:
        assert await search(client, *asked) == before


async def test_an_index_that_the_server_lost_is_refused_and_built_again(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, other_corpus)
    del double.indexes[f"mathrag-sparse-{built['sparse']['signature']}"]
    async with retriever_other_settings(where, **served(double)) as client:
        said = await refusal(client, built["sparse"]["index"])
        assert "no such index" in said["detail"]
        assert said["hint"] == REBUILD
        again = await build(client, other_corpus)
        assert (again["sparse"]["reused"], again["dense"]["reused"]) == (False, True)
        assert again["sparse"]["index"] == built["sparse"]["index"]
        assert (await search(client, (again["sparse"]["index"], "radius", 1)))[0]["hits"]


async def test_an_index_that_cannot_be_looked_at_is_not_built_again(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        await build(client, other_corpus)
        before = dict(double.indexes)
        double.fail("_count", 503)
        reply = await client.post("/indexes", json={"corpus": other_corpus})
        assert (reply.status_code, "is overloaded or not ready" in reply.json()["detail"]) == (503, True)
        assert double.indexes == before
        assert all(each["reused"] for each in (await build(client, other_corpus)).values())


async def test_a_server_that_fails_fails_the_build_and_registers_nothing(
    where: dict[str, Any], other_corpus: int, database: Database, double: SearchServer
) -> None:
    double.credentials = {"nobody"}
    async with retriever_other_settings(where, **served(double)) as client:
        reply = await client.post("/indexes", json={"corpus": other_corpus})
    assert reply.status_code == 503
    assert "`retrieval.elasticsearch.api_key`" in reply.json()["hint"]
    assert await rows(database, "SELECT id FROM indexes") == []


async def test_a_search_that_the_key_does_not_allow_is_no_outage(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, other_corpus)
        double.denied["_msearch"] = (
            "action [indices:data/read/msearch] is unauthorized for API key id [k] of user [elastic], this action is"
            " granted by the index privileges [read,all]"
        )
        said = await refusal(client, built["sparse"]["index"])
    assert said["type"] == "refused"
    assert "refuses access (403): the key or user lacks the index privilege `read`" in said["detail"]
    assert "docs/how-to/retrieval.md#api-key-of-elasticsearch" in said["hint"]


async def test_only_what_nothing_names_is_deleted_from_the_server(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    orphan, evaluated = "mathrag-sparse-" + "0" * 64, "2" * 64
    (where["data_dir"] / "evaluations" / evaluated).mkdir(parents=True)
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, other_corpus)
        others = [
            f"mathrag-dense-{evaluated}", "other-sparse-" + "1" * 64, "mathrag-staging-dense-" + "3" * 64,
            "mathrag-sparse-notes",
        ]  # fmt: skip
        for name in (orphan, *others):
            double.indexes[name] = double.indexes[f"mathrag-sparse-{built['sparse']['signature']}"]
        everything = set(double.indexes)
        assert (await client.get("/orphans")).json() == {"orphans": [orphan], "deleted": False}
        assert set(double.indexes) == everything
        assert (await client.delete("/orphans")).json() == {"orphans": [orphan], "deleted": True}
        assert set(double.indexes) == everything - {orphan}
        assert (await client.delete("/orphans")).json() == {"orphans": [], "deleted": True}


async def test_an_index_that_is_being_built_is_no_orphan(
    where: dict[str, Any], other_corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client, anyio.create_task_group() as tasks:
        double.waits = "_bulk"
        double.answering.clear()
        tasks.start_soon(build, client, other_corpus)
        await to_thread.run_sync(double.waiting.wait)
        asked = [(await client.request(method, "/orphans")).json() for method in ("GET", "DELETE")]
        double.answering.set()
    assert [each["orphans"] for each in asked] == [[], []]
    assert len(double.indexes) == 2


async def test_orphans_are_not_looked_for_without_a_server(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    async with retriever_other_settings(where) as client:
        reply = await client.get("/orphans")
    assert (reply.status_code, "no Elasticsearch server is configured" in reply.text) == (503, True)


# An index whose files are gone comes back by the upload that made it.

POINTED = """
    UPDATE corpora SET dense_index = d.dense_index, sparse_index = d.sparse_index
    FROM corpora d WHERE d.name = 'docs' AND corpora.name = 'mine'"""


async def test_the_same_upload_again_has_the_files_of_its_indexes_looked_at(database: Database, api: Api) -> None:
    assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 201
    await run_sql(database, POINTED)
    assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 200
    assert len(api.asked) == 2
