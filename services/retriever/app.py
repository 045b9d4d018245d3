"""HTTP of the retriever: build a corpus's indexes, search them, rerank what was found."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, TypeVar

import anyio
import msgspec
from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from services.retriever import builds, checks
from services.retriever.backends import backends
from services.retriever.questions import Questions
from services.retriever.reranks import Rerank, Reranks, identity
from services.retriever.searches import Search, Searcher
from services.retriever.shelf import Documents, Shelf
from shared.access import internal
from shared.contracts.calls import MAX_QUESTION, RELEASE_0_1, Duplicates
from shared.errors import Invalid, MathragError, TooLarge, Unavailable
from shared.models import retrieval_models
from shared.models.ports import Embedder
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces

MAX_SEARCHES = 256
MAX_K = 1_000
MAX_HYPOTHETICAL = 64
MAX_RERANKED = 1_000
MAX_BODY = 16 << 20
"""Bytes of a request."""


T = TypeVar("T")

Question = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]


class BuildRequest(BaseModel):
    """Which corpus to index."""

    model_config = ConfigDict(extra="forbid")

    corpus: Annotated[int, Field(gt=0)]


class SearchRequest(BaseModel):
    """One question to one index."""

    model_config = ConfigDict(extra="forbid")

    index: Annotated[int, Field(gt=0)]
    question: Question
    k: Annotated[int, Field(gt=0, le=MAX_K)]
    skip: Annotated[int, Field(ge=0, le=MAX_K)] = 0
    hypothetical: Annotated[tuple[Question, ...], Field(max_length=MAX_HYPOTHETICAL)] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: Annotated[str, Field(max_length=MAX_QUESTION)] = ""
    gold: str = ""


class SearchesRequest(BaseModel):
    """Many searches, answered in order."""

    model_config = ConfigDict(extra="forbid")

    searches: Annotated[list[SearchRequest], Field(min_length=1, max_length=MAX_SEARCHES)]


class RerankRequest(BaseModel):
    """One question and the texts to score."""

    model_config = ConfigDict(extra="forbid")

    model: str
    """Hash of the row of `models` that the caller's job is pinned to."""
    question: Question
    documents: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_RERANKED)]


class State:
    """What the process holds while it serves."""

    def __init__(self, settings: Settings, database: Database, embedder: Embedder, reranks: Reranks) -> None:
        self.settings = settings
        self.database = database
        self.backends = backends(settings.retrieval, embedder)
        self.shelf = Shelf(database, settings.data_dir, self.backends)
        self.questions = Questions(embedder, settings.retrieval.embeddings.cache)
        self.searcher = Searcher(self.shelf, Documents(database), self.questions)
        self.reranks = reranks
        self.building = anyio.Lock()


def create_app(settings: Settings) -> FastAPI:
    """The application; embeddings and the database are opened when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            retrieval = settings.retrieval
            embedder = await _opened(stack, retrieval_models.embedder(retrieval.embeddings))
            reranker = await _opened(stack, retrieval_models.reranker(retrieval.reranker))
            reranks = Reranks(await to_thread.run_sync(identity, retrieval.reranker), reranker)
            database = Database(settings.database_url, pinned=False)
            stack.push_async_callback(database.close)
            app.state.retriever = State(settings, database, embedder, reranks)
            stack.push_async_callback(_ended, asyncio.create_task(reranks.register(database)))
            yield

    app = FastAPI(title="MathRAG-Gate retriever", lifespan=lifespan, openapi_url=None, telemetry=traces.server())
    internal.protect(app, settings, most=MAX_BODY)
    app.add_exception_handler(MathragError, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.get("/healthz")(health)
    app.get("/checks/{name}")(check)
    app.post("/indexes")(build)
    app.get("/orphans")(list_orphans)
    app.delete("/orphans")(delete_orphans)
    app.post("/search")(search)
    app.post("/rerank")(rerank)
    return app


async def _opened(stack: AsyncExitStack, model: AbstractContextManager[T]) -> T:
    """In a thread: files are read."""
    return await to_thread.run_sync(stack.enter_context, model)


async def _ended(task: asyncio.Task[None]) -> None:
    """Before the database is closed that it uses."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _state(request: Request) -> State:
    state: State = request.app.state.retriever
    return state


Held = Annotated[State, Depends(_state)]


async def health(state: Held) -> Response:
    """Alive, which indexes are loaded, and how often a question's vector was there already."""
    embeddings = msgspec.structs.asdict(state.questions.counted)
    return _json({"status": "ok", "indexes": state.shelf.loaded, "embeddings": embeddings})


async def check(name: str, state: Held) -> Response:
    """A `Check` of what this process needs; one of `checks.NAMES`."""
    kept = checks.Kept(
        database=state.database,
        data_dir=state.settings.data_dir,
        backends={backend.kind: backend for backend in state.backends},
    )
    return _json(await checks.look(name, state.settings.retrieval, kept))


async def build(request: BuildRequest, state: Held) -> Response:
    """Build the dense and the sparse index of a corpus, as far as they are missing; answers when they are ready."""
    try:
        async with state.building:
            made = await builds.build_corpus(state.database, state.settings.data_dir, state.backends, request.corpus)
    except TooLarge as error:  # a document, not the request: the same request works once the setting is another
        raise Unavailable(error.message, hint=error.hint) from error
    return _json({"corpus": request.corpus, "indexes": made})


async def list_orphans(state: Held) -> Response:
    """Indexes on Elasticsearch that nothing uses; one that is being built is waited for."""
    return await _orphans(state, delete=False)


async def delete_orphans(state: Held) -> Response:
    """The same, and delete them."""
    return await _orphans(state, delete=True)


async def _orphans(state: State, *, delete: bool) -> Response:
    from services.retriever import orphans
    from services.retriever.elasticsearch.server import Server

    server = Server(state.settings.retrieval.elasticsearch)
    async with state.building:
        work = orphans.delete if delete else orphans.find
        found = await work(state.database, state.settings.data_dir, server)
    return _json({"orphans": found, "deleted": delete})


async def search(request: SearchesRequest, state: Held) -> Response:
    """A JSON array of `Retrieved`, one per search, in the same order."""
    return _json(await state.searcher.answer([Search(**dict(each)) for each in request.searches]))


async def rerank(request: RerankRequest, state: Held) -> Response:
    """`Scored`, one score a document in the same order, or the `Failure` to score them."""
    return _json(await state.reranks.answer(Rerank(**dict(request))))


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _problem(_: Request, error: Exception) -> Response:
    """RFC 9457; the hint says what to do."""
    assert isinstance(error, MathragError)  # noqa: S101 - registered for this class alone
    body = {"type": error.kind, "title": type(error).__name__, "status": error.status, "detail": error.message}
    if error.hint is not None:
        body["hint"] = error.hint
    if isinstance(error, Unavailable):
        body["what"] = error.what
    return Response(msgspec.json.encode(body), status_code=error.status, media_type="application/problem+json")


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return await _problem(request, Invalid(f"`{field}`: {first['msg']}"))
