"""The REST API as the command line sees it: every answer a JSON value, every problem a `Failed`."""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from mathrag.cli.failures import Failed
from mathrag.client import dry_run as unsent
from mathrag.client import stack_state as state
from shared.access.bearer import authorization
from shared.settings import load

DEFAULT = "http://127.0.0.1:8080"
ANSWER_S = 60.0
INDEXED_S = 1900.0
"""An upload answers when its indexes are built."""
SILENT_S = 45.0
"""A stream of events that says nothing for so long, not even that it is alive, is broken."""
MOST_OF_A_PAGE = 500
"""Entries; the API gives no more at once."""
LOCAL = ("127.0.0.1", "localhost", "::1")
PREFIX = "urn:mathrag:"
Value = str | int | list[str]
"""Of a query's field; a list is the field several times."""


def url(data_dir: Path | None = None) -> str:
    """Where the API is: MATHRAG_URL, else where the stack of the data directory runs, else the default."""
    if given := os.environ.get("MATHRAG_URL"):
        return given.rstrip("/")
    running = state.read(data_dir or load().data_dir)
    return running.url if running and running.phase == "running" else DEFAULT


class Client:
    """One server."""

    transport: httpx2.BaseTransport | None = None
    """None: the network."""

    def __init__(self, base: str | None = None, patience_s: float = ANSWER_S) -> None:
        self.url = base or url()
        self.shows = (instead := unsent.transport()) is not None
        """Requests are shown, and none is sent."""
        self._http = httpx2.Client(
            base_url=self.url,
            timeout=patience_s,
            headers=authorization(os.environ.get("MATHRAG_API_KEY", "").strip()),
            # A proxy of the environment must not come between us and our own machine.
            trust_env=not is_local(self.url),
            transport=instead or self.transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Value | None) -> Any:
        """The JSON value at `path`."""
        return self._json("GET", path, params=_given(query))

    def readiness(self) -> Any:
        """What the server says of itself, well or not."""
        with self._reaching():
            reply = self._http.get("/readyz")
        if reply.is_error and reply.headers.get("content-type") != "application/json":
            raise _failed(reply)
        return msgspec.json.decode(reply.content)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send `body` as JSON."""
        if body is None:
            return self._json("POST", path, headers=headers)
        return self._json("POST", path, content=msgspec.json.encode(body), headers={**JSON, **(headers or {})})

    def delete(self, path: str) -> Any:
        """Delete what is at `path`."""
        return self._json("DELETE", path)

    def patch(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        """Send a change as JSON."""
        return self._json("PATCH", path, content=msgspec.json.encode(body), headers={**JSON, **headers})

    def upload(self, path: str, lines: Iterable[bytes], **query: str) -> Any:
        """Stream JSON lines."""
        return self._json("POST", path, params=query, content=lines, headers=NDJSON, timeout=INDEXED_S)

    def all(self, path: str, **query: str | int | None) -> Iterator[Any]:
        """Every entry of a paged list."""
        cursor = None
        while True:
            page = self.get(path, **query, cursor=cursor)
            yield from page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def stream(self, path: str, **query: str | int | None) -> Iterator[bytes]:
        """The bytes at `path`, as they arrive."""
        with self._open(path, params=_given(query)) as reply:
            yield from reply.iter_bytes()

    def save(self, path: str, file: Path, **query: str | int | None) -> None:
        """Write what is at `path` to `file`: all of it, or nothing."""
        partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            with self._open(path, params=_given(query), extensions={"file": str(file)}) as reply:
                with partial.open("xb") as opened:
                    opened.writelines(reply.iter_bytes())
                partial.replace(file)
        except unsent.Shown:
            return  # the next file can be shown, too
        finally:
            partial.unlink(missing_ok=True)

    @contextmanager
    def events(self, path: str, last: str | None = None) -> Iterator[Iterator[str]]:
        """The open stream of server-sent events at `path`, line by line, from after the event `last`."""
        headers = {"accept": EVENTS, **({"last-event-id": last} if last else {})}
        with self._open(path, headers=headers, timeout=httpx2.Timeout(ANSWER_S, read=SILENT_S)) as reply:
            if not reply.headers.get("content-type", "").startswith(EVENTS):
                raise Failed("not_implemented", f"{self.url} has no stream of events")
            yield reply.iter_lines()

    @contextmanager
    def _open(self, path: str, **arguments: Any) -> Iterator[httpx2.Response]:
        timeout = arguments.pop("timeout", httpx2.USE_CLIENT_DEFAULT)
        with self._reaching(), self._http.stream("GET", path, timeout=timeout, **arguments) as reply:
            if reply.is_error:
                reply.read()
                raise _failed(reply)
            yield reply

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


def is_local(address: str) -> bool:
    """Whether this is a server of this machine.

    Raises:
        Failed: it is no address of a server.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed("usage", f"MATHRAG_URL: {address!r} is no address of a server", hint=f"such as {DEFAULT}")
    return parts.hostname in LOCAL


UNREACHABLE = "start it with `mathrag up`, or set MATHRAG_URL"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
EVENTS = "text/event-stream"


def _given(query: Mapping[str, Value | None]) -> dict[str, Value]:
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
