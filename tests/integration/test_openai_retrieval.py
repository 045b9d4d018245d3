"""`/openai/v1/embeddings` and `/rerank` over the real retriever, as the unmodified client of OpenAI sees them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import numpy as np
import openai
import pytest

from services.retriever.app import create_app
from shared.replies import Scored
from shared.runtime import pins
from shared.settings import REPOSITORY, Embeddings, Reranker, Retrieval, Settings
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

EMBEDDINGS = Embeddings(path=REPOSITORY / "models" / "static-embeddings")
RERANKER = Reranker(kind="endpoint", url="http://127.0.0.1:1", model="cross")
MODEL = "static-embeddings"
TEXTS = ["the area of a circle", "the circle's area", "求三角形的面积"]


@pytest.fixture
async def api(database: Database, database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    retrieval = Retrieval(embeddings=EMBEDDINGS)
    app = create_app(Settings(database_url=database_url, data_dir=tmp_path, retrieval=retrieval))
    settings = scene.SETTINGS.model_copy(update={"retrieval": Retrieval(embeddings=EMBEDDINGS, reranker=RERANKER)})
    async with app.router.lifespan_context(app), serving(database, redis_url, settings) as api:
        api.retriever = httpx2.ASGITransport(app=app)
        deps = api.app.state.deps
        here = deps.settings.model_copy(update={"retriever_url": "http://localhost"})
        api.app.state.deps = replace(deps, settings=here)
        yield api


@pytest.fixture
async def client(api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api.app))
    base = "http://localhost/openai/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="anything", http_client=http, max_retries=0) as client:
        yield client


async def test_embeddings_are_alike_in_both_encodings(client: openai.AsyncOpenAI) -> None:
    packed = await client.embeddings.create(model=MODEL, input=TEXTS)
    plain = await client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    vectors = np.array([each.embedding for each in packed.data])
    assert np.array_equal(vectors, np.array([each.embedding for each in plain.data]))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert [each.index for each in packed.data] == [0, 1, 2]


async def test_what_cannot_be_embedded_is_refused_by_its_field(client: openai.AsyncOpenAI) -> None:
    for ids in ([1, 2, 3], [[1, 2, 3]]):
        with pytest.raises(openai.BadRequestError, match="`input`: must be texts; token ids"):
            await client.embeddings.create(model=MODEL, input=ids)
    for texts, words in (("", "1 character"), (["a", ""], "1 character"), (["a"] * 2049, "2048 items"), (5, "list")):
        with pytest.raises(openai.BadRequestError, match=words) as refused:
            await client.embeddings.create(model=MODEL, input=texts)  # type: ignore[arg-type]
        assert refused.value.param == "input"
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        await client.embeddings.create(model=MODEL, input="text", dimensions=5)
    with pytest.raises(openai.NotFoundError, match="closed-book"):
        await client.embeddings.create(model="closed-book", input="text")


async def test_documents_are_ordered_by_relevance(api: Api, database: Database) -> None:
    async with database.transaction() as connection:
        await pins.register(connection, pins.NO_RERANKER)
    api.retriever = None
    api.other = lambda _: httpx2.Response(200, json={"type": "scored", "scores": Scored(scores=(0.2, 0.9, 0.2)).scores})
    asked = {"model": "cross", "query": "q", "documents": ["a", {"text": "b"}, "c"], "return_documents": True}
    reply = await api.http.post("/openai/v1/rerank", json=asked)
    assert reply.status_code == 200, reply.text
    results = reply.json()["results"]
    assert [(each["index"], each["relevance_score"]) for each in results] == [(1, 0.9), (0, 0.2), (2, 0.2)]
    assert results[0]["document"] == {"text": "b"}
    assert len((await api.http.post("/openai/v1/rerank", json={**asked, "top_n": 1})).json()["results"]) == 1
