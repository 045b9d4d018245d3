"""Connections of a server: how many it takes, from whom, and how long they may be idle."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import httptools
import uvicorn
from anyio import CancelScope
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mathrag.errors import BadRequest, HeaderTooLarge, MathragError, TimedOut, TooMany, Unavailable
from shared.access.filters import HEADERS, MEDIA_TYPE, encode_problem
from shared.settings import Limits

# Bounds of a connection before its request is authenticated.
#
# uvicorn bounds neither the size of a header nor the time in which header and body arrive, and it accepts any number of
# connections. `LimitedConnection` is uvicorn's protocol with these bounds; a client that breaks one is told which, and
# disconnected.

LINGER_S = 2.0
"""How long a refused client may continue sending: if closed at once, it would be reset before it has read the
reason."""
LINGER_BYTES = 1 << 20
"""Maximum number of bytes that are read from it in that time."""
MAX_PIPELINED = 16
"""Requests that a client may send ahead of their answers."""
BODY_PERIODS = 2
"""Length of the periods over which the speed of a body is measured, in multiples of `limits.idle_s`."""
FIELD_SEPARATORS = len(": \r\n")


class LimitedConnection(HttpToolsProtocol):
    """One client's connection, with a limit on everything that it makes the service keep or wait for."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._awaited: Literal["header", "body"] | None = "header"
        """The part of a request that must come next; None after a complete one while no other has begun."""
        self._deadline: asyncio.TimerHandle | None = None
        self._refusal: MathragError | None = None
        self._begun = False
        """Whether any byte of the present request has arrived."""
        self._header_bytes = self._header_fields = self._undecoded = 0
        self._body_from = self._body_at = 0.0
        self._body_bytes = 0
        self._hosts = 0
        self._waits_since = 0.0
        """When it began to wait for the present request's header, in the loop's time."""
        self._postponed: MathragError | None = None
        """Why nothing more is read; sent once all earlier requests are answered."""
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the newest request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a header. If there are too many connections, close the one that has waited longest for a
        header, or refuse the client if all others are in use.
        """
        super().connection_made(transport)
        # Have the kernel end a connection whose client acknowledges no sent byte for `seconds` (Linux, tcp(7)).
        sock = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT") and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._limits.idle_s * 1000))
        most = self._limits.connections
        if len(self.connections) > most and not self._close_longest_idle():
            self._refuse(
                Unavailable(f"{most} connections are open, as many as `limits.connections` allows; try again later")
            )
            transport.close()  # at once: a lingering connection holds a file descriptor
        else:
            self._await_header()

    def _close_longest_idle(self) -> bool:
        """Close the connection that has waited longest for a header; return False if no other connection waits."""
        idle = [each for each in self.connections if isinstance(each, LimitedConnection) and each._is_idle()]
        others = [each for each in idle if each is not self]
        if others:
            min(others, key=lambda each: each._waits_since).transport.close()
        return bool(others)

    def _is_idle(self) -> bool:
        is_in_use = self._refusal is not None or self._awaited == "body" or self._is_answering()
        return not is_in_use and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the request that is being answered as disconnected as well: uvicorn marks only the newest one."""
        self._stop_waiting()
        self._disconnect(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._undecoded += len(data)
        if self._refusal is not None or self._postponed is not None:
            if self._undecoded > LINGER_BYTES:
                self.flow.pause_reading()
            return
        self._unset_keepalive_if_required()
        if self._awaited is None:
            self._await_header()
        try:
            self.parser.feed_data(data)
            # Bound the bytes that the parser reads without an event, such as a field, chunk size or trailer that does
            # not end.
            if self._undecoded > self._limits.header_bytes:
                raise _make_header_error(self._limits)
        except httptools.HttpParserUpgrade:
            pass  # no upgrade is supported: the request is answered normally
        except (httptools.HttpParserError, HeaderTooLarge) as error:
            causes = (each for each in (error, error.__context__) if isinstance(each, MathragError))
            self._refuse_in_turn(next(causes, BadRequest("the request is not valid HTTP/1.1")))

    def _refuse_in_turn(self, error: MathragError) -> None:
        """Refuse the newest request; if others came before it, only once they are answered."""
        if not self._is_answering() or (self._awaited == "body" and self.cycle is self._running):
            self._refuse(error)
            return
        if self._awaited == "body":
            self.pipeline.popleft()
        self._awaited, self._postponed, self._undecoded = "header", error, 0
        self._stop_waiting()

    # Callbacks of the parser; their exceptions reach `data_received` as the context of a parser's error.

    def on_message_begin(self) -> None:
        """Start to count a new request's header."""
        super().on_message_begin()
        self._begun = True
        self._header_bytes = self._header_fields = self._hosts = 0
        if self._awaited is None:
            self._await_header()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field of the header, or of a trailer, which is otherwise ignored."""
        self._header_fields += 1
        self._count(len(name) + len(value) + FIELD_SEPARATORS)
        if self._header_fields > self._limits.header_fields:
            raise HeaderTooLarge(f"a header may have {self._limits.header_fields} fields (`limits.header_fields`)")
        if self._awaited == "header":
            self._hosts += name.lower() == b"host"
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to wait for the body; refuse the request if too many are pipelined, or if it does not name one host
        (RFC 9112, 3.2): a proxy and this service could read different ones.
        """
        if self._hosts != 1 and (self._hosts > 1 or self.parser.get_http_version() == "1.1"):
            raise BadRequest(f"`Host`: must be sent exactly once, not {self._hosts} times")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooMany(f"{MAX_PIPELINED} requests wait on this connection", hint="wait for their answers")
        super().on_headers_complete()
        self._awaited = "body"
        self._undecoded = self._body_bytes = 0
        self._body_from = self._body_at = self.loop.time()
        self._wait(self._limits.idle_s, self._check_body)

    def on_body(self, body: bytes) -> None:
        """Count a part of the body."""
        self._undecoded = 0
        self._body_bytes += len(body)
        self._body_at = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting: the request is complete."""
        self._stop_waiting()
        self._awaited, self._begun, self._undecoded = None, False, 0
        super().on_message_complete()
        if not self._is_answering():
            self._await_header()  # the request was answered before all of it had come

    # uvicorn's own hooks

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Give the rest of a body that was answered early a moment to arrive, so that the connection can be reused."""
        answered = self._running
        super().on_response_complete()
        if self._postponed is not None and not self._is_answering() and not self.transport.is_closing():
            self._refuse(self._postponed)
        elif self._awaited == "body" and self.cycle is answered and not self.transport.is_closing():
            self._wait(LINGER_S, self.transport.close)

    # Limits

    def _await_header(self) -> None:
        self._awaited, self._begun, self._waits_since = "header", False, self.loop.time()
        self._wait(self._limits.header_s, self._check_header)

    def _count(self, size: int) -> None:
        self._undecoded = 0
        self._header_bytes += size
        if self._header_bytes > self._limits.header_bytes:
            raise _make_header_error(self._limits)

    def _check_header(self) -> None:
        if self._is_answering():
            self._wait(self._limits.header_s, self._check_header)  # a request ahead of its turn
        elif self._begun:
            self._refuse(TimedOut(f"the header took longer than {self._limits.header_s:g} s (`limits.header_s`)"))
        else:
            self.transport.close()

    def _check_body(self) -> None:
        # Tell whether the client waits for the service, so that a slow body is not its fault.
        running = self._running
        waiting = running is not None and running.waiting_for_100_continue
        is_client_waiting = self.flow.read_paused or self.cycle is not running or waiting
        if is_client_waiting:
            self._body_from, self._body_bytes, self._body_at = self.loop.time(), 0, self.loop.time()
        if (error := self._find_late_body()) is not None:
            self._refuse(error)
        else:
            self._wait(self._body_at + self._limits.idle_s - self.loop.time(), self._check_body)

    def _find_late_body(self) -> MathragError | None:
        limits, now = self._limits, self.loop.time()
        if now - self._body_at >= limits.idle_s:
            return TimedOut(f"no byte of the body came for {limits.idle_s:g} s (`limits.idle_s`)")
        elapsed = now - self._body_from
        if elapsed >= BODY_PERIODS * limits.idle_s:
            if self._body_bytes < elapsed * limits.body_bytes_s:
                return TimedOut(f"the body came slower than {limits.body_bytes_s} bytes/s (`limits.body_bytes_s`)")
            self._body_from, self._body_bytes = now, 0
        return None

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(max(seconds, 0), then)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Refusals

    def _refuse(self, error: MathragError) -> None:
        """Send the error if a response can be sent now, tell the application that its client is gone, and close."""
        self._refusal = error
        self._unset_keepalive_if_required()
        # Tell whether a response can be sent now without breaking into, or replacing, another request's response.
        running = self._running
        if running is None or running.response_complete:
            can_answer = self._awaited == "header"
        else:
            can_answer = self._awaited == "body" and running is self.cycle and not running.response_started
        if can_answer:
            body = encode_problem(error)
            fields = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), "Connection": "close"}
            lines = [f"{name}: {value}\r\n" for name, value in {**fields, **HEADERS.get(error.status, {})}.items()]
            status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            self.transport.write("".join([status, *lines, "\r\n"]).encode() + body)
        self.pipeline.clear()
        self._undecoded = 0
        self._disconnect(self._running)
        self.flow.resume_reading()
        self.transport.write_eof()
        self._wait(0 if self.transport.is_closing() else LINGER_S, self.transport.abort)

    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    @staticmethod
    def _disconnect(cycle: RequestResponseCycle | None) -> None:
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()


def _make_header_error(limits: Limits) -> HeaderTooLarge:
    return HeaderTooLarge(f"a header may have {limits.header_bytes} bytes (`limits.header_bytes`)")


def bound_connections(limits: Limits) -> Any:
    """Return the value of uvicorn's option `http` that makes a `LimitedConnection` for each client."""
    return partial(LimitedConnection, limits=limits)


T = TypeVar("T")


def serve(app: ASGIApp, limits: Limits, *, host: str, port: int, stop_s: int | None = None) -> None:
    """Serve until the process is told to stop, which open requests may then delay by `stop_s` seconds."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=bound_connections(limits),
        ws="none",
        log_level="warning",
        log_config=None,
        timeout_graceful_shutdown=stop_s,
    )


async def finish_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which is cancelled when the client closes the connection.

    The body of `request` must have been read.

    Raises:
        BadRequest: the client has closed the connection, so its answer is not needed.
    """
    with CancelScope() as scope:

        async def cancel_without_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            scope.cancel()

        watching = asyncio.create_task(cancel_without_client())
        try:
            return await work
        finally:
            watching.cancel()
    raise BadRequest("the client closed the connection before the answer", hint="send the request again, and wait")
