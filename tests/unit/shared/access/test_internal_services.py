"""Guard and retriever answer to our own services alone."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
from fastapi import FastAPI

from shared.access import filters
from shared.access.filters import BodyLimit, ServiceKey
from shared.bearer import authorization
from shared.settings import Settings
from tests.unit.asgi import ask

pytestmark = pytest.mark.anyio
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
