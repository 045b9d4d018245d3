"""What a browser sends."""

import asyncio
import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
from sqlalchemy import event

from services.orchestrator.access.identity import UNKNOWN_S
from services.orchestrator.polling import Polls
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration.api import Api

T = TypeVar("T")
HTML = {"accept": "text/html"}


async def look(api: Api, path: str, **headers: str) -> httpx2.Response:
    """What a browser gets."""
    return await api.http.get(path, headers={**HTML, **headers})


async def text(api: Api, path: str) -> str:
    """The page at `path`, which there must be."""
    reply = await look(api, path)
    assert reply.status_code == 200, reply.text
    return reply.text


async def send(api: Api, path: str, fields: Mapping[str, str]) -> httpx2.Response:
    """A form."""
    return await api.http.post(path, data=dict(fields), headers=HTML)


def token(page: str) -> str:
    """The one that the page's forms send back."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def field_errors(page: str) -> dict[str, str]:
    """What a form says beside its fields, by their names."""
    found = re.findall(r'<span class="field-error" id="([^"]*)-error">(.*?)</span>', page)
    return {field: html.unescape(re.sub("</?code>", "`", words)) for field, words in found}


def rows(page: str) -> list[str]:
    """The rows that the keys go through, as their words."""
    drawn = re.findall(r"<tr data-row.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in drawn]


def without_time(row: str) -> str:
    """A row without the time that it ends with."""
    return re.sub(r" (just now|\d+ min ago)$", "", row)


async def sign_in(api: Api, database: Database, *scopes: Scope) -> str:
    """Sign in with a new key of these scopes; the session's cookie stays in the client, the key is returned."""
    key = await keys.create_key(database, "local", "-".join(scopes), set(scopes))
    await asyncio.sleep(UNKNOWN_S)  # so often keys that are not known yet are looked for
    reply = await api.http.post("/sign-in", data={"key": key})
    assert reply.status_code == 303, reply.text
    return key


def next_page(page: str) -> str | None:
    """Where the page's link to the next one leads."""
    found = re.search(r'<a href="([^"]*)" rel="next"', page)
    return html.unescape(found[1]) if found else None


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """What is sent to the database meanwhile."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


class HeldPolls(Polls):
    """Polls that read once, when a test says so."""

    def __init__(self) -> None:
        super().__init__(self._held)
        self._waiting = 0
        self._changed = asyncio.Condition()
        self._go = asyncio.Event()

    async def _held(self) -> None:
        await self._go.wait()

    async def wait_for_next(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """As ever, counted; whoever comes again waits for ever."""
        if self._go.is_set():
            await asyncio.Event().wait()
        async with self._changed:
            self._waiting += 1
            self._changed.notify_all()
        return await super().wait_for_next(key, read)

    async def let_go(self, watchers: int) -> None:
        """Read, as soon as so many have come to wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting == watchers)
        self._go.set()


@asynccontextmanager
async def watching(api: Api, path: str, key: str = "") -> AsyncIterator[asyncio.Queue[str]]:
    """What a stream that does not end sends, piece by piece."""
    pieces: asyncio.Queue[str] = asyncio.Queue()

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            pieces.put_nowait(message["body"].decode())

    path, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *([(b"authorization", f"Bearer {key}".encode())] if key else [])],
        "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    task = asyncio.create_task(api.app(scope, asyncio.Event().wait, send))
    try:
        yield pieces
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
