"""One request: what is sent again, and what a caller learns of answers that nobody expected."""

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
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
    TooMany,
    Unavailable,
    Unreachable,
)
from tests.unit.commands import JOB, Handler, Server, refuses, says
from tests.unit.mathrag.client.both import ADDRESS, by_both

pytestmark = pytest.mark.anyio

# What is sent again, when, and what a caller learns in the end.

VIEW = {
    **JOB, "repeats": 1, "reuse": "all", "rank": 100, "version": 1, "created_at": "2026-11-21T08:00:00Z",
    "links": {"self": "/v1/jobs/1", **dict.fromkeys(("events", "samples", "results", "report", "provenance"), "/")},
    "request_counts": {**JOB["request_counts"], "unparsed": 0},
}  # fmt: skip
BUSY = refuses(503, "unavailable", "the retriever is away", "wait for it")


def in_turn(*handlers: Handler) -> Handler:
    left = list(handlers)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


def lost(kind: type[httpx2.TransportError]) -> Handler:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise kind("gone")

    return handler


def asking_back(value: str, status: int = 503) -> Handler:
    body = {"type": "urn:mathrag:unavailable", "detail": "busy"}
    return lambda _: httpx2.Response(status, json=body, headers={"retry-after": value})


def get(client: Any) -> Any:
    return client.jobs.get("first")


def submit(client: Any) -> Any:
    return client.jobs.submit("d", "dense")


def imported(client: Any) -> Any:
    return client.jobs.import_answers("theirs", "d", [{"id": "1", "answer": "2"}])


@pytest.mark.parametrize("call", [get, submit], ids=["get", "submit"])
@pytest.mark.parametrize("first", [BUSY, lost(httpx2.ReadError), lost(httpx2.RemoteProtocolError)])
async def test_what_is_harmless_is_sent_again(
    server: Server, slept: list[float], call: Callable[[Any], Any], first: Handler
) -> None:
    for found in (0, 1):
        requests = server(in_turn(first, says(VIEW)))
        assert (await by_both(call))[found].name == "first"
        assert len(requests) == 3
    assert all(0 < wait <= connection.FIRST_S for wait in slept)


async def test_a_submission_has_one_key_however_often_it_is_sent(server: Server, slept: list[float]) -> None:
    requests = server(in_turn(BUSY, BUSY, says(VIEW)))
    with Client(ADDRESS) as client:
        submit(client)
        submit(client)
    keys = [each.headers["idempotency-key"] for each in requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert requests[0].content == requests[2].content


async def test_a_submission_that_is_still_being_answered_is_asked_for_again(server: Server, slept: list[float]) -> None:
    in_progress = {"type": "urn:mathrag:in_progress", "detail": "the same request is being answered"}
    server(in_turn(lambda _: httpx2.Response(409, json=in_progress, headers={"retry-after": "1"}), says(VIEW)))
    with Client(ADDRESS) as client:
        assert submit(client).name == "first"
    assert slept == [1.0]


@pytest.mark.parametrize("first", [BUSY, lost(httpx2.ReadError), lost(httpx2.ReadTimeout)])
async def test_what_may_have_been_done_is_not_done_twice(server: Server, slept: list[float], first: Handler) -> None:
    requests = server(in_turn(first))
    assert all(isinstance(failed, Unavailable | Unreachable) for failed in await by_both(imported))
    assert (len(requests), slept) == (2, [])


async def test_a_refusal_for_now_is_no_answer(server: Server, slept: list[float]) -> None:
    requests = server(in_turn(refuses(429, "too_many", "wait"), says(VIEW)))
    with Client(ADDRESS) as client:
        assert imported(client).name == "first"
    assert len(requests) == 2


async def test_rows_that_can_be_read_once_are_sent_once(server: Server, slept: list[float]) -> None:
    requests = server(in_turn(refuses(429, "too_many", "wait"), says(VIEW)))
    with Client(ADDRESS) as client, pytest.raises(TooMany):
        client.corpora.create("c", (row for row in [{"text": "a"}]))
    assert len(requests) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 412, 422, 500, 507])
async def test_an_answer_is_not_asked_for_again(server: Server, slept: list[float], status: int) -> None:
    requests = server(refuses(status, "some_kind", "no"))
    assert [failed.status for failed in await by_both(get)] == [status, status]
    assert (len(requests), slept) == (2, [])


async def test_retries_end(server: Server, slept: list[float]) -> None:
    requests = server(BUSY)
    for failed in await by_both(get, retries=4):
        assert (failed.message, failed.hint) == ("the retriever is away", "wait for it")
        assert failed.__notes__ == ["tried 5 times"]
    assert len(requests) == 10
    assert all(2**number / 4 <= wait <= 2**number / 2 for number, wait in enumerate(slept[:4]))


@pytest.mark.parametrize(("value", "wait"), [("7", 7.0), (" 0 ", 0.0), ("nonsense", None), ("-1", None), ("", None)])
async def test_the_server_says_when(server: Server, slept: list[float], value: str, wait: float | None) -> None:
    server(in_turn(asking_back(value), says(VIEW)))
    with Client(ADDRESS) as client:
        get(client)
    assert slept == [wait] if wait is not None else 0 < slept[0] <= connection.FIRST_S


