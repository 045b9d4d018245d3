"""Failures, reasons and problems become rows and answers, so they hold no secret, whoever wrote their words."""

from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from services.judge.executors import RetrieveExecutor, RetrieverAway
from services.orchestrator.api import routes
from shared.access.filters import refuse
from shared.errors import Unavailable
from shared.models.chat import ChatFailed
from shared.models.retriever_client import RetrieverClient
from shared.redaction import redact
from shared.replies import Failure, FailureKind
from shared.settings import Settings
from shared.shapes import issue_key
from tests.unit.asgi import ask

KEY = issue_key().key
SAID = (
    "no answer from postgresql+asyncpg://mathrag_app:hush@db:5432/mathrag, redis://:hush@redis:6379/0 "
    f"nor https://user:hush@models.example/v1; sent Authorization: Bearer hush and {KEY}"
)


def assert_harmless(words: str) -> None:
    assert "hush" not in words
    assert KEY not in words
    assert "mathrag_app" in words
    assert "db:5432" in words


def test_what_is_no_secret_stays() -> None:
    for text in ("http://127.0.0.1:8080/v1", "a:b@c", "$x:y@z$", ""):
        assert redact(text) == text


def test_a_model_servers_failure() -> None:
    failed = ChatFailed(FailureKind.BACKEND_ERROR, SAID)
    assert_harmless(failed.detail)
    assert_harmless(str(failed))


@pytest.mark.anyio
@pytest.mark.parametrize("status", [500, None])
async def test_a_retrievers_failure(status: int | None) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if status is None:
            raise httpx2.ConnectError(SAID)
        return httpx2.Response(status, text=SAID)

    database: Any = SimpleNamespace()
    settings = Settings(retriever_url="http://retriever")
    retrieving = RetrieveExecutor(database, settings)
    retrieving.retriever = RetrieverClient(httpx2.AsyncClient(transport=httpx2.MockTransport(answer)), settings)
    (failure,) = await retrieving._search([{}])
    assert isinstance(failure, Failure | RetrieverAway)
    assert_harmless(failure.detail if isinstance(failure, Failure) else failure.said)


@pytest.mark.anyio
async def test_a_problem() -> None:
    app = FastAPI()
    routes.answer_problems(app)

    @app.get("/")
    async def route() -> None:
        raise Unavailable(SAID)

    assert_harmless((await ask(lambda _: app)).json()["detail"])


@pytest.mark.anyio
async def test_a_refusal() -> None:
    def refusing(_: object) -> Any:
        return lambda scope, receive, send: refuse(Unavailable(SAID), scope, receive, send)

    assert_harmless((await ask(refusing)).json()["detail"])
