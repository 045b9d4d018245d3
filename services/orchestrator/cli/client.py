"""The REST API as the command line sees it: every answer a JSON value, every problem a `Failed`."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from services.orchestrator.cli.failures import Failed
from services.orchestrator.stack import state
from shared.access.bearer import authorization
from shared.settings import load

DEFAULT = "http://127.0.0.1:8080"
ANSWER_S = 60.0
INDEXED_S = 1900.0
"""An upload answers when its indexes are built."""
LOCAL = ("127.0.0.1", "localhost", "::1")
PREFIX = "urn:mathrag:"


def url() -> str:
    """Where the API is: MATHRAG_URL, else where the stack of the data directory runs, else the default."""
    if given := os.environ.get("MATHRAG_URL"):
        return given.rstrip("/")
    running = state.read(load().data_dir)
    return running.url if running and running.phase == "running" else DEFAULT


class Client:
    """One server."""

    transport: httpx2.BaseTransport | None = None
    """None: the network."""

    def __init__(self, base: str | None = None) -> None:
        self.url = base or url()
        # A proxy of the environment must not come between us and our own machine.
        remote = _host(self.url) not in LOCAL
        key = authorization(os.environ.get("MATHRAG_API_KEY", "").strip())
        self._http = httpx2.Client(
            base_url=self.url, timeout=ANSWER_S, trust_env=remote, transport=self.transport, headers=key
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: str | int | None) -> Any:
        """The JSON value at `path`."""
        return self._json("GET", path, params=_given(query))

    def post(self, path: str, body: Any = None) -> Any:
        """Send `body` as JSON."""
        return self._json("POST", path, content=b"" if body is None else msgspec.json.encode(body), headers=JSON)

    def upload(self, path: str, lines: Iterable[bytes], **query: str) -> Any:
        """Stream JSON lines."""
        return self._json("POST", path, params=query, content=lines, headers=NDJSON, timeout=INDEXED_S)

    def all(self, path: str) -> Iterator[Any]:
        """Every entry of a paged list."""
        cursor = None
        while True:
            page = self.get(path, cursor=cursor)
            yield from page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def stream(self, path: str) -> Iterator[bytes]:
        """The bytes at `path`, as they arrive."""
        with self._reaching(), self._http.stream("GET", path) as reply:
            if reply.is_error:
                reply.read()
                raise _failed(reply)
            yield from reply.iter_bytes()

    def _json(self, method: str, path: str, **arguments: Any) -> Any:
        with self._reaching():
            reply = self._http.request(method, path, **arguments)
        if reply.is_error:
            raise _failed(reply)
        return msgspec.json.decode(reply.content)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            raise Failed(
                "unreachable", f"no answer from {self.url} ({str(error) or type(error).__name__})", hint=UNREACHABLE
            ) from error


def _host(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed("usage", f"MATHRAG_URL: {address!r} is no address of a server", hint=f"such as {DEFAULT}")
    return parts.hostname


UNREACHABLE = "start it with `mathrag up`, or set MATHRAG_URL"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


def _given(query: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {name: value for name, value in query.items() if value is not None}


def _failed(reply: httpx2.Response) -> Failed:
    try:
        problem = msgspec.json.decode(reply.content, type=dict[str, Any])
        return Failed(problem["type"].removeprefix(PREFIX), problem["detail"], problem.get("hint"))
    except (msgspec.DecodeError, KeyError):
        return Failed("internal", f"{reply.request.url} answered {reply.status_code}", hint="is it MathRAG-Gate?")


def segment(name: str) -> str:
    """`name` as one part of a path, whatever it holds."""
    return quote(name, safe="")
