"""A loopback HTTP server that speaks as much OpenAI chat and TGI as a test tells it to, broken replies included."""

import asyncio
import json
import re
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any


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
    if reply.status != 200 or (made := as_asked(request.body, reply.body)) is None:
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


# Answers in pieces, as model servers send them: events for OpenAI's chat, lines for Ollama's own.
#
# The forms are those of recorded exchanges (vLLM 0.32.0, llama-server b10434, Ollama 0.33.0; 2026-11-22).

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
WORD = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")
"""What counts as a token here."""

Streamed = tuple[bytes, str]
"""A body and its content type."""


def as_asked(request: bytes, reply: bytes) -> Streamed | None:
    """A whole answer in pieces, where the request wants a stream; None for what goes out as it is."""
    try:
        asked, whole = (json.loads(request), json.loads(reply)) if request and reply else ({}, {})
    except ValueError:
        return None
    if not (isinstance(asked, dict) and asked.get("stream") and isinstance(whole, dict)):
        return None
    if "choices" in whole:
        return events(*_chunks(whole)), EVENTS
    return (lines(*_lines(whole)), LINES) if "message" in whole else None


def events(*data: Any) -> bytes:
    """Server-sent events; the word that the stream is over goes out as it is."""
    return "".join(f"data: {each if each == '[DONE]' else json.dumps(each)}\n\n" for each in data).encode()


def lines(*data: Any) -> bytes:
    """Write one JSON document a line."""
    return "".join(json.dumps(each) + "\n" for each in data).encode()


def _chunks(whole: dict[str, Any]) -> list[Any]:
    """The role, the pieces, the end, the figures, and the word that it is over."""
    base = {name: value for name, value in whole.items() if name not in ("choices", "usage", "timings")}
    figures = {name: whole[name] for name in ("usage", "timings") if name in whole}
    deltas = [[each] for choice in whole["choices"][:1] for each in _deltas(choice)]
    return [*({**base, "choices": each} for each in deltas), {**base, "choices": [], **figures}, "[DONE]"]


def _deltas(choice: dict[str, Any]) -> list[dict[str, Any]]:
    if "message" not in choice:
        return [choice]
    logprobs = (choice.get("logprobs") or {}).get("content")
    pieces = _pieces(choice["message"].get("content") or "", logprobs)
    deltas = [{"role": "assistant", "content": None}, *({"content": text} for text, _ in pieces), {}]
    made: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    for each, (_, entries) in zip(made[1:], pieces, strict=False):
        each |= {"logprobs": {"content": entries}} if entries else {}
    made[-1]["finish_reason"] = choice.get("finish_reason")
    return made


def _lines(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The pieces, and a line with the figures, which an answer that is broken off lacks."""
    logprobs = whole.pop("logprobs", None)
    made: list[dict[str, Any]] = [
        {"model": whole.get("model", ""), "message": {"role": "assistant", "content": text}, "done": False}
        | ({"logprobs": entries} if entries else {})
        for text, entries in _pieces(whole["message"].get("content") or "", logprobs)
    ]
    last = {**whole, "message": {"role": "assistant", "content": ""}}
    return [*made, last] if whole.get("done", True) else made


def _pieces(text: str, logprobs: Any) -> list[tuple[str, Any]]:
    """The text in words, each with its log-probability; where there are not as many, all of them with the last one."""
    words = WORD.findall(text)
    if isinstance(logprobs, list) and len(logprobs) == len(words):
        return [(word, [entry]) for word, entry in zip(words, logprobs, strict=True)]
    return [*((word, None) for word in words[:-1]), *((word, logprobs) for word in words[-1:])]


# Answers that follow from the prompt alone.

RATING = "Rating:"
"""Ending of a judge's prompt."""


def by_rule(prompt: str) -> str:
    """Answer with a rating if the prompt asks for one, else with a boxed number."""
    number = zlib.crc32(prompt.encode())
    return f"[[{number % 5 + 1}]]" if prompt.endswith(RATING) else f"The answer is \\boxed{{{number % 10}}}."


def by_word(text: str, alternatives: int) -> list[dict[str, Any]]:
    """Log-probabilities in the form of OpenAI: each word is a token of probability 1/2."""
    others = [{"token": f"other{n}", "logprob": -2.0 - n} for n in range(alternatives - 1)]
    words = [word if n == 0 else f" {word}" for n, word in enumerate(text.split(" "))]
    return [
        {"token": word, "logprob": -0.6931471805599453, "bytes": list(word.encode()),
         "top_logprobs": [{"token": word, "logprob": -0.6931471805599453}, *others][:alternatives]}
        for word in words
    ]  # fmt: skip
