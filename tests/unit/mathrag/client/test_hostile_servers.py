"""What answers need not be MathRAG-Gate, nor this release of it."""

import pickle
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from mathrag.client import connection
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.errors import (
    Conflict,
    Failed,
    Incompatible,
    Invalid,
    MissingPackage,
    NotFound,
    TimedOut,
    TooLarge,
    Unavailable,
)
from tests.unit.commands import Handler, Server, refuses, says
from tests.unit.mathrag.client.both import ADDRESS, by_both, slept
from tests.unit.mathrag.client.test_connection import VIEW, get

pytestmark = pytest.mark.anyio
__all__ = ["slept"]


def text(content: bytes, status: int = 200, **headers: str) -> Handler:
    return lambda _: httpx2.Response(status, content=content, headers=headers)


ANSWERS = {
    "a page": (text(b"<!doctype html><title>Welcome</title>"), Incompatible, "does not answer with JSON"),
    "half of it": (text(b'{"id": "6b0c1e9e", "name": '), Incompatible, "does not answer with JSON"),
    "nothing": (text(b""), Incompatible, "does not answer with JSON"),
    "no UTF-8": (text(b'{"id": "\xff"}'), Incompatible, "does not answer with JSON"),
    "very deep": (text(b"[" * 200_000), Incompatible, "127.0.0.1"),
    "another document": (says({"hello": "world"}), Incompatible, "required field"),
    "a number for a name": (says({**VIEW, "name": 17}), Incompatible, "name"),
    "too huge a number": (text(b'{"id": ' + b"9" * 5000 + b"}"), Incompatible, "127.0.0.1"),
    "elsewhere": (text(b"", 302, location="http://evil.example/"), Failed, "evil.example"),
    "a page of a proxy": (text(b"<h1>Bad gateway</h1>", 404), NotFound, "answered 404"),
    "a problem that is none": (text(b'{"type": 7, "detail": []}', 422), Invalid, "answered 422"),
    "a problem with odd fields": (
        says({"type": "urn:mathrag:invalid", "detail": "no", "line": "x", "field": 3, "others": 1}, 422), Invalid, "no"
    ),
    "a kind of a later release": (refuses(409, "entangled", "it is entangled"), Conflict, "entangled"),
    "a broken compression": (text(b"nothing like gzip", **{"content-encoding": "gzip"}), Failed, "no answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_is_no_answer_is_said_in_words(server: Server, slept: list[float], name: str) -> None:
    handler, kind, words = ANSWERS[name]
    server(handler)
    for failed in await by_both(get):
        assert isinstance(failed, kind), repr(failed)
        assert words in str(failed)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("proxy", ["junk://x", "socks5://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, kind: type[Any], proxy: str) -> None:
    monkeypatch.setattr(kind, "transport", None)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(Failed, match="NO_PROXY") as raised:
        kind("http://gpu-box.example:8080")
    assert raised.value.kind == "usage"


def test_blanks_around_an_address_do_not_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client(" http://127.0.0.1:1/\n").url == "http://127.0.0.1:1"
    monkeypatch.setenv("MATHRAG_URL", "http://127.0.0.1:1\n")
    assert Client().url == "http://127.0.0.1:1"


@pytest.mark.parametrize("kind", [NotFound, TimedOut, MissingPackage])
def test_an_exception_passes_between_processes(kind: type[Failed]) -> None:
    failed = kind("not_found", "there is none", "list them")
    failed.status, failed.field = 404, "name"
    again = pickle.loads(pickle.dumps(failed))  # noqa: S301 - made here
    assert (type(again), str(again), again.kind, again.hint) == (kind, str(failed), "not_found", "list them")
    assert (again.status, again.field) == (404, "name")


@pytest.mark.parametrize("key", ["two words", "schl\u00fcssel", "line\nbreak", "nul\0"])
async def test_a_key_that_is_none_is_not_sent(key: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(Failed, match="no key has") as raised:
            kind(ADDRESS, key=key)
        assert key not in str(raised.value)


async def test_a_redirect_is_not_followed(server: Server) -> None:
    requests = server(text(b"", 307, location="http://evil.example/v1/jobs/first"))
    for failed in await by_both(get, key="secret"):
        assert failed.kind == "redirected"
    assert {each.url.host for each in requests} == {"127.0.0.1"}


async def lists_of_both() -> list[Any]:
    found: list[Any] = []
    with Client(ADDRESS) as client:
        try:
            found.append(list(client.jobs.results("j")))
        except Failed as failed:
            found.append(failed)
    async with AsyncClient(ADDRESS) as other:
        try:
            found.append([each async for each in other.jobs.results("j")])
        except Failed as failed:
            found.append(failed)
    return found


def endless(piece: bytes) -> Handler:
    def pieces() -> Iterator[bytes]:
        while True:
            yield piece

    async def awaited() -> Any:
        while True:
            yield piece

    class Both(httpx2.SyncByteStream, httpx2.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return pieces()

        def __aiter__(self) -> Any:
            return awaited()

    return lambda _: httpx2.Response(200, stream=Both())


async def test_an_answer_without_end_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LARGEST", 1 << 20)
    server(endless(b'{"name": "x"}, ' * 1000))
    assert all(isinstance(failed, TooLarge) for failed in await by_both(get))


async def test_a_line_without_end_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mathrag.client.operations.LARGEST", 1 << 20)
    server(endless(b'{"name": "x"}, ' * 1000))
    assert all(isinstance(failed, TooLarge) for failed in await lists_of_both())


async def test_a_later_release_says_more(server: Server) -> None:
    later = {**VIEW, "state": "hibernating", "mood": {"good": True}, "rank": 10**30}
    server(says(later))
    for found in await by_both(get):
        assert (found.state, found.has_ended, found.view.rank) == ("hibernating", False, 10**30)


async def test_an_earlier_release_says_less(server: Server) -> None:
    server(says({name: value for name, value in VIEW.items() if name not in ("corpus", "gate", "metadata", "stages")}))
    for found in await by_both(get):
        assert (found.view.corpus, found.view.gate, found.view.metadata) == (None, None, {})


async def test_results_that_break_off_are_an_error(server: Server) -> None:
    server(text(b'{"index": 0, "repeat": 0, "ques'))
    for failed in await lists_of_both():
        assert isinstance(failed, Incompatible)


async def test_a_problem_has_all_that_the_server_says(server: Server) -> None:
    problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 3: no", "hint": "mend it", "line": 3,
               "field": "text", "others": ["upload, line 4: no"]}  # fmt: skip
    server(says(problem, 422))
    for failed in await by_both(get):
        assert (failed.kind, failed.status, failed.line, failed.field) == ("invalid_line", 422, 3, "text")
        assert (failed.hint, failed.others) == ("mend it", ("upload, line 4: no",))


async def test_a_busy_server_is_an_exception_of_its_own(server: Server, slept: list[float]) -> None:
    server(refuses(503, "unavailable", "the retriever is away"))
    assert all(isinstance(failed, Unavailable) for failed in await by_both(get))
