"""The orchestrator: REST in front, the scheduler behind it, PostgreSQL as the only thing they share."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
from fastapi import FastAPI
from redis.asyncio import Redis
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.api import catalog, corpora, datasets, health, jobs, openapi, problems
from services.orchestrator.api.resources import Resources
from services.orchestrator.scheduler import Scheduler
from shared.errors import TooLarge
from shared.settings import Settings
from shared.storage.database import Database

LARGEST_BODY = 1 << 20
"""Bytes of a request that is no upload."""
UPLOADS = ("/v1/corpora", "/v1/datasets")
PATIENCE_S = 10.0

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application; connections open when it starts, and the scheduler runs while it does."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = Redis.from_url(settings.redis_url)
        # The scheduler's statements want the planner settings of the hot path, reports do not.
        scheduling, reporting = (Database(settings.database_url, pinned=pinned) for pinned in (True, False))
        scheduler = Scheduler(settings, scheduling, redis)
        running = asyncio.create_task(scheduler.run())
        running.add_done_callback(_stop_without_scheduler)
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
            app.state.resources = Resources(
                settings=settings, database=reporting, redis=redis, http=http, wake=scheduler.wake
            )
            yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.gather(scheduling.close(), reporting.close(), redis.aclose())

    return build(lifespan)


def build(lifespan: Lifespan | None = None) -> FastAPI:
    """Routes, problems and documentation; `app.state.resources` is what they stand on."""
    app = FastAPI(
        title="MathRAG-Gate",
        version="1",
        summary="Batches of questions answered with retrieval-augmented generation, measured honestly.",
        lifespan=lifespan,
    )
    for part in (corpora, datasets, jobs, catalog, health):
        app.include_router(part.router)
    app.add_middleware(Limit)
    problems.install(app)
    openapi.install(app)
    return app


class Limit:
    """Refuses a body before it is read; only uploads may be long, and only they may not say how long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"] not in UPLOADS and not _is_short(Headers(scope=scope)):
            error = TooLarge(f"a request must declare its length, at most {LARGEST_BODY} bytes")
            await problems.respond(problems.problem_of(error, scope["path"]))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_short(headers: Headers) -> bool:
    length = headers.get("content-length", "" if "transfer-encoding" in headers else "0")
    return length.isdecimal() and int(length) <= LARGEST_BODY


def _stop_without_scheduler(task: "asyncio.Task[None]") -> None:
    """Without a scheduler no job would ever move: end the process in order, so that it is started again."""
    if not task.cancelled():
        _log.critical("the scheduler ended", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)
