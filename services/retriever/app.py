"""HTTP of the retriever: build a corpus's indexes, search them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import anyio
import msgspec
from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from services.retriever import builds
from services.retriever.dense import Faiss
from services.retriever.ports import Backend, Index
from services.retriever.searches import Search, answer
from services.retriever.shelf import Problems, Shelf
from services.retriever.sparse import Bm25
from shared.access import internal
from shared.contracts.calls import MAX_QUESTION
from shared.errors import Invalid, MathragError
from shared.models.static_embeddings import StaticEmbedder
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces

MAX_SEARCHES = 256
MAX_K = 1_000
MAX_BODY = 16 << 20
"""Bytes of a request."""


class BuildRequest(BaseModel):
    """Which corpus to index."""

    model_config = ConfigDict(extra="forbid")

    corpus: Annotated[int, Field(gt=0)]


class SearchRequest(BaseModel):
    """One question to one index."""

    model_config = ConfigDict(extra="forbid")

    index: Annotated[int, Field(gt=0)]
    question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]
    k: Annotated[int, Field(gt=0, le=MAX_K)]


class SearchesRequest(BaseModel):
    """Many searches, answered in order."""

    model_config = ConfigDict(extra="forbid")

    searches: Annotated[list[SearchRequest], Field(min_length=1, max_length=MAX_SEARCHES)]


class State:
    """What the process holds while it serves."""

    def __init__(self, settings: Settings, database: Database, backends: list[Backend[Index]]) -> None:
        self.settings = settings
        self.database = database
        self.backends = backends
        self.shelf = Shelf(database, settings.data_dir, backends)
        self.problems = Problems(database)
        self.building = anyio.Lock()


def create_app(settings: Settings) -> FastAPI:
    """The application; embeddings and the database are opened when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        folder = settings.retrieval.embeddings.path
        assert folder is not None  # noqa: S101 - the settings say so
        embedder = await to_thread.run_sync(StaticEmbedder, folder)
        database = Database(settings.database_url, pinned=False)
        app.state.retriever = State(settings, database, [Faiss(embedder), Bm25()])
        yield
        await database.close()

    app = FastAPI(title="MathRAG-Gate retriever", lifespan=lifespan, openapi_url=None, telemetry=traces.server())
    internal.protect(app, settings, most=MAX_BODY)
    app.add_exception_handler(MathragError, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.get("/healthz")(health)
    app.post("/indexes")(build)
    app.post("/search")(search)
    return app


def _state(request: Request) -> State:
    state: State = request.app.state.retriever
    return state


Held = Annotated[State, Depends(_state)]


async def health(state: Held) -> dict[str, Literal["ok"] | list[int]]:
    """Alive, and which indexes are loaded."""
    return {"status": "ok", "indexes": state.shelf.loaded}


async def build(request: BuildRequest, state: Held) -> Response:
    """Build the dense and the sparse index of a corpus, as far as they are missing; answers when they are ready."""
    async with state.building:
        made = await builds.build_corpus(state.database, state.settings.data_dir, state.backends, request.corpus)
    return _json({"corpus": request.corpus, "indexes": made})


async def search(request: SearchesRequest, state: Held) -> Response:
    """A JSON array of `Retrieved`, one per search, in the same order."""
    asked = [Search(index=each.index, question=each.question, k=each.k) for each in request.searches]
    return _json(await answer(state.shelf, state.problems, asked))


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _problem(_: Request, error: Exception) -> Response:
    """RFC 9457; the hint says what to do."""
    assert isinstance(error, MathragError)  # noqa: S101 - registered for this class alone
    body = {"type": error.kind, "title": type(error).__name__, "status": error.status, "detail": error.message}
    if error.hint is not None:
        body["hint"] = error.hint
    return Response(msgspec.json.encode(body), status_code=error.status, media_type="application/problem+json")


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return await _problem(request, Invalid(f"`{field}`: {first['msg']}"))
