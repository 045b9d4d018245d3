"""The application over a real database, with doubles for what is behind HTTP and the queue."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import text

from services.orchestrator.app import build
from services.orchestrator.deps import Deps
from services.orchestrator.polling import JobViewCache, Polls
from shared.access.filters import keys_required
from shared.settings import Settings
from shared.storage.database import Database
from tests.integration import scene

Answer = Callable[[httpx2.Request], httpx2.Response]


class Api:
    """A client of the application, and what the application did besides answering."""

    def __init__(self, http: httpx2.AsyncClient, app: Any) -> None:
        self.http = http
        self.app = app
        self.woken = 0
        self._jobs = 0
        self.asked: list[httpx2.Request] = []
        """Requests to the other services."""
        self.other: Answer = lambda _: httpx2.Response(200, json={})
        """How the other services answer."""
        self.retriever: httpx2.ASGITransport | None = None
        """Answers in their place, where it is set."""

    def wake(self) -> None:
        """The scheduler's ear."""
        self.woken += 1

    async def upload(self, what: str, name: str, lines: Iterable[Any], **query: Any) -> httpx2.Response:
        """Upload values as JSON lines; bytes go as they are."""
        body = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        return await self.http.post(f"/v1/{what}", params={"name": name, **query}, content=body)

    async def job(self, pipeline: str = "closed-book", **fields: Any) -> Any:
        """Submit a job over the scene's dataset and corpus: "a-job", then "a-job-2" and so on.

        `mathrag-gate` reorders by quality alone.
        """
        if pipeline == "mathrag-gate":
            fields["params"] = {**scene.QUALITY_ALONE, **fields.get("params", {})}
        self._jobs += "name" not in fields
        name = "a-job" if self._jobs == 1 else f"a-job-{self._jobs}"
        body = {"name": name, "dataset": "items", "corpus": "docs", "pipeline": pipeline, **fields}
        reply = await self.http.post("/v1/jobs", json=body)
        assert reply.status_code == 202, reply.text
        return reply.json()

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON at `path`."""
        reply = await self.http.get(path, params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()


_IDLE: dict[str, list[FastAPI]] = defaultdict(list)
"""Applications that no test uses now, by their settings. A new one resolves its routes at its first request, which
takes longer than most tests (70 ms)."""


@contextmanager
def _application(settings: Settings) -> Iterator[FastAPI]:
    if keys_required(settings):  # its keyring remembers keys
        yield build(settings)
        return
    idle = _IDLE[settings.model_dump_json()]
    app = idle.pop() if idle else build(settings)
    app.middleware_stack = None  # limits count anew
    yield app
    idle.append(app)


@asynccontextmanager
async def serving(
    database: Database,
    redis_url: str,
    settings: Settings = scene.SETTINGS,
    polls: Polls | None = None,
    admission: Database | None = None,
) -> AsyncIterator[Api]:
    """The application, its other services answered by `Api.other`."""
    with _application(settings) as app:
        async with _deps(app, database, redis_url, settings, polls, admission) as api:
            yield api


@asynccontextmanager
async def _deps(
    app: FastAPI,
    database: Database,
    redis_url: str,
    settings: Settings,
    polls: Polls | None,
    admission: Database | None,
) -> AsyncIterator[Api]:
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as http,
        Redis.from_url(redis_url) as redis,
    ):
        api = Api(http, app)

        async def answer(request: httpx2.Request) -> httpx2.Response:
            api.asked.append(request)
            return api.other(request) if api.retriever is None else await api.retriever.handle_async_request(request)

        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as others:
            addressed = settings.model_copy(update={"retriever_url": "http://retriever", "guard_url": "http://guard"})
            app.state.deps = Deps(
                settings=addressed,
                database=database,
                admission=admission or database,
                redis=redis,
                http=others,
                wake=api.wake,
                job_views=JobViewCache(fresh_s=0, clock=lambda: 0.0),
                polls=polls or Polls(),
            )  # fmt: skip
            yield api


async def finished(database: Database, answer: scene.Answer = scene.by_rule) -> None:
    """Everything that is submitted, run to its end by scripted workers during epoch 1, a residency of two models."""
    statement = text(
        "INSERT INTO residencies (epoch, device, previous_epoch, models, cause, state, opened_at)"
        " SELECT 1, 'cpu:0', 0, array_agg(id), 'first', 'open', now() FROM models WHERE needs_lease"
        " ON CONFLICT DO NOTHING"
    )
    async with database.transaction() as connection:
        await connection.execute(statement)
    await scene.drain(database, scene.ScriptedExecutor(answer))
