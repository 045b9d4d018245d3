"""What every answer tells a browser."""

import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.access.limits import SecurityHeaders
from services.orchestrator.app import build
from shared.settings import Settings
from tests.unit.asgi import ask

pytestmark = pytest.mark.anyio


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
