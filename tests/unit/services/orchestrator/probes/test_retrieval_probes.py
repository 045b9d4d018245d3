"""The doctor's look at embeddings, reranker and Elasticsearch: each with what makes it fail, and the fix."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator import probes
from services.orchestrator.probes import check, list_readiness_probes
from shared.check import Check
from shared.models import servers
from shared.settings import Settings
from tests.doubles import bert_file
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer

pytestmark = pytest.mark.anyio


async def looked(**given: Any) -> dict[str, Check]:
    settings = Settings(retrieval=given)  # type: ignore[arg-type]
    held: Any = SimpleNamespace(settings=settings)
    return {probe.name: await check(probe, held) for probe in probes.list_retrieval_probes(settings)}


async def test_only_what_is_configured_is_looked_at() -> None:
    found = await looked()
    assert list(found) == ["embeddings"]
    assert found["embeddings"].ok
    assert "embeddings" not in {probe.name for probe in list_readiness_probes(Settings())}


async def test_servers_are_asked_for_a_letter() -> None:
    double = RetrievalServer(logits={"a": 0.0})
    async with chat_server(double.respond) as server:
        embeddings = {"kind": "openai", "url": server.url, "model": "small"}
        found = await looked(embeddings=embeddings, reranker={"kind": "endpoint", "url": server.url})
    assert all(each.ok for each in found.values())
    assert "small, 64 numbers" in found["embeddings"].detail


async def test_servers_that_do_not_work_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
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
    encoder = bert_file.write(tmp_path / "encoder.gguf")
    found = await looked(
        embeddings={"kind": "gguf", "path": encoder}, reranker={"kind": "gguf", "path": tmp_path / "gone.gguf"}
    )
    assert found["embeddings"].ok
    assert "gone.gguf" in found["reranker"].detail
    assert "`path`" in found["reranker"].fix


async def test_a_key_that_is_not_set_is_named() -> None:
    embeddings = {"kind": "openai", "url": "http://127.0.0.1:1", "model": "m", "api_key_env": "NOT_SET_ANYWHERE"}
    found = await looked(embeddings=embeddings)
    assert found["embeddings"].fix.startswith("export NOT_SET_ANYWHERE=")


@pytest.mark.parametrize("backend", ["dense", "sparse"])
async def test_elasticsearch_is_asked_where_a_back_end_is_of_that_name(backend: str) -> None:
    settings = Settings(retrieval={backend: {"backend": "elasticsearch"}})  # type: ignore[arg-type]
    assert "elasticsearch" in {probe.name for probe in probes.list_retrieval_probes(settings)}


async def test_where_no_retriever_runs_its_program_looks_at_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mathrag.yaml"
    file.write_text("retrieval: {sparse: {backend: elasticsearch}, elasticsearch: {url: 'http://127.0.0.1:9'}}")
    monkeypatch.setenv("MATHRAG_CONFIG", str(file))
    found = (await looked(sparse={"backend": "elasticsearch"}))["elasticsearch"]
    assert not found.ok
    assert "127.0.0.1:9 cannot be reached" in found.detail
    assert "retrieval.elasticsearch.url" in found.fix
