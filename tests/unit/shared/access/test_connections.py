"""One connection, whatever it sends or leaves out, holds up nobody else: the API itself, and clients of raw bytes."""

import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from services.orchestrator.app import build
from services.orchestrator.deps import Deps
from shared.settings import Limits, Settings
from tests.doubles.asgi_server import Listening, receive_all, serve_in_thread, status, wait_until
from tests.faults.recording import Seen

LIMITS = Limits(uploads=1, header_s=1, idle_s=1)
PATIENT = Limits(header_s=5, idle_s=5)
HOST = b"Host: 127.0.0.1\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST
UPLOAD = b"POST /v1/datasets?name=new HTTP/1.1\r\n" + HOST + b"Content-Type: application/x-ndjson\r\n"
REFUSED_UPLOAD = UPLOAD.replace(b"name=new", b"format=none")
"""Answered 422 as soon as there is room for it."""
MOST_ACCEPTED = 64 << 20
"""Bytes, with those that both kernels keep on the way."""


def api(limits: Limits) -> Any:
    settings = Settings(limits=limits)
    app = build(settings)
    app.state.deps = Deps(
        settings=settings, **dict.fromkeys(("database", "admission", "redis", "http", "wake"), cast("Any", None))
    )
    return app


@pytest.fixture
def here() -> Iterator[Listening]:
    with serve_in_thread(api(LIMITS), LIMITS) as running:
        yield running


def asked(here: Listening, request: bytes) -> int | None:
    with here.connect() as client:
        client.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + b"\r\n")
        return status(receive_all(client))


def flood(client: socket.socket, piece: bytes) -> int:
    sent = 0
    try:
        while sent < MOST_ACCEPTED:
            sent += client.send(piece)
    except OSError:
        pass
    return sent


