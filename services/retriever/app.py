"""The retriever's HTTP API, for the project's own services: build a corpus's indexes, search them, rerank and embed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Invalid, MathragError, TooLarge, Unavailable
from services.retriever import builds
from services.retriever.backends import make_backends
from services.retriever.builds import BuildQueue, DocumentCache, IndexCache
from services.retriever.searches import (
    EmbeddingCache,
    IndexSearch,
    PinnedReranker,
    RerankQuestion,
    Searcher,
    identify_reranker,
)
from shared.access import filters
from shared.access.connections import finish_while_connected
from shared.models import servers
from shared.models.embedding import Embedder
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces

MAX_SEARCHES = 256
MAX_EMBEDDED = 2048
MAX_BODY = 16 << 20
"""Upper bound of a request's body, in bytes."""

T = TypeVar("T")


class BuildRequest(BaseModel):
    """Names the corpus to index."""

    model_config = ConfigDict(extra="forbid")

    corpus: Annotated[int, Field(gt=0)]


class SearchesRequest(BaseModel):
    """Holds searches that are answered together, in their order."""

    model_config = ConfigDict(extra="forbid")

    searches: Annotated[list[IndexSearch], Field(min_length=1, max_length=MAX_SEARCHES)]


class EmbedRequest(BaseModel):
    """Holds texts to embed as documents."""

    model_config = ConfigDict(extra="forbid")

    texts: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=MAX_EMBEDDED)]
    model: str = ""
    """Hash of the row in `models` to which the caller's job is pinned; "" takes the configured embedder."""


class RetrieverState:
    """Holds the state that requests share: the caches, the models and the queue of builds."""

    def __init__(self, settings: Settings, database: Database, embedder: Embedder, reranks: PinnedReranker) -> None:
        self.settings = settings
        self.database = database
        self.backends = make_backends(settings.retrieval, embedder)
        self.shelf = IndexCache(database, settings.data_dir, self.backends)
        self.questions = EmbeddingCache(embedder, settings.retrieval.embeddings.cache)
        self.searcher = Searcher(self.shelf, DocumentCache(database), self.questions)
        self.reranks = reranks
        self.queue = BuildQueue()


def create_app(settings: Settings) -> FastAPI:
    """Make the application, which opens the models and the database when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            retrieval = settings.retrieval
            embedder = await _open_model(stack, servers.open_embedder(retrieval.embeddings))
            reranker = await _open_model(stack, servers.open_reranker(retrieval.reranker))
            reranks = PinnedReranker(await to_thread.run_sync(identify_reranker, retrieval.reranker), reranker)
            database = Database(settings.database_url, pinned=False)
            stack.push_async_callback(database.close)
            app.state.retriever = RetrieverState(settings, database, embedder, reranks)
            for models in (reranks, app.state.retriever.questions):
                stack.push_async_callback(_cancel_task, asyncio.create_task(models.register(database)))
            yield

    app = FastAPI(
        title="MathRAG-Gate retriever", lifespan=lifespan, openapi_url=None, telemetry=traces.make_server_options()
    )
    filters.protect(app, settings, most=MAX_BODY)
    app.add_exception_handler(MathragError, _answer_problem)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.get("/healthz")(health)
    app.get("/checks/{name}")(check)
    app.post("/indexes")(build)
    app.get("/indexes/{corpus}/builds")(list_builds)
    app.api_route("/orphans", methods=["GET", "DELETE"])(handle_orphans)
    app.post("/search")(search)
    app.post("/rerank")(rerank)
    app.post("/embed")(embed)
    return app


async def _open_model(stack: AsyncExitStack, model: AbstractContextManager[T]) -> T:
    """Open a model in a thread, because opening reads files."""
    return await to_thread.run_sync(stack.enter_context, model)


async def _cancel_task(task: asyncio.Task[None]) -> None:
    """Cancel a task before the database is closed that it uses."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def get_state(request: Request) -> RetrieverState:
    state: RetrieverState = request.app.state.retriever
    return state


StateDependency = Annotated[RetrieverState, Depends(get_state)]


async def health(state: StateDependency) -> Response:
    """Tell which indexes are loaded, and how often a question's vector came from the cache."""
    return _answer_json({"status": "ok", "indexes": state.shelf.loaded, "embeddings": state.questions.counted})


async def check(name: str, state: StateDependency) -> Response:
    """Check one part of this process, a name in `checks.NAMES`, and return its `Check`."""
    from services.retriever.checks import ServedIndexes, check_part  # 35 MiB of Elasticsearch, which few use

    backends = {backend.kind: backend for backend in state.backends}
    kept = ServedIndexes(database=state.database, data_dir=state.settings.data_dir, backends=backends)
    return _answer_json(await check_part(name, state.settings.retrieval, kept))


async def build(request: Request, body: BuildRequest, state: StateDependency) -> Response:
    """Build the corpus's dense and sparse index if they are missing; answer when both are ready.

    The build ends when the client closes the connection.
    """
    work = builds.build_corpus(state.database, state.settings.data_dir, state.backends, state.queue, body.corpus)
    try:
        made = await finish_while_connected(request, work)
    except TooLarge as error:  # a document, not the request: the same request works once the setting is another
        raise Unavailable(error.message, hint=error.hint) from error
    return _answer_json({"corpus": body.corpus, "indexes": made})


async def list_builds(corpus: int, state: StateDependency) -> Response:
    """List the builds of the corpus's indexes that run or wait."""
    return _answer_json(state.queue.list_builds(corpus))


async def handle_orphans(request: Request, state: StateDependency) -> Response:
    """List the indexes on Elasticsearch that nothing uses, or delete them (DELETE); those being built are left out."""
    from services.retriever import orphans
    from services.retriever.elasticsearch import ElasticsearchServer

    server, delete = ElasticsearchServer(state.settings.retrieval.elasticsearch), request.method == "DELETE"
    work = orphans.delete if delete else orphans.find
    found = await work(state.database, state.settings.data_dir, server, state.queue)
    return _answer_json({"orphans": found, "deleted": delete})


async def search(request: SearchesRequest, state: StateDependency) -> Response:
    """Answer the searches with a JSON array of `Retrieved`, in the same order."""
    return _answer_json(await state.searcher.answer(request.searches))


async def rerank(request: RerankQuestion, state: StateDependency) -> Response:
    """Answer `Scored` with one score per document, in the same order, or the `Failure` of the reranker."""
    return _answer_json(await state.reranks.answer(request))


async def embed(request: EmbedRequest, state: StateDependency) -> Response:
    """Answer `Embedded`: one vector of length 1 per text, in the same order."""
    return _answer_json(await state.questions.embed(request.texts, request.model))


def _answer_json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _answer_problem(_: Request, error: Exception) -> Response:
    """Answer an error as a problem (RFC 9457); the hint tells what to do."""
    assert isinstance(error, MathragError)  # noqa: S101 - registered for this class alone
    body = {"type": error.kind, "title": type(error).__name__, "status": error.status, "detail": error.message}
    if error.hint is not None:
        body["hint"] = error.hint
    if isinstance(error, Unavailable):
        body["what"] = error.what
    return Response(msgspec.json.encode(body), status_code=error.status, media_type="application/problem+json")


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return await _answer_problem(request, Invalid(f"`{field}`: {first['msg']}"))
