"""Self-RAG jobs from submit to audit, through real guards and workers: with a double that reflects, and with
llama.cpp's own log-probabilities, whose model does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
import pytest
from redis.asyncio import Redis

from services.guard import app as app_module
from services.guard.app import create_app
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.audit import check
from shared.calls import Lane
from shared.lease.lease import Guards, Phase
from shared.replies import Generated
from shared.runtime.prompting import PromptExecutor
from shared.runtime.worker import LaneWorker
from shared.samples import Outcome
from shared.settings import REPOSITORY, Model, Settings, Workers
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import ChatServer, chat_server
from tests.doubles.reflecting_model import respond
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, SilentTicker, furnish, rows, scalar, submit_job

pytestmark = pytest.mark.anyio

GENERATOR = REPOSITORY / "models" / "world-generator-f16.gguf"
EVERYTHING = {"candidates": len(DOCUMENTS)}
CALLS = """
    SELECT c.role, count(*) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE a.accepted GROUP BY 1 ORDER BY 1"""


class Stack:
    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        self.settings = settings
        self.database = database
        self.redis = redis

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(serve_app(create_app(self.settings)))
            guards = Guards(self.redis, [url])
            stack.push_async_callback(guards.close)
            await submit_job(self.database, "self-rag", params=EVERYTHING)
            await self._worker(Lane.JUDGE, guards).drain()
            if await scalar(
                self.database, "SELECT bool_or(needs_lease) FROM models WHERE name = 'a-generator' AND served"
            ):
                await self._opened(guards)
            await self._worker(Lane.GENERATE, guards).drain()
            await self._worker(Lane.JUDGE, guards).drain()

    def _worker(self, lane: Lane, guards: Guards) -> LaneWorker:
        scripted = ScriptedExecutor()
        executors = {"generate": PromptExecutor(self.database, guards), "retrieve": scripted, "grade": scripted}
        return LaneWorker(
            lane, self.database, executors, name=f"test-{lane.value}", guards=guards,
            ticker=SilentTicker(),  # type: ignore[arg-type]
            limits=Workers(window_ms=1),
        )  # fmt: skip

    async def _opened(self, guards: Guards) -> None:
        await Scheduler(self.settings, self.database, self.redis).look()
        with anyio.fail_after(120):
            while True:
                lease = (await guards.read_leases()).get("cpu:0")
                if lease is not None and lease.phase is Phase.OPEN:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def stack(
    database: Database, redis: Redis, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stack:
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    settings = Settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path,
        models={"a-judge": Model(driver="scripted", footprint_mib=96)},
        roles={"judge": "a-judge", "generate": "a-generator"},
    )  # fmt: skip
    return Stack(settings, database, redis)


def generated_by(stack: Stack, generator: Model) -> Stack:
    models = {**stack.settings.models, "a-generator": generator}
    return Stack(stack.settings.model_copy(update={"models": models}), stack.database, stack.redis)


@pytest.fixture
async def reflecting() -> AsyncIterator[ChatServer]:
    async with chat_server(respond) as server:
        yield server


async def test_a_job_is_answered_from_the_passage_that_the_model_finds_relevant(
    stack: Stack, database: Database, reflecting: ChatServer
) -> None:
    await furnish(database, items=3)
    await generated_by(stack, Model(driver="remote", url=reflecting.url)).run()
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    outcomes = [
        msgspec.json.decode(raw, type=Outcome)  # type: ignore[arg-type]
        for (raw,) in await rows(
            database, "SELECT o.outcome FROM outcomes o JOIN samples s ON s.id = o.sample_id ORDER BY s.ordinal"
        )
    ]
    assert [outcome.answer for outcome in outcomes] == ["0", "2", "4"]
    assert [outcome.context for outcome in outcomes] == [(), (DOCUMENTS[1].hash,), (DOCUMENTS[2].hash,)]
    best = outcomes[1].trace.candidates[0]
    assert (best.document, best.relevance) == (DOCUMENTS[1].hash, pytest.approx(0.9))
    assert best.score == pytest.approx(0.9 + 0.9 + 0.5 * (0.9 - 0.1))
    assert dict(await rows(database, CALLS)) == {"generate": 3 + 2 * len(DOCUMENTS), "grade": 3, "retrieve": 3}  # type: ignore[arg-type]
    job = await scalar(database, "SELECT public_id FROM jobs")
    assert await check(database, job) == []  # type: ignore[arg-type]


@pytest.mark.skipif(not GENERATOR.exists(), reason="the shipped GGUF file is not there")
async def test_llama_cpp_gives_log_probabilities_and_its_model_is_found_not_to_reflect(
    stack: Stack, database: Database
) -> None:
    await furnish(database, items=2)
    model = Model(driver="process", path=GENERATOR, context=512, parallel=2, footprint_mib=96)
    await generated_by(stack, model).run()
    failures = await rows(database, "SELECT DISTINCT s.failure FROM samples s")
    assert failures == [("no_reflection_tokens",)]
    replies = await rows(
        database, "SELECT a.reply FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'generate'"
    )
    assert len(replies) == 2
    for (raw,) in replies:
        reply = msgspec.json.decode(raw, type=Generated)  # type: ignore[arg-type]
        assert "".join(token.text for token in reply.tokens) == reply.text
        assert all(1 <= len(token.top) <= 5 and token.text in token.top for token in reply.tokens)
    job = await scalar(database, "SELECT public_id FROM jobs")
    assert await check(database, job) == []  # type: ignore[arg-type]
