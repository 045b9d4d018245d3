"""The retriever with other embedders than the shipped one: llama.cpp inside the process, and a server that is away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from services.retriever.app import create_app
from shared.models import servers
from shared.replies import Document
from shared.settings import Retrieval, Settings
from shared.storage.database import Database
from tests.doubles import bert_file
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.integration.test_retriever import DOCUMENTS, add_corpus, build, search

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def retriever(database_url: str, folder: Path, **embeddings: Any) -> AsyncIterator[httpx2.AsyncClient]:
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
    async with retriever(database_url, tmp_path, kind="gguf", path=path, max_chars=50) as client:
        dense = (await build(client, corpus))["dense"]["index"]
        [found] = await search(client, (dense, "area of a circle", 5))
        assert {hit["document"] for hit in found["hits"]} == {document.hash for document in DOCUMENTS}
    other = bert_file.write(tmp_path / "other.gguf", seed=1)
    async with retriever(database_url, tmp_path, kind="gguf", path=other, max_chars=50) as client:
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
        async with retriever(database_url, tmp_path, **given) as client:
            built = await build(client, corpus)
        double.tell("500")
        async with retriever(database_url, tmp_path, **given) as client:
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
    async with retriever(database_url, tmp_path, kind="gguf", path=path) as client:
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
    async with retriever(database_url, tmp_path, kind="gguf", path=path) as client:
        refused = await client.post("/indexes", json={"corpus": corpus})
    assert refused.status_code == 503
    assert "too long" in refused.json()["detail"]
    assert "max_chars" in refused.json()["hint"]
    async with retriever(database_url, tmp_path, kind="gguf", path=path, max_chars=100) as client:
        assert (await build(client, corpus))["dense"]["documents"] == 2
