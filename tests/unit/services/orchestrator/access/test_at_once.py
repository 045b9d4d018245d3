"""Requests that hold something for long are counted, and one too many is refused."""

import asyncio

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from services.orchestrator.access.limits import ConcurrencyLimit
from shared.settings import Limits
from tests.unit.asgi import reached

pytestmark = pytest.mark.anyio
LIMITS = Limits(uploads=2, training_exports=1, event_streams=1, page_streams=2)


class Held:
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside = asyncio.Semaphore(0)
        self.fails = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside.release()
        await self.go.wait()
        if self.fails:
            raise RuntimeError
        await reached(scope, receive, send)


@pytest.mark.parametrize(
    ("method", "path", "setting", "most", "status"),
    [
        ("POST", "/v1/corpora", "uploads", 2, 429),
        ("POST", "/v1/datasets", "uploads", 2, 429),
        ("POST", "/v1/graphs", "uploads", 2, 429),
        ("POST", "/v1/rules/import", "uploads", 2, 429),
        ("GET", "/v1/jobs/a/events", "event_streams", 1, 429),
        ("GET", "/v1/datasets/a/training", "training_exports", 1, 429),
        ("GET", "/live/jobs/a", "page_streams", 2, 503),
        ("GET", "/live/now", "page_streams", 2, 503),
    ],
)
async def test_the_limit_holds_to_the_request(method: str, path: str, setting: str, most: int, status: int) -> None:
    held = Held()
    transport = httpx2.ASGITransport(app=ConcurrencyLimit(held, LIMITS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        running = [asyncio.create_task(http.request(method, path)) for _ in range(most)]
        for _ in running:
            await held.inside.acquire()
        refused = await http.request(method, path)
        assert refused.status_code == status
        assert refused.headers["retry-after"] == "2"
        assert f"`limits.{setting}`" in refused.json()["detail"]
        held.go.set()
        assert [(await task).status_code for task in running] == [200] * most
        assert (await http.request(method, path)).status_code == 200


async def test_a_request_that_breaks_gives_its_place_back() -> None:
    held = Held()
    held.fails = True
    held.go.set()
    limited = ConcurrencyLimit(held, LIMITS)
    transport = httpx2.ASGITransport(app=limited, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert [(await http.post("/v1/corpora")).status_code for _ in range(5)] == [500] * 5


async def test_uploads_of_both_kinds_share_their_places() -> None:
    held = Held()
    transport = httpx2.ASGITransport(app=ConcurrencyLimit(held, LIMITS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        running = [asyncio.create_task(http.post(path)) for path in ("/v1/corpora", "/v1/datasets")]
        for _ in running:
            await held.inside.acquire()
        assert (await http.post("/v1/corpora")).status_code == 429
        held.go.set()
        await asyncio.gather(*running)
