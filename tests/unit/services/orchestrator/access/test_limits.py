import asyncio

import httpx2
import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.access.limits import ConcurrencyLimit, SecurityHeaders
from services.orchestrator.app import build
from shared.settings import Limits, Settings
from tests.unit.asgi import ask, reached

# Requests that hold something for long are counted, and one too many is refused.


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


# What every answer tells a browser.


def answering(**headers: str) -> ASGIApp:
    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(headers={name.replace("_", "-"): value for name, value in headers.items()})(scope, receive, send)

    return route


async def test_nothing_is_guessed_framed_run_or_kept() -> None:
    headers = (await ask(SecurityHeaders)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


async def test_what_has_a_version_may_be_kept_and_asked_about() -> None:
    answer = await ask(lambda _: SecurityHeaders(answering(etag='"1"')))
    assert answer.headers["cache-control"] == "private, no-cache"


async def test_a_route_has_the_last_word() -> None:
    answer = await ask(lambda _: SecurityHeaders(answering(cache_control="max-age=1", content_security_policy="x")))
    assert (answer.headers["cache-control"], answer.headers["content-security-policy"]) == ("max-age=1", "x")


@pytest.mark.parametrize(("base", "told"), [("http://localhost", False), ("https://localhost", True)])
async def test_tls_is_insisted_on_only_where_there_is_tls(base: str, told: bool) -> None:
    assert ("strict-transport-security" in (await ask(SecurityHeaders, base=base)).headers) is told


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/docs", "/openapi.json"])
async def test_the_whole_api_sends_them(path: str) -> None:
    headers = (await ask(lambda _: build(Settings()), path=path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]


async def test_there_is_no_cross_origin_access() -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await ask(lambda _: build(Settings()), "OPTIONS", "/v1/jobs", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_documentation_is_one_page_without_a_script() -> None:
    answer = await ask(lambda _: build(Settings()), path="/docs")
    document = (await ask(lambda _: build(Settings()), path="/openapi.json")).json()
    assert "<script" not in answer.text
    assert "://" not in answer.text.split("</h1>")[0]
    assert all(path in answer.text for path in document["paths"])
    assert "style-src 'sha256-" in answer.headers["content-security-policy"]
