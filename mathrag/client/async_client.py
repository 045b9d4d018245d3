"""The asynchronous client: `await AsyncClient().send(jobs.get("first"))`, with the requests of the synchronous one."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2

from mathrag.client.address import url
from mathrag.client.connection import ANSWER_S, SILENT_S, options
from mathrag.client.reply import decoded, failed, reaching, streamed
from mathrag.client.request import Page, Request, T


class AsyncClient:
    """One server."""

    transport: httpx2.AsyncBaseTransport | None = None
    """None: the network."""

    def __init__(self, base: str | None = None, patience_s: float = ANSWER_S) -> None:
        self.url = base or url()
        self._http = httpx2.AsyncClient(transport=self.transport, **options(self.url, patience_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self, request: Request[T]) -> T:
        """The JSON value that answers the request.

        Raises:
            Failed: the server answers with a problem, or not at all.
        """
        with reaching(self.url):
            reply = await self._http.request(request.method, request.path, **_arguments(request))
        return decoded(request, reply)

    async def all(self, request: Request[Page[T]]) -> AsyncIterator[T]:
        """Every entry of a paged list, from the page that the request names on."""
        while True:
            page = await self.send(request)
            for entry in page["data"]:
                yield entry
            if page["next_cursor"] is None:
                return
            request = request.after(page["next_cursor"])

    @asynccontextmanager
    async def events(self, request: Request[bytes]) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """The open stream of server-sent events."""
        arguments = {**request.arguments(), "timeout": httpx2.Timeout(ANSWER_S, read=SILENT_S)}
        with reaching(self.url):
            async with self._http.stream(request.method, request.path, **arguments) as reply:
                if reply.is_error:
                    await reply.aread()
                    raise failed(reply)
                yield aiter(streamed(reply, self.url))


def _arguments(request: Request[T]) -> dict[str, Any]:
    found = request.arguments()
    return found if request.lines is None else {**found, "content": _one_by_one(found["content"])}


async def _one_by_one(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
