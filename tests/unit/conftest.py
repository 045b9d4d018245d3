"""The command line's server, as a test wants it."""

import httpx2
import pytest

from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from tests.unit.back_ends import BEHIND
from tests.unit.commands import Handler, Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    def install(handler: Handler) -> list[httpx2.Request]:
        requests: list[httpx2.Request] = []

        def recorded(request: httpx2.Request) -> httpx2.Response:
            request.read()
            requests.append(request)
            return handler(request)

        for kind in (Client, AsyncClient):
            monkeypatch.setattr(kind, "transport", httpx2.MockTransport(recorded))
        return requests

    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.delenv("MATHRAG_API_KEY", raising=False)
    return install


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if BEHIND:
        terminalreporter.section("back ends of retrieval")
        for name, behind in BEHIND.items():
            terminalreporter.line(f"{name}: {behind}")
