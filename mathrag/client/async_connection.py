"""Send requests with asyncio, like `Connection` does with blocking calls."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import httpx2
from anyio import to_thread

from mathrag.client import address
from mathrag.client.connection import (
    ANSWER_S,
    RETRIES,
    SILENT_S,
    A,
    Reading,
    Reply,
    Tries,
    decode_answer,
    json,
    name_proxy_errors,
    options,
    read_events,
    read_problem,
    replace_when_whole,
    require_success,
    translate_errors,
)
from mathrag.client.errors import Failed
from mathrag.client.request import Page, Request, T


class AsyncConnection:
    """Connection to one server."""

    transport: httpx2.AsyncBaseTransport | None = None
    """Transport that replaces the network in tests."""
    sleep = staticmethod(anyio.sleep)

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = ANSWER_S, retries: int = RETRIES
    ) -> None:
        """Connect on the first request; the arguments are those of `Connection`."""
        self.url = url.strip().rstrip("/") if url else address.url()
        self.retries = retries
        self._has_answered = False
        with name_proxy_errors():
            self._http = httpx2.AsyncClient(transport=self.transport, **options(self.url, timeout_s, key))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, request: Request[T]) -> T:
        """Send the request once, and return the JSON value of the answer.

        Raises:
            Failed: the server answers with a problem, or not at all.
        """
        value: T = json(await self._fetch(request))
        return value

    async def read(self, request: Request[Any], answer: type[A], *, retries: int | None = None) -> A:
        """Return the answer as a value of the type `answer`; retry a few times if that is harmless.

        Raises:
            Failed: the server answers with a problem, with something else, or not at all.
        """
        most = self.retries if retries is None else retries
        tries = Tries(request, most, has_answered=self._has_answered)
        while True:
            try:
                return decode_answer(request, await self._fetch(request), answer)
            except Failed as failure:
                await self.sleep(tries.delay(failure))

    async def all(self, request: Request[Page[T]]) -> AsyncIterator[T]:
        """Yield every entry of a paged list, from the page that the request names."""
        while True:
            page = await self.send(request)
            for entry in page["data"]:
                yield entry
            if page["next_cursor"] is None:
                return
            request = request.with_cursor(page["next_cursor"])

    async def stream(self, request: Request[bytes], *, retries: int = 0) -> AsyncIterator[bytes]:
        """Yield the bytes of the answer as they arrive; after the first byte, nothing is retried."""
        tries = Tries(request, retries, has_answered=self._has_answered)
        begun = False
        while True:
            try:
                async with self._open(request) as reply:
                    async for piece in reply.aiter_bytes():
                        begun = True
                        yield piece
            except Failed as failure:
                if begun:
                    raise
                await self.sleep(tries.delay(failure))
            else:
                return

    async def save(self, request: Request[bytes], file: Path, *, retries: int = 0) -> None:
        """Write the answer to `file` atomically; a retry fetches it from the beginning."""
        tries = Tries(request, retries, has_answered=self._has_answered)
        while True:
            try:
                return await self._save(request, file)
            except Failed as failure:
                await self.sleep(tries.delay(failure))

    async def _save(self, request: Request[bytes], file: Path) -> None:
        async with self._open(request) as reply:
            with replace_when_whole(file) as partial:
                async with await anyio.open_file(partial, "xb") as opened:
                    async for piece in reply.aiter_bytes():
                        await opened.write(piece)

    @asynccontextmanager
    async def events(self, request: Request[bytes]) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Open a stream of server-sent events for the time of the block."""
        async with self._open(request, timeout=httpx2.Timeout(ANSWER_S, read=SILENT_S)) as reply:
            yield aiter(read_events(reply, self.url))

    async def _fetch(self, request: Request[Any]) -> Reply:
        with translate_errors(self.url):
            async with self._http.stream(request.method, request.path, **_make_arguments(request)) as reply:
                self._has_answered = True
                return require_success(request, await _aread_whole(reply))

    @asynccontextmanager
    async def _open(self, request: Request[bytes], **more: Any) -> AsyncIterator[httpx2.Response]:
        arguments = {**_make_arguments(request), **more}
        with translate_errors(self.url):
            async with self._http.stream(request.method, request.path, **arguments) as reply:
                self._has_answered = True
                if not reply.is_success:
                    raise read_problem(await _aread_whole(reply))
                yield reply


async def _aread_whole(reply: httpx2.Response) -> Reply:
    reading = Reading(reply)
    async for piece in reply.aiter_bytes():
        reading.add(piece)
    return reading.make_reply()


def _make_arguments(request: Request[Any]) -> dict[str, Any]:
    found = request.arguments()
    return found if request.lines is None else {**found, "content": _read_in_thread(found["content"])}


async def _read_in_thread(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces; read each in a thread, because reading from a file may be slow."""
    waiting = iter(pieces)
    while (piece := await to_thread.run_sync(next, waiting, None)) is not None:
        yield piece
