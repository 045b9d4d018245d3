from collections.abc import AsyncIterator
from functools import partial

import httpx2
import pytest
from fastapi import FastAPI

from services.orchestrator.app import build
from shared.access import filters
from shared.access.filters import BodyLimit, BrowserFilter, ServiceKey
from shared.bearer import authorization
from shared.settings import Settings
from tests.faults.recording import Seen
from tests.unit.asgi import ask

# Without keys, a web page from elsewhere can neither read nor change anything.


pytestmark = pytest.mark.anyio
HERE = ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "rag.example.org")
REBOUND = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "evil.example:8080@localhost")


async def status(method: str = "GET", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = await ask(lambda app: BrowserFilter(app, {"rag.example.org"}), method, headers=named)
    return asked.status_code


@pytest.mark.parametrize("host", HERE)
async def test_answers_under_addresses_and_its_own_names(host: str) -> None:
    assert await status(host=host) == 200


@pytest.mark.parametrize("host", REBOUND)
async def test_answers_under_no_other_name(host: str) -> None:
    assert await status(host=host) == 403


async def test_the_refusal_says_which_setting_allows_it() -> None:
    reply = await ask(BrowserFilter, headers={"host": "rag.local"})
    assert reply.headers["content-type"] == "application/problem+json"
    assert "'rag.local'" in reply.json()["detail"]
    assert "access.hosts" in reply.json()["hint"]


OTHER_ORIGINS = (
    "https://evil.example",
    "null",
    "",
    "http://[",
    "http://127.0.0.1",
    "http://127.0.0.1:3000",
    "http://127.0.0.1:18080",
    "https://127.0.0.1:8080",
    "http://localhost:8080",
    "http://127.0.0.1:8080@evil.example",
    "127.0.0.1:8080",
)


@pytest.mark.parametrize("origin", OTHER_ORIGINS)
async def test_a_page_from_elsewhere_changes_nothing(origin: str) -> None:
    assert await status("POST", host="127.0.0.1:8080", origin=origin) == 403


@pytest.mark.fault("X4")
async def test_a_page_of_another_port_of_this_machine_changes_nothing(seen: Seen) -> None:
    seen.describe("uploads, cancels, requeues and releases from a page of port 3000, and its reads")
    app = build(Settings())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8080") as http:
        for path in ("/v1/corpora?name=a", "/v1/jobs/a/cancel", "/v1/jobs/a/requeue", "/v1/gpus/cpu:0/release"):
            reply = await http.post(path, headers={"Origin": "http://127.0.0.1:3000"})
            assert (reply.status_code, reply.json()["type"]) == (403, "urn:mathrag:forbidden")
        reply = await http.get("/healthz", headers={"Origin": "http://127.0.0.1:3000"})
        assert not [name for name in reply.headers if name.startswith("access-control-")]
    seen.note("403; no answer may be read by another page")


@pytest.mark.parametrize(
    ("site", "answer"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)]
)
async def test_a_browser_that_names_no_origin_is_believed_how_far_away_the_page_is(site: str, answer: int) -> None:
    assert await status("POST", host="127.0.0.1:8080", sec_fetch_site=site) == answer


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("LOCALHOST:8080", "http://localhost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("127.0.0.1:8080", "https://rag.example.org"),
    ],
)
async def test_our_own_pages_may(host: str, origin: str) -> None:
    assert await status("POST", host=host, origin=origin) == 200


async def test_a_name_of_the_operator_stands_for_its_usual_ports_unless_one_is_given() -> None:
    assert await status("POST", host="127.0.0.1:8080", origin="https://rag.example.org:3000") == 403
    headers = {"host": "rag.example.org:3000", "origin": "https://rag.example.org:3000"}
    assert (
        await ask(lambda app: BrowserFilter(app, {"rag.example.org:3000"}), "POST", headers=headers)
    ).status_code == 200


async def test_a_page_behind_tls_is_the_one_that_the_proxy_says() -> None:
    headers = {"host": "localhost", "origin": "https://localhost"}
    assert (await ask(BrowserFilter, "POST", headers=headers, base="https://localhost")).status_code == 200


async def test_programs_send_no_origin_and_are_not_asked_for_one() -> None:
    assert await status("DELETE", host="localhost") == 200


# Guard and retriever answer to our own services alone.

WITH_KEY = partial(ServiceKey, key="the-key")


async def test_the_key_opens() -> None:
    assert (await ask(WITH_KEY, headers=authorization("the-key"))).status_code == 200
    assert (await ask(WITH_KEY, headers={"authorization": "bearer  the-key"})).status_code == 200


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Bearer ", "Bearer another", "Basic the-key", "the-key", "Bearer thé-key"]
)
async def test_nothing_else_does(sent: str) -> None:
    reply = await ask(WITH_KEY, headers={"authorization": sent.encode()})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert "the-key" not in reply.text


async def test_whether_it_is_up_may_be_asked_by_anybody() -> None:
    assert (await ask(WITH_KEY, path="/healthz")).status_code == 200
    assert (await ask(WITH_KEY, path="/healthz/")).status_code == 401


def wrapped(settings: Settings) -> FastAPI:
    app = FastAPI()
    app.post("/run")(lambda: "done")
    filters.protect(app, settings, most=10)
    return app


async def test_without_a_key_programs_of_this_machine_are_answered_and_web_pages_are_not() -> None:
    app = wrapped(Settings())
    assert (await ask(lambda _: app, "POST", "/run")).status_code == 200
    assert (await ask(lambda _: app, "POST", "/run", headers={"origin": "https://evil.example"})).status_code == 403
    assert (await ask(lambda _: app, "POST", "/run", headers={"host": "evil.example"})).status_code == 403


async def test_with_a_key_the_name_does_not_matter() -> None:
    app = wrapped(Settings(service_key="k"))
    assert (
        await ask(lambda _: app, "POST", "/run", headers={"host": "guard", **authorization("k")})
    ).status_code == 200
    assert (await ask(lambda _: app, "POST", "/run", headers={"host": "guard"})).status_code == 401


async def test_a_body_is_measured_before_it_is_read() -> None:
    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError("was read")
        yield b""

    limited = partial(BodyLimit, most=10, hint="send less")
    assert (await ask(limited, "POST", content=b"x" * 10)).status_code == 200
    for content in (b"x" * 11, unread()):
        reply = await ask(limited, "POST", content=content)
        assert (reply.status_code, reply.json()["hint"]) == (413, "send less")
