from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread

from services.retriever.app import create_app
from services.retriever.index import REBUILD
from shared.models import servers
from shared.replies import Document
from shared.settings import Dense, Elasticsearch, Retrieval, Settings, Sparse
from shared.storage.database import Database
from tests.doubles import bert_file
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.doubles.search_server import SearchServer, search_server
from tests.integration.api import serving
from tests.integration.scene import furnish, run_sql
from tests.integration.test_retriever import DOCUMENTS, add_corpus, build, rows, search

# The retriever with other embedders than the shipped one: llama.cpp inside the process, and a server that is away.


pytestmark = pytest.mark.anyio


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
    corpus = await add_corpus(database, "five", DOCUMENTS)
    path = bert_file.write(tmp_path / "encoder.gguf")
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path, max_chars=50) as client:
        dense = (await build(client, corpus))["dense"]["index"]
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
    corpus, double = await add_corpus(database, "five", DOCUMENTS), RetrievalServer()
    async with chat_server(double.respond) as server:
        given: dict[str, Any] = {"kind": "openai", "url": server.url, "model": "small"}
        async with retriever_other_embedders(database_url, tmp_path, **given) as client:
            built = await build(client, corpus)
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
    corpus = await add_corpus(database, "five", DOCUMENTS[:1])
    path = bert_file.write(tmp_path / "encoder.gguf")
    long = "circle " * 100
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path) as client:
        dense = (await build(client, corpus))["dense"]["index"]
        for search in ({"question": long}, {"question": "circle", "hypothetical": [long]}):
            refused = await client.post("/search", json={"searches": [{"index": dense, "k": 1, **search}]})
            assert refused.status_code == 413
            assert "max_chars" in refused.json()["hint"]
        assert (await asked(client, dense, "circle")).status_code == 200


async def test_a_document_that_is_too_long_stops_the_build_with_the_setting_that_cuts_it(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    corpus = await add_corpus(database, "long", [*DOCUMENTS[:1], Document(text="circle " * 100)])
    path = bert_file.write(tmp_path / "encoder.gguf")
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path) as client:
        refused = await client.post("/indexes", json={"corpus": corpus})
    assert refused.status_code == 503
    assert "too long" in refused.json()["detail"]
    assert "max_chars" in refused.json()["hint"]
    async with retriever_other_embedders(database_url, tmp_path, kind="gguf", path=path, max_chars=100) as client:
        assert (await build(client, corpus))["dense"]["documents"] == 2


# Settings that change after a corpus was indexed: the old index is refused when it is searched, and built anew.

POINTERS = "SELECT dense_index, sparse_index FROM corpora"


@pytest.fixture
async def corpus(database: Database) -> int:
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
    where: dict[str, Any], corpus: int, database: Database, changed: dict[str, Any], kind: str, words: str
) -> None:
    before = {"sparse": Sparse(chinese="bigrams")}
    async with retriever_other_settings(where, **before) as client:
        first = await build(client, corpus)
        answers = await search(client, *((each["index"], "area of a circle", 2) for each in first.values()))
    async with retriever_other_settings(where, **{**before, **changed}) as client:
        said = await refusal(client, first[kind]["index"])
        assert f"it was built with {words}" in said["detail"]
        assert said["hint"] == REBUILD
        second = await build(client, corpus)
        assert {each: built["reused"] for each, built in second.items()} == {
            "dense": kind != "dense", "sparse": kind != "sparse",
        }  # fmt: skip
        assert (await search(client, (second[kind]["index"], "circle", 1)))[0]["hits"]
        [pointers] = await rows(database, POINTERS)
        assert pointers == (second["dense"]["index"], second["sparse"]["index"])
        assert len(await rows(database, "SELECT id FROM indexes")) == 3
    async with retriever_other_settings(where, **before) as client:
        assert await build(client, corpus) == {
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
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, corpus)
        asked = [(each["index"], "area of a circle", 3) for each in built.values()]
        before = await search(client, *asked)
        assert all(reply["hits"][0]["document"] == DOCUMENTS[0].hash for reply in before)
    signatures = {kind: f"mathrag-{kind}-{each['signature']}" for kind, each in built.items()}
    assert double.aliases == {f"mathrag-{kind}-corpus-{corpus}": {name} for kind, name in signatures.items()}
    async with retriever_other_settings(where, **served(double)) as client:
        assert await search(client, *asked) == before


