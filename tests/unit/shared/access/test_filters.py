"""Which requests are let through, and where a process may listen."""

import logging
import sys
from collections.abc import AsyncIterator
from functools import partial
from importlib import import_module
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from services.orchestrator.app import build
from shared.access import filters
from shared.access.filters import BodyLimit, BrowserFilter, ServiceKey
from shared.headers import authorization
from shared.settings import Access, Settings
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
    seen.describe("uploads, cancels, requeues, releases and reads from a page of port 3000")
    app = build(Settings())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8080") as http:
        for path in ("/v1/corpora?name=a", "/v1/jobs/a/cancel", "/v1/jobs/a/requeue", "/v1/gpus/cpu:0/release"):
            reply = await http.post(path, headers={"Origin": "http://127.0.0.1:3000"})
            assert (reply.status_code, reply.json()["type"]) == (403, "urn:mathrag:forbidden")
        reply = await http.get("/healthz", headers={"Origin": "http://127.0.0.1:3000"})
        assert not [name for name in reply.headers if name.startswith("access-control-")]
    seen.note("403; the other page can read no answer")


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


# Where a process may listen, and when the API asks for keys.

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
LOOPBACK = ("127.0.0.1", "127.8.9.1", "::1", "localhost")
OPEN_TO_OTHERS = (EVERYWHERE, "::", "192.168.1.5", "", "example.org", "localhost.example.org", "::ffff:10.0.0.1")


@pytest.mark.parametrize("host", LOOPBACK)
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert filters.is_loopback(host)
    assert not filters.keys_required(Settings(host=host))
    assert filters.explain_refusal(Settings(), host) is None


@pytest.mark.parametrize("host", OPEN_TO_OTHERS)
def test_elsewhere_the_api_asks_for_keys_and_services_need_theirs(host: str) -> None:
    assert not filters.is_loopback(host)
    assert filters.keys_required(Settings(host=host))
    refusal = filters.explain_refusal(Settings(), host)
    assert refusal is not None
    assert "MATHRAG_SERVICE_KEY" in refusal
    assert filters.explain_refusal(Settings(service_key="s"), host) is None


@pytest.mark.parametrize(("keys", "host", "required"), [("off", EVERYWHERE, False), ("required", "127.0.0.1", True)])
def test_the_operator_has_the_last_word(keys: Any, host: str, required: bool) -> None:
    assert filters.keys_required(Settings(host=host, access=Access(keys=keys))) is required


def test_an_open_api_beyond_loopback_is_a_warning_at_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings(host=EVERYWHERE, access=Access(keys="off")))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "WITHOUT keys" in caplog.text


def test_an_api_with_keys_says_how_to_make_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings(host=EVERYWHERE))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "mathrag key create" in caplog.text


def test_on_loopback_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings())
    assert not caplog.records


@pytest.mark.parametrize("service", ["guard", "retriever"])
def test_a_service_without_key_does_not_start_beyond_loopback(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = import_module(f"services.{service}.__main__")
    opened: list[object] = []
    for opens in ("create_app", "serve"):
        monkeypatch.setattr(program, opens, lambda *_, **__: opened.append(None))
    monkeypatch.setattr(sys, "argv", [service, "--host", EVERYWHERE, "--port", "1"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert (ended.value.code, opened) == (2, [])
    assert "refused to listen on '0.0.0.0' without a service key" in capsys.readouterr().err