def test_the_server_says_when_as_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=20)
    assert 15 < (connection.seconds_of(format_datetime(at, usegmt=True)) or 0) <= 20
    assert connection.seconds_of("Wed, 21 Oct 2015 07:28:00 -0000") == 0.0


async def test_a_server_that_wants_an_hour_is_not_waited_for(server: Server, slept: list[float]) -> None:
    requests = server(asking_back("3600"))
    assert [failed.retry_after_s for failed in await by_both(get)] == [3600.0, 3600.0]
    assert (len(requests), slept) == (2, [])


async def test_a_server_that_never_answered_is_not_waited_for(server: Server, slept: list[float]) -> None:
    server(lost(httpx2.ConnectError))
    for failed in await by_both(get):
        assert isinstance(failed, Unreachable)
        assert "mathrag up" in str(failed)
    assert slept == []
    server(in_turn(says(VIEW), lost(httpx2.ConnectError), says(VIEW)))
    with Client(ADDRESS) as client:
        assert [get(client).name, imported(client).name] == ["first", "first"]
    assert len(slept) == 1


async def test_a_stream_is_opened_again_and_never_continued(server: Server, slept: list[float]) -> None:
    row = b'{"index": 0}\n'
    requests = server(in_turn(BUSY, lost(httpx2.ReadError), lambda _: httpx2.Response(200, content=row)))
    with Client(ADDRESS) as client:
        assert b"".join(client.jobs.results_file("first")) == row
    async with AsyncClient(ADDRESS) as other:
        assert b"".join([piece async for piece in other.jobs.results_file("first")]) == row
    assert (len(requests), len(slept)) == (4, 2)

    def broken() -> Iterator[bytes]:
        yield row
        raise httpx2.ReadError("gone")

    requests = server(lambda _: httpx2.Response(200, content=broken()))
    with Client(ADDRESS) as client, pytest.raises(Unreachable):
        list(client.jobs.results_file("first"))
    assert len(requests) == 1


async def test_send_sends_once(server: Server, slept: list[float]) -> None:
    requests = server(BUSY)
    with Client(ADDRESS) as client, pytest.raises(Failed):
        client.send(client.jobs.__class__.get.describe("first"))
    assert len(requests) == 1


def test_an_upload_that_breaks_off_begins_anew(tmp_path: Path, slept: list[float]) -> None:
    line = b'{"text": "' + b"x" * 1000 + b'"}\n'
    (tmp_path / "corpus.jsonl").write_bytes(line * 3000)
    answer = (
        b'{"id": 1, "name": "c", "hash": "1", "documents": 3000, "indexed": true, "created_at": "", "skipped": 0,'
        b' "rejected": 0}'
    )
    received: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_serve, args=(listening, answer, received))
        serving.start()
        said: list[int] = []
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}", retries=5) as client:
            path = tmp_path / "corpus.jsonl"
            made = client.corpora.create("c", path, progress=lambda progress: said.append(progress.lines))
        serving.join()
    assert (made.documents, received[-1], said[-1]) == (3000, 3000, 3000)
    assert received[0] < 3000
    assert said != sorted(said), "progress began anew, too"


def _serve(listening: socket.socket, answer: bytes, received: list[int]) -> None:
    for most in (500_000, None):
        accepted, _ = listening.accept()
        with accepted:
            body = b""
            while not body.endswith(b"0\r\n\r\n") and (most is None or len(body) < most):
                body += accepted.recv(1 << 16)
            received.append(body.count(b'"}\n'))
            if most is None:
                head = f"HTTP/1.1 201 Created\r\ncontent-length: {len(answer)}\r\n\r\n"
                accepted.sendall(head.encode() + answer)


# What answers need not be MathRAG-Gate, nor this release of it.


def text(content: bytes, status: int = 200, **headers: str) -> Handler:
    return lambda _: httpx2.Response(status, content=content, headers=headers)


ANSWERS = {
    "a page": (text(b"<!doctype html><title>Welcome</title>"), Incompatible, "is not JSON"),
    "half of it": (text(b'{"id": "6b0c1e9e", "name": '), Incompatible, "is not JSON"),
    "nothing": (text(b""), Incompatible, "is not JSON"),
    "no UTF-8": (text(b'{"id": "\xff"}'), Incompatible, "is not JSON"),
    "very deep": (text(b"[" * 200_000), Incompatible, "127.0.0.1"),
    "another document": (says({"hello": "world"}), Incompatible, "required field"),
    "a number for a name": (says({**VIEW, "name": 17}), Incompatible, "name"),
    "too huge a number": (text(b'{"id": ' + b"9" * 5000 + b"}"), Incompatible, "127.0.0.1"),
    "elsewhere": (text(b"", 302, location="http://evil.example/"), Failed, "evil.example"),
    "a page of a proxy": (text(b"<h1>Bad gateway</h1>", 404), NotFound, "answered with status 404"),
    "a problem that is none": (text(b'{"type": 7, "detail": []}', 422), Invalid, "answered with status 422"),
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
        with pytest.raises(Failed, match="spaces or invalid characters") as raised:
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
