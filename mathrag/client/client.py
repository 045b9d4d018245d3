"""The synchronous client: `Client().send(jobs.get("first"))`.

The HTTP library is imported when there is a client: help needs none, and it takes as long as all else together.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mathrag.client.address import url
from mathrag.client.connection import ANSWER_S, SILENT_S, options
from mathrag.client.errors import Shown
from mathrag.client.reply import decoded, failed, reaching, streamed
from mathrag.client.request import Page, Request, T

if TYPE_CHECKING:
    import httpx2


class Client:
    """One server."""

    transport: "httpx2.BaseTransport | None" = None
    """None: the network."""

    def __init__(self, base: str | None = None, patience_s: float = ANSWER_S) -> None:
        import httpx2

        from mathrag.client import dry_run

        self.url = base or url()
        self.shows = (shown := dry_run.transport()) is not None
        """Requests are shown, and none is sent."""
        self._http = httpx2.Client(transport=shown or self.transport, **options(self.url, patience_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, request: Request[T]) -> T:
        """The JSON value that answers the request.

        Raises:
            Failed: the server answers with a problem, or not at all.
        """
        with reaching(self.url):
            reply = self._http.request(request.method, request.path, **request.arguments())
        return decoded(request, reply)

    def all(self, request: Request[Page[T]]) -> Iterator[T]:
        """Every entry of a paged list, from the page that the request names on."""
        while True:
            page = self.send(request)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            request = request.after(page["next_cursor"])

    def stream(self, request: Request[bytes]) -> Iterator[bytes]:
        """The bytes of the answer, as they arrive."""
        with self._open(request) as reply:
            yield from reply.iter_bytes()

    def save(self, request: Request[bytes], file: Path) -> None:
        """Write the answer to `file`: all of it, or nothing."""
        partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            with self._open(request, extensions={"file": str(file)}) as reply:
                with partial.open("xb") as opened:
                    opened.writelines(reply.iter_bytes())
                partial.replace(file)
        except Shown:
            return  # the next file can be shown, too
        finally:
            partial.unlink(missing_ok=True)

    @contextmanager
    def events(self, request: Request[bytes]) -> "Iterator[Iterator[httpx2.ServerSentEvent]]":
        """The open stream of server-sent events."""
        import httpx2

        timeout = httpx2.Timeout(ANSWER_S, read=SILENT_S)
        with self._open(request, timeout=timeout) as reply:
            yield iter(streamed(reply, self.url))

    @contextmanager
    def _open(self, request: Request[bytes], **more: Any) -> "Iterator[httpx2.Response]":
        arguments = {**request.arguments(), **more}
        with reaching(self.url), self._http.stream(request.method, request.path, **arguments) as reply:
            if reply.is_error:
                reply.read()
                raise failed(reply)
            yield reply
