"""The doctor's look at embeddings, reranker and Elasticsearch: each with what makes it fail, and the fix."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator.probes import retrieval
from services.orchestrator.probes.probe import Check, check
from services.orchestrator.probes.registry import readiness
from shared.models import endpoint
from shared.settings import Settings
from tests.doubles import bert_file
from tests.doubles.chat_server import as_json, chat_server
from tests.doubles.retrieval_server import RetrievalServer

pytestmark = pytest.mark.anyio


async def looked(**given: Any) -> dict[str, Check]:
    """What the doctor says of these settings of retrieval, by probe."""
    settings = Settings(retrieval=given)  # type: ignore[arg-type]
    held: Any = SimpleNamespace(settings=settings)
    return {probe.name: await check(probe, held) for probe in retrieval.probes(settings)}


async def test_only_what_is_configured_is_looked_at() -> None:
    """By default the shipped embeddings, and by the doctor alone."""
    found = await looked()
    assert list(found) == ["embeddings"]
    assert found["embeddings"].ok
    assert "embeddings" not in {probe.name for probe in readiness(Settings())}


async def test_servers_are_asked_for_a_letter() -> None:
    """That is all it takes to know that they work."""
    double = RetrievalServer(logits={"a": 0.0})
    async with chat_server(double.respond) as server:
        embeddings = {"kind": "openai", "url": server.url, "model": "small"}
        found = await looked(embeddings=embeddings, reranker={"kind": "endpoint", "url": server.url})
    assert all(each.ok for each in found.values())
    assert "small, 64 numbers" in found["embeddings"].detail


async def test_servers_that_do_not_work_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their words."""
    monkeypatch.setattr(endpoint, "PAUSE_S", 0.0)
    double = RetrievalServer(logits={"a": 8.5})
    double.tell("503")
    async with chat_server(double.respond) as server:
        embeddings = {"kind": "ollama", "url": server.url, "model": "small"}
        found = await looked(embeddings=embeddings, reranker={"kind": "endpoint", "url": server.url})
        assert "HTTP 503" in found["embeddings"].detail
        assert "HTTP 503" in found["reranker"].detail
        double.wrong.left.clear()
        found = await looked(reranker={"kind": "endpoint", "url": server.url, "activation": "none"})
    assert "activation: sigmoid" in found["reranker"].detail
    assert not found["reranker"].ok


async def test_files_are_looked_at_and_not_loaded(tmp_path: Path) -> None:
    """A file that is none is found all the same."""
    encoder = bert_file.write(tmp_path / "encoder.gguf")
    found = await looked(
        embeddings={"kind": "gguf", "path": encoder}, reranker={"kind": "gguf", "path": tmp_path / "gone.gguf"}
    )
    assert found["embeddings"].ok
    assert "gone.gguf" in found["reranker"].detail
    assert "`path`" in found["reranker"].fix


async def test_a_key_that_is_not_set_is_named() -> None:
    """With the command."""
    embeddings = {"kind": "openai", "url": "http://127.0.0.1:1", "model": "m", "api_key_env": "NOT_SET_ANYWHERE"}
    found = await looked(embeddings=embeddings)
    assert found["embeddings"].fix.startswith("export NOT_SET_ANYWHERE=")


@pytest.mark.parametrize("backend", ["dense", "sparse"])
async def test_elasticsearch_is_asked_where_a_back_end_is_of_that_name(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """By its URL in the settings or the environment, with the key."""
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    chosen: dict[str, Any] = {backend: {"backend": "elasticsearch"}}
    assert "ELASTICSEARCH_URL" in (await looked(**chosen))["elasticsearch"].fix
    async with chat_server(lambda _: as_json({"version": {"number": "9.1.0"}})) as server:
        monkeypatch.setenv("ELASTICSEARCH_URL", server.url)
        found = await looked(**chosen, elasticsearch={"api_key": "k"})
        assert found["elasticsearch"].detail == "Elasticsearch 9.1.0"
        assert server.seen[0].headers["authorization"] == "ApiKey k"


async def test_an_elasticsearch_that_refuses_is_not_well() -> None:
    """Its status says why."""
    async with chat_server(lambda _: as_json({}, 401)) as server:
        found = await looked(sparse={"backend": "elasticsearch"}, elasticsearch={"url": server.url})
    assert found["elasticsearch"].detail == "it answers 401"
