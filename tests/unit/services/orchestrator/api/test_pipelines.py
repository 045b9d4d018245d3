"""Pipelines as they are shown."""

from types import SimpleNamespace
from typing import Any

import httpx2
import msgspec
import pytest

from services.orchestrator.app import build
from shared.params import Params
from shared.pipelines import registry
from shared.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pipelines() -> dict[str, Any]:
    app = build(Settings())
    app.state.deps = SimpleNamespace(settings=Settings(), database=None)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return {each["name"]: each for each in (await client.get("/v1/pipelines")).json()}


async def test_every_pipeline_is_shown_with_its_parameters(pipelines: dict[str, Any]) -> None:
    assert tuple(sorted(pipelines)) == registry.list_offered()
    for shown in pipelines.values():
        assert msgspec.convert(shown["params"], Params) == Params()
        assert shown["summary"]


@pytest.mark.parametrize(
    ("name", "roles", "needs_corpus", "calibrated"),
    [
        ("closed-book", ["generate"], False, False),
        ("hybrid", ["generate", "retrieve"], True, False),
        ("mathrag-gate", ["generate", "judge", "retrieve"], True, True),
    ],
)
async def test_a_pipeline_tells_what_it_needs(
    pipelines: dict[str, Any], name: str, roles: list[str], needs_corpus: bool, calibrated: bool
) -> None:
    shown = pipelines[name]
    assert (shown["roles"], shown["needs_corpus"], shown["calibrated"]) == (roles, needs_corpus, calibrated)
