"""Without keys, a web page from elsewhere can neither read nor change anything."""

import pytest

from shared.access.browsers import Browsers
from tests.unit.asgi import ask

pytestmark = pytest.mark.anyio
HERE = ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "rag.example.org")
REBOUND = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "evil.example:8080@localhost")


async def status(method: str = "GET", **headers: str) -> int:
    """How a request with these headers is answered where the API is also called `rag.example.org`."""
    asked = await ask(lambda app: Browsers(app, {"rag.example.org"}), method, headers=headers)
    return asked.status_code


@pytest.mark.parametrize("host", HERE)
async def test_answers_under_addresses_and_its_own_names(host: str) -> None:
    """Only a name can be pointed here by somebody else, an address cannot."""
    assert await status(host=host) == 200


@pytest.mark.parametrize("host", REBOUND)
async def test_answers_under_no_other_name(host: str) -> None:
    """A page whose name was pointed to this machine reads nothing (DNS rebinding)."""
    assert await status(host=host) == 403


async def test_the_refusal_says_which_setting_allows_it() -> None:
    """As a problem, like every other error."""
    reply = await ask(Browsers, headers={"host": "rag.local"})
    assert reply.headers["content-type"] == "application/problem+json"
    assert "'rag.local'" in reply.json()["detail"]
    assert "access.hosts" in reply.json()["hint"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:3000", "http://[", ""]
)
async def test_a_page_from_elsewhere_changes_nothing(origin: str) -> None:
    """Neither one of another application on this machine."""
    assert await status("POST", host="localhost:8080", origin=origin) == 403
    assert await status("GET", host="localhost:8080", origin=origin) == 200  # which it may not read: there is no CORS


@pytest.mark.parametrize(
    ("host", "origin"),
    [("localhost:8080", "http://localhost:8080"), ("127.0.0.1:8080", "https://rag.example.org")],
)
async def test_our_own_pages_may(host: str, origin: str) -> None:
    """Of the same address, or of a name that the operator gave; a proxy may have changed the host."""
    assert await status("POST", host=host, origin=origin) == 200


async def test_programs_send_no_origin_and_are_not_asked_for_one() -> None:
    """Such as curl."""
    assert await status("DELETE", host="localhost") == 200
