"""Pauses of the clients, noted and not slept."""

import pytest

from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(Client, "sleep", staticmethod(found.append))
    monkeypatch.setattr(AsyncClient, "sleep", staticmethod(sleep))
    return found