ENDLESS = {
    "a field's value": (HEALTH + b"X-Long: ", b"a" * 65536),
    "a field's name": (HEALTH + b"X", b"a" * 65536),
    "fields": (HEALTH, b"a: b\r\n" * 10000),
    "the request line": (b"GET /", b"a" * 65536),
    "empty lines before the request": (b"", b"\r\n" * 32768),
    "a chunk's size": (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 65536),
    "a chunk's extension": (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n1;a=", b"a" * 65536),
    "a trailer": (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ", b"a" * 65536),
    "trailers": (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 10000),
}


@pytest.mark.fault("X1")
@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_cut_off_with_the_reason(here: Listening, seen: Seen, what: str) -> None:
    seen.describe("header, request line, chunk size and trailer that never end, sent as fast as the service reads them")
    begun, piece = ENDLESS[what]
    with here.connect() as client:
        client.sendall(begun)
        accepted = flood(client, piece)
        assert accepted < MOST_ACCEPTED
        assert asked(here, HEALTH) == 200
        assert status(receive_all(client)) == 431
    seen.figure("MB on the way when it was cut off", accepted / 1e6)
    seen.note("431, closed; other requests are answered in the meantime")


@pytest.mark.parametrize(("fields", "answer"), [(100, 200), (101, 431)])
def test_a_header_has_a_hundred_fields_at_most(here: Listening, fields: int, answer: int) -> None:
    assert asked(here, HEALTH + b"a: b\r\n" * (fields - 2)) == answer


@pytest.mark.parametrize(("size", "answer"), [(65_000, 200), (65_536, 431)])
def test_a_header_has_64_kib_at_most(here: Listening, size: int, answer: int) -> None:
    header = HEALTH + b"".join(b"X: " + b"a" * (size // 64 - 5) + b"\r\n" for _ in range(64))
    with here.connect() as client:
        for at in range(0, len(header), 1000):
            client.sendall(header[at : at + 1000])
        client.sendall(b"Connection: close\r\n\r\n")
        assert status(receive_all(client)) == answer


def trickle(client: socket.socket, piece: bytes) -> None:
    def send() -> None:
        try:
            for at in range(len(piece)):
                client.sendall(piece[at : at + 1])
                time.sleep(0.2)
        except OSError:
            return

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.fault("X2")
@pytest.mark.parametrize(
    ("begun", "then", "answer"),
    [
        (b"", b"", None),
        (b"GET /hea", b"", 408),
        (HEALTH, b"X-Slow: " + b"a" * 10000, 408),
        (UPLOAD + b"Content-Length: 1000\r\n\r\n", b"", 408),
        (UPLOAD + b"Content-Length: 100000\r\n\r\n", b"a" * 10000, 408),
        (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"a" * 10000, 408),
    ],
    ids=["nothing", "half a line", "a slow header", "no body", "a slow body", "a slow chunk"],
)
def test_who_does_not_send_on_is_disconnected(
    here: Listening, seen: Seen, begun: bytes, then: bytes, answer: int | None
) -> None:
    seen.describe("connections that send nothing, a half, or a byte now and then, of the header and of an upload")
    with here.connect() as client:
        client.sendall(begun)
        trickle(client, then)
        assert status(receive_all(client)) == answer
    wait_until(lambda: here.connections == 0)
    seen.note("408, closed")


@pytest.mark.fault("X2")
def test_an_upload_that_stands_still_gives_its_place_back(here: Listening, seen: Seen) -> None:
    seen.describe("the maximum number of uploads at once, all idle")
    with here.connect() as idle:
        idle.sendall(UPLOAD + b"Content-Length: 1000\r\n\r\n")
        wait_until(lambda: asked(here, REFUSED_UPLOAD + b"Content-Length: 0\r\n") == 429)
        assert status(receive_all(idle)) == 408
        wait_until(lambda: asked(here, REFUSED_UPLOAD + b"Content-Length: 0\r\n") == 422)
    seen.note("an idle upload's place is free again")


@pytest.mark.fault("X3")
def test_one_connection_too_many_is_refused_and_the_next_one_after_it_is_not(seen: Seen) -> None:
    seen.describe("the maximum number of connections, and one more")
    limits = Limits(connections=8, header_s=600)
    with serve_in_thread(api(limits), limits) as here, ExitStack() as others:
        clients = [others.enter_context(here.connect()) for _ in range(limits.connections)]
        for client in clients:
            client.sendall(UPLOAD + b"Content-Length: 1000\r\n\r\n")
        wait_until(lambda: here.connections == limits.connections)
        wait_until(lambda: asked(here, HEALTH) == 503)
        with here.connect() as further:
            assert status(receive_all(further)) == 503
        clients[0].close()
        wait_until(lambda: asked(here, HEALTH) == 200)
    seen.note("503, closed; there is room once another connection is closed")


@pytest.mark.fault("X2")
@pytest.mark.parametrize("begun", [b"", b"GET /hea"])
def test_idle_connections_give_way_to_a_further_one(seen: Seen, begun: bytes) -> None:
    seen.describe("the maximum number of idle connections, and one more")
    limits = Limits(connections=8, header_s=600)
    with serve_in_thread(api(limits), limits) as here, ExitStack() as others:
        first = others.enter_context(here.connect())
        wait_until(lambda: here.connections == 1)
        time.sleep(0.1)  # the loop's clock has steps of a millisecond
        clients = [others.enter_context(here.connect()) for _ in range(limits.connections - 1)]
        for client in (first, *clients):
            client.sendall(begun)
        wait_until(lambda: here.connections == limits.connections)
        assert asked(here, HEALTH) == 200
        assert first.recv(1) == b""
    seen.note("an idle connection is closed in favor of one in use")


@pytest.mark.parametrize("hosts", [b"", HOST + HOST, HOST + b"HOST: evil.example\r\n"])
def test_a_request_names_one_host(here: Listening, hosts: bytes) -> None:
    assert asked(here, b"GET /healthz HTTP/1.1\r\n" + hosts) == 400
    assert asked(here, b"GET /healthz HTTP/1.0\r\n") == 403  # no host is accepted by no-key services only
    assert asked(here, HEALTH) == 200


def test_the_rest_of_a_refused_upload_is_not_waited_for(here: Listening) -> None:
    with here.connect() as client:
        client.sendall(REFUSED_UPLOAD + b"Content-Length: 100000000000\r\n\r\n")
        trickle(client, b"a" * 10000)
        assert status(receive_all(client)) == 422
    wait_until(lambda: here.connections == 0)


def test_a_connection_is_of_use_after_a_refusal_whose_body_came_late(here: Listening) -> None:
    with here.connect() as client:
        client.sendall(REFUSED_UPLOAD + b"Content-Length: 5\r\n\r\n")
        assert status(client.recv(1 << 16)) == 422
        client.sendall(b"12345")
        client.sendall(HEALTH + b"\r\n")
        assert status(receive_all(client)) == 200
    wait_until(lambda: here.connections == 0)


def test_nonsense_is_answered_with_400(here: Listening) -> None:
    with here.connect() as client:
        client.sendall(b"nonsense\r\n\r\n")
        answer = receive_all(client)
    assert status(answer) == 400
    assert b"application/problem+json" in answer


class Answers:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.app = Starlette(
            routes=[
                Route("/slow", self.slow),
                Route("/endless", self.endless),
                Route("/body", self.body, methods=["POST"]),
            ]
        )

    async def slow(self, _: Request) -> Response:
        return StreamingResponse(self._pieces(b".", 12))

    async def endless(self, _: Request) -> Response:
        return StreamingResponse(self._pieces(b"." * 65536, 1 << 30, pause_s=0))

    async def body(self, request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def _pieces(self, piece: bytes, count: int, *, pause_s: float = 0.25) -> AsyncIterator[bytes]:
        try:
            for _ in range(count):
                await anyio.sleep(pause_s)
                yield piece
        finally:
            self.ended.set()


def answering(limits: Limits, use: Callable[[Listening, Answers], None]) -> None:
    answers = Answers()
    with serve_in_thread(answers.app, limits) as running:
        use(running, answers)


def test_an_answer_may_take_as_long_as_it_likes() -> None:
    def use(running: Listening, _: Answers) -> None:
        with running.connect() as client:
            client.sendall(b"GET /slow HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n\r\n")
            assert receive_all(client).count(b"1\r\n.\r\n") == 12

    answering(LIMITS, use)


def test_a_body_may_be_slow_but_not_too_slow() -> None:
    def use(running: Listening, _: Answers) -> None:
        with running.connect() as client:
            client.sendall(b"POST /body HTTP/1.1\r\n" + HOST + b"Connection: close\r\nContent-Length: 70000\r\n\r\n")
            for _ in range(70):
                client.sendall(b"a" * 1000)
                time.sleep(0.1)
            assert receive_all(client).endswith(b"70000")

    answering(PATIENT, use)


def test_requests_may_be_sent_ahead_of_their_answers() -> None:
    def use(running: Listening, _: Answers) -> None:
        body = b"POST /body HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
        with running.connect() as client:
            client.sendall(body * 10)
            read = b""
            while read.count(b"200 OK") < 10:
                read += client.recv(1 << 16)
            client.sendall(body * 100)
            read = receive_all(client)
            assert 16 <= read.count(b"200 OK") < 100
            assert status(read[read.rindex(b"HTTP/1.1 4") :]) == 429

    answering(PATIENT, use)


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [(b"nonsense\r\n\r\n", 400), (b"POST /body HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nx", 400)],
)
def test_requests_before_one_that_is_refused_are_answered(wrong: bytes, answer: int) -> None:
    def use(running: Listening, _: Answers) -> None:
        body = b"POST /body HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
        with running.connect() as client:
            client.sendall(body * 3 + wrong)
            read = receive_all(client)
        assert read.count(b"200 OK") == 3
        assert status(read[read.rindex(b"HTTP/1.1 4") :]) == answer

    answering(PATIENT, use)


@pytest.mark.parametrize(("pieces", "answer"), [(200, 408), (20000, 200)])
def test_a_body_needs_a_minimum_speed_in_each_period(pieces: int, answer: int) -> None:
    def use(running: Listening, _: Answers) -> None:
        first, rest = b"a" * 2_000_000, b"a" * pieces
        with running.connect() as client:
            length = b"Content-Length: %d\r\n" % (len(first) + 40 * pieces)
            client.sendall(b"POST /body HTTP/1.1\r\n" + HOST + b"Connection: close\r\n" + length + b"\r\n" + first)
            with suppress(OSError):
                for _ in range(40):
                    client.sendall(rest)
                    time.sleep(0.25)
            assert status(receive_all(client)) == answer

    answering(Limits(header_s=5, idle_s=1, body_bytes_s=10_000), use)


def test_who_waits_for_100_continue_gets_it() -> None:
    def use(running: Listening, _: Answers) -> None:
        with running.connect() as client:
            client.sendall(b"POST /body HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
            client.sendall(b"abc")
            assert status(client.recv(1 << 16)) == 200

    answering(PATIENT, use)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no limit for unread answers")
def test_an_answer_that_nobody_reads_ends() -> None:
    def use(running: Listening, answers: Answers) -> None:
        with running.connect(receive_bytes=4096) as client:
            client.sendall(b"GET /endless HTTP/1.1\r\n" + HOST + b"\r\n")
            wait_until(lambda: running.connections == 1)
            wait_until(lambda: running.connections == 0)
            wait_until(answers.ended.is_set)

    answering(LIMITS, use)


def test_an_answer_whose_reader_has_sent_a_further_request_ends_with_the_connection() -> None:
    def use(running: Listening, answers: Answers) -> None:
        with running.connect() as client:
            client.sendall(b"GET /endless HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status(client.recv(1 << 16)) == 200
        wait_until(answers.ended.is_set)

    answering(PATIENT, use)
