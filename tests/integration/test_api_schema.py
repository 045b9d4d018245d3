"""Whatever is sent to the API, it answers as its own document says: schemathesis over every operation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis
from schemathesis.config import SchemathesisConfig
from schemathesis.python import asgi

from services.orchestrator.api.routes import EXAMPLES
from services.orchestrator.app import build
from services.orchestrator.deps import Deps
from services.orchestrator.experiments import lifecycle
from shared.calls import Lane
from shared.experiments import EXAMPLE as EXPERIMENT
from shared.experiments import Experiment
from shared.replies import Hit, Retrieved
from shared.settings import Access, Settings
from shared.storage import labels
from shared.storage.database import Database
from shared.storage.labels import LabelSetDraft
from tests.integration import scene
from tests.integration.api import finished
from tests.integration.conftest import EmptyDatabase

REQUESTS = 10
"""Generated requests an operation, besides those for every boundary of its schema."""
ACCEPTED = ("2xx", "3xx", "401", "403", "404", "409", "429", "5xx")
CONFIG = SchemathesisConfig.from_dict(
    {
        "seed": 20261121,
        "generation": {"deterministic": True, "max-examples": REQUESTS},
        # What no schema can say: 400, a cursor or tag that is not one of ours; 412, the tag of another version.
        "checks": {
            "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "412"]},
            "missing_required_header": {"expected-statuses": ["428"]},
        },
        "operations": [
            # Nor which parameters fit together, or what a line of an upload must hold: 422, in words.
            *(
                {
                    "include-path": path,
                    "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "422"]}},
                }
                for path in (
                    "/v1/jobs",
                    "/v1/jobs/import",
                    "/v1/jobs/{job}/measure",
                    "/v1/plan",
                    "/v1/configuration",
                    "/v1/corpora",
                    "/v1/datasets",
                    "/v1/datasets/generate",
                    "/v1/graphs",
                    "/v1/rules/import",
                    "/v1/rules",
                    "/v1/labels/sets",
                    "/v1/labels/sets/{name}/tasks/{number}/labels",
                )
            ),
            # Nor whether a corpus that another request has uploaded is indexed by now: 503.
            *(
                {
                    "include-path": path,
                    "checks": {
                        "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "422"]},
                        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]},
                    },
                }
                for path in ("/v1/chat", "/v1/search")
            ),
            # Nor how many cells and jobs an operator allows, how long a prompt with its examples is, or how many items
            # a dataset has.
            *(
                {
                    "include-path": path,
                    "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "413", "422"]}},
                }
                for path in (
                    "/v1/experiments",
                    "/v1/experiments/plan",
                    "/v1/experiments/pilot",
                    "/v1/prompts",
                    "/v1/datasets/{name}/draw",
                )
            ),
        ],
    }
)
SETTINGS = Settings(retriever_url="http://retriever", guard_url="http://guard", access=Access(hosts=(asgi.HOST,)))
servers: dict[str, str] = {}
"""Where the real ones are, once a test has them; schemathesis wants the application before."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    database = Database(servers["database"], pinned=False)
    async with (
        Redis.from_url(servers["redis"]) as redis,
        httpx2.AsyncClient(transport=httpx2.MockTransport(others)) as http,
    ):
        app.state.deps = Deps(
            settings=SETTINGS, database=database, admission=database, redis=redis, http=http, wake=lambda: None
        )
        yield
    await database.close()


def others(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/orphans":
        return httpx2.Response(200, json={"orphans": ["mathrag-0"], "deleted": request.method == "DELETE"})
    if request.url.path != "/search":
        return httpx2.Response(200, json={"state": "open", "epoch": 1, "in_flight": 0})
    asked = msgspec.json.decode(request.content)["searches"]
    hits = (Hit(document=each.hash, rank=n, score=1 / n) for n, each in enumerate(scene.DOCUMENTS, 1))
    return httpx2.Response(200, content=msgspec.json.encode([Retrieved(hits=tuple(hits))] * len(asked)))


# Bytes to whoever does not read them.
schemathesis.serializer.alias(
    ["application/vnd.apache.parquet", "application/x-ndjson", "application/gzip", "text/tab-separated-values"],
    "application/octet-stream",
)
APP = build(SETTINGS, lifespan)
DESCRIBED = deepcopy(APP.openapi())
# schemathesis writes the greatest length of a text into its pattern: compiled for 32,768 characters, it took 140 MiB.
for name in ("SearchRequest", "ChatRequest"):
    del DESCRIBED["components"]["schemas"][name]["properties"]["question"]["pattern"]
DOCUMENT: Any = schemathesis.openapi.from_dict(DESCRIBED, config=CONFIG)
DOCUMENT.app = APP


@pytest.fixture(scope="module", autouse=True)
def world(database_url: str, empty_database: EmptyDatabase, _redis_server_url: str) -> None:
    servers.update(database=database_url, redis=_redis_server_url)
    empty_database()
    asyncio.run(furnish())


async def furnish() -> None:
    database = Database(servers["database"], pinned=True)
    await scene.furnish(database, 3, "math-500")
    await scene.add_dataset(database, 3, "math")
    await scene.submit_job(database, dataset="math-500", name="first")
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET public_id = :id", id=EXAMPLES["job"])
    asked = Experiment(**{**EXPERIMENT, "datasets": [{"dataset": "math-500", "corpus": "docs"}], "grid": {}})
    await lifecycle.submit_once(database, scene.SETTINGS, asked, None, None)
    await labels.create(database, LabelSetDraft("reasoning", "documents", EXAMPLES["job"], 100, 0), "local")
    await scene.run_sql(database, "UPDATE corpora SET name = 'math'")
    await scene.run_sql(database, "UPDATE models SET name = 'world-' || substr(name, 3) WHERE name LIKE 'a-%'")
    await database.close()
    async with Redis.from_url(servers["redis"]) as redis:
        for lane in Lane:
            await redis.set(f"mathrag:worker:{lane.value}:one", 1)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(*_: object) -> None:
        """In vain."""

    for chat in ("services.orchestrator.api.chat", "services.orchestrator.openai.chat"):
        monkeypatch.setattr(f"{chat}.wait_for_job", wait)


@DOCUMENT.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: schemathesis.Case) -> None:
    case.call_and_validate()
