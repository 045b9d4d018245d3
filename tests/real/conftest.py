"""Real servers of others, and stacks that work with them."""

from collections.abc import Iterator

import pytest

from tests.real import llama_server
from tests.real import ollama as real_ollama
from tests.real import vllm as real_vllm
from tests.real.elasticsearch.node import Layout, Node, laid_out, running, searched_on
from tests.real.environments import FOUND, had
from tests.real.llama_server import LlamaServer, served_by
from tests.real.ollama import Ollama
from tests.real.stacks import furnished
from tests.real.vllm import Vllm
from tests.running import RunningStack


@pytest.fixture(scope="session")
def layout() -> Layout:
    return had("Elasticsearch", laid_out, lambda found: found.version)


@pytest.fixture(scope="session")
def elasticsearch(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(layout, tmp_path_factory.mktemp("elasticsearch")) as node:
        yield node


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LlamaServer:
    folder = tmp_path_factory.mktemp("llama-server")
    return had("llama-server", lambda: llama_server.installed(folder), lambda found: found.version)


@pytest.fixture(scope="session")
def ollama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ollama]:
    folder = tmp_path_factory.mktemp("ollama")
    server = had("Ollama", lambda: real_ollama.found(folder), Ollama.version)
    try:
        for tag in real_ollama.FILES:
            server.create(tag)
        yield server
    finally:
        server.remove()
        server.stop()


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    found = had("vLLM", real_vllm.installed, lambda found: found.version)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in real_vllm.ENVIRONMENT.items():
            environment.setenv(name, value)
        yield found.with_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def searching(elasticsearch: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with furnished(tmp_path_factory.mktemp("searching"), {"retrieval": searched_on(elasticsearch)}) as stack:
        yield stack


@pytest.fixture(scope="session")
def answering(llama: LlamaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with furnished(tmp_path_factory.mktemp("answering"), {"models": served_by(llama)}) as stack:
        yield stack


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FOUND:
        terminalreporter.section("real servers")
        for name, found in FOUND.items():
            terminalreporter.line(f"{name}: {found}")
