"""A loopback HTTP server that speaks as much OpenAI chat and TGI as a test tells it to, broken replies included."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.doubles import streams


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Decode the body."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What the server sends back; `missing` bytes of the announced length never come."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0
    reset: bool = False
    """Break the connection with RST once the bytes are out."""
    hang: bool = False
    """Send nothing until the client goes away."""
    stall: bool = False
    """Send the headers, and then nothing until the client goes away."""
    hold: bool = False
    """Send what there is, and then nothing until the client goes away."""


def as_json(value: object, status: int = 200) -> Reply:
    """Make a JSON reply."""
    return Reply(status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def as_lines(values: Iterable[object]) -> Reply:
    """Make a stream of JSON documents, one a line."""
    body = "".join(json.dumps(value) + "\n" for value in values)
    return Reply(body=body.encode(), headers={"Content-Type": "application/x-ndjson"})


def answer(
    text: str, finish_reason: str = "stop", usage: dict[str, int] | None = None, logprobs: object = None
) -> Reply:
    """Make a chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    choice |= {"logprobs": {"content": logprobs}} if logprobs is not None else {}
    body: dict[str, object] = {"object": "chat.completion", "id": "1", "created": 1, "model": "m", "choices": [choice]}
    return as_json(body | ({"usage": usage} if usage else {}))


Respond = Callable[[Seen], Reply]


class ChatServer:
    """Remembers every request and answers it by `respond`."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.seen: list[Seen] = []
        self.arrived = asyncio.Event()
        """Set by every request."""
        self.left = asyncio.Event()
        """Set when a client hangs up on a reply that hangs."""
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection."""
        try:
            request = await _read(reader)
            self.seen.append(request)
            self.arrived.set()
            reply = in_pieces(request, self.respond(request))
            if reply.hang or reply.stall:
                writer.write(_bytes(replace(reply, body=b"", missing=len(reply.body))) if reply.stall else b"")
                await reader.read()
                self.left.set()
                return
            writer.write(_bytes(reply))
            await writer.drain()
            if reply.hold:
                await reader.read()
                self.left.set()
                return
            if reply.reset:
                _send_rst_at_close(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def chat_server(respond: Respond, port: int = 0) -> AsyncIterator[ChatServer]:
    """Run a server for the length of the block, without a `port` on a free one."""
    double = ChatServer(respond)
    server = await asyncio.start_server(double.serve, "127.0.0.1", port)
    double.port = server.sockets[0].getsockname()[1]
    try:
        yield double
    finally:
        server.close()
        await server.wait_closed()


def in_pieces(request: Seen, reply: Reply) -> Reply:
    """Turn a whole answer into the stream that the request asks for; return any other reply unchanged."""
    if reply.status != 200 or (made := streams.as_asked(request.body, reply.body)) is None:
        return reply
    body, kind = made
    return replace(reply, body=body, headers={**reply.headers, "Content-Type": kind})


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in head[1:] if line)}
    return Seen(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _bytes(reply: Reply) -> bytes:
    headers = {"Content-Length": str(len(reply.body) + reply.missing), "Connection": "close", **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body


def _send_rst_at_close(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
