"""The retriever against a real database: indexes are built once, survive restarts, refuse damage, and are searched."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import from_thread
from sqlalchemy import text

from mathrag.stack.redis import find_free_port
from services.retriever import builds
from services.retriever.app import MAX_BODY, MAX_SEARCHES, create_app
from services.retriever.builds import BuildQueue, IndexCache
from services.retriever.index import UNSIGNED, Batch, Bm25, Bm25Index, SearchIndex
from services.retriever.searches import MAX_HYPOTHETICAL
from shared import canonical
from shared.errors import Conflict
from shared.replies import Document
from shared.settings import REPOSITORY, Embeddings, Retrieval, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
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


@pytest.mark.parametrize(
    ("change", "field"),
    [
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
    ],
)
async def test_limits_name_the_field(client: httpx2.AsyncClient, change: dict[str, Any], field: str) -> None:
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
    several = [DOCUMENTS[at] for at in (0, 1, 1, 2, 0, 3, 4)]
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
    with pytest.raises(Conflict, match="deleted or replaced while it was indexed"):
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

    class Cancelled(Bm25):
        def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:
            for batch in batches:
                seen.append(batch)
                if len(seen) == 2:
                    from_thread.run_sync(scope.cancel)
            return super().build(seen, signature)

    with scope:
        await builds.build_corpus(database, settings.data_dir, [Cancelled()], queue, corpus)
    assert (scope.cancelled_caught, len(seen), queue.signatures) == (True, 2, set())
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