async def test_an_index_that_the_server_lost_is_refused_and_built_again(
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, corpus)
    del double.indexes[f"mathrag-sparse-{built['sparse']['signature']}"]
    async with retriever_other_settings(where, **served(double)) as client:
        said = await refusal(client, built["sparse"]["index"])
        assert "no such index" in said["detail"]
        assert said["hint"] == REBUILD
        again = await build(client, corpus)
        assert (again["sparse"]["reused"], again["dense"]["reused"]) == (False, True)
        assert again["sparse"]["index"] == built["sparse"]["index"]
        assert (await search(client, (again["sparse"]["index"], "radius", 1)))[0]["hits"]


async def test_an_index_that_cannot_be_looked_at_is_not_built_again(
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        await build(client, corpus)
        before = dict(double.indexes)
        double.fail("_count", 503)
        reply = await client.post("/indexes", json={"corpus": corpus})
        assert (reply.status_code, "is overloaded or not ready" in reply.json()["detail"]) == (503, True)
        assert double.indexes == before
        assert all(each["reused"] for each in (await build(client, corpus)).values())


async def test_a_server_that_fails_fails_the_build_and_registers_nothing(
    where: dict[str, Any], corpus: int, database: Database, double: SearchServer
) -> None:
    double.credentials = {"nobody"}
    async with retriever_other_settings(where, **served(double)) as client:
        reply = await client.post("/indexes", json={"corpus": corpus})
    assert reply.status_code == 503
    assert "`retrieval.elasticsearch.api_key`" in reply.json()["hint"]
    assert await rows(database, "SELECT id FROM indexes") == []


async def test_a_search_that_the_key_does_not_allow_is_no_outage(
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, corpus)
        double.denied["_msearch"] = (
            "action [indices:data/read/msearch] is unauthorized for API key id [k] of user [elastic], this action is"
            " granted by the index privileges [read,all]"
        )
        said = await refusal(client, built["sparse"]["index"])
    assert said["type"] == "refused"
    assert "refuses us (403), the key or user lacks the index privilege `read`" in said["detail"]
    assert "docs/how-to/retrieval.md#api-key-of-elasticsearch" in said["hint"]


async def test_only_what_nothing_names_is_deleted_from_the_server(
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    orphan, evaluated = "mathrag-sparse-" + "0" * 64, "2" * 64
    (where["data_dir"] / "evaluations" / evaluated).mkdir(parents=True)
    async with retriever_other_settings(where, **served(double)) as client:
        built = await build(client, corpus)
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
    where: dict[str, Any], corpus: int, double: SearchServer
) -> None:
    async with retriever_other_settings(where, **served(double)) as client, anyio.create_task_group() as tasks:
        double.waits = "_bulk"
        double.answering.clear()
        tasks.start_soon(build, client, corpus)
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
    assert (reply.status_code, "no Elasticsearch is named" in reply.text) == (503, True)


# An index whose files are gone comes back by the upload that made it.

POINTED = """
    UPDATE corpora SET dense_index = d.dense_index, sparse_index = d.sparse_index
    FROM corpora d WHERE d.name = 'docs' AND corpora.name = 'mine'"""


async def test_the_same_upload_again_has_the_files_of_its_indexes_looked_at(database: Database, redis_url: str) -> None:
    await furnish(database)
    async with serving(database, redis_url) as api:
        assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 201
        await run_sql(database, POINTED)
        assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 200
        assert len(api.asked) == 2
