"""Sends requests: `send` once, for the JSON value of the answer; `read` with retries, for a typed one.

The HTTP library is imported by the first client: help needs none, and the import takes half the time of a command.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mathrag.client.address import url as url_of_stack
from mathrag.client.errors import Failed, Shown
from mathrag.client.http_options import ANSWER_S, SILENT_S, name_proxy_errors, options
from mathrag.client.partial_file import replace_when_whole
from mathrag.client.reply import (
    A,
    Reading,
    Reply,
    decode_answer,
    json,
    read_events,
    read_problem,
    require_success,
    translate_errors,
)
from mathrag.client.request import Page, Request, T
from mathrag.client.retries import RETRIES, Tries

if TYPE_CHECKING:
    import httpx2


class Connection:
    """One server, to which requests are sent."""

    transport: "httpx2.BaseTransport | None" = None
    """Replaces the network in tests."""
    sleep = staticmethod(time.sleep)

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = ANSWER_S, retries: int = RETRIES
    ) -> None:
        """Connect on the first request.

        Args:
            url: such as "http://127.0.0.1:8080"; None: MATHRAG_URL, else the stack that runs on this machine.
            key: the API key; None: MATHRAG_API_KEY.
            timeout_s: longest silence of the server.
            retries: how often a request that failed is sent again where that is harmless; `send` sends once.
        """
        import httpx2

        from mathrag.client import dry_run

        self.url = url.strip().rstrip("/") if url else url_of_stack()
        self.shows = (shown := dry_run.transport()) is not None
        """Whether requests are printed instead of sent."""
        self.retries = retries
        self._has_answered = False
        with name_proxy_errors():
            self._http = httpx2.Client(transport=shown or self.transport, **options(self.url, timeout_s, key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, request: Request[T]) -> T:
        """Send the request once, and return the JSON value of the answer.

        Raises:
            Failed: the server answers with a problem, or not at all.
        """
        value: T = json(self._fetch(request))
        return value

    def read(self, request: Request[Any], answer: type[A], *, retries: int | None = None) -> A:
        """Return the answer as a value of the type `answer`; retry a few times if that is harmless.

        Raises:
            Failed: the server answers with a problem, with something else, or not at all.
        """
        most = self.retries if retries is None else retries
        tries = Tries(request, most, has_answered=self._has_answered)
        while True:
            try:
                return decode_answer(request, self._fetch(request), answer)
            except Failed as failure:
                self.sleep(tries.delay(failure))

    def all(self, request: Request[Page[T]]) -> Iterator[T]:
        """Yield every entry of a paged list, beginning with the page that the request names."""
        while True:
            page = self.send(request)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            request = request.after(page["next_cursor"])

    def stream(self, request: Request[bytes], *, retries: int = 0) -> Iterator[bytes]:
        """Yield the bytes of the answer as they arrive; after the first byte, nothing is retried."""
        tries = Tries(request, retries, has_answered=self._has_answered)
        begun = False
        while True:
            try:
                with self._open(request) as reply:
                    for piece in reply.iter_bytes():
                        begun = True
                        yield piece
            except Failed as failure:
                if begun:
                    raise
                self.sleep(tries.delay(failure))
            else:
                return

    def save(self, request: Request[bytes], file: Path, *, retries: int = 0) -> None:
        """Write the answer to `file` atomically; a retry fetches it from the beginning."""
        tries = Tries(request, retries, has_answered=self._has_answered)
        while True:
            try:
                return self._save(request, file)
            except Failed as failure:
                self.sleep(tries.delay(failure))

    def _save(self, request: Request[bytes], file: Path) -> None:
        try:
            with (
                self._open(request, extensions={"file": str(file)}) as reply,
                replace_when_whole(file) as partial,
                partial.open("xb") as opened,
            ):
                opened.writelines(reply.iter_bytes())
        except Shown:
            return  # in a dry run: the requests for further files are printed, too

    @contextmanager
    def events(self, request: Request[bytes]) -> "Iterator[Iterator[httpx2.ServerSentEvent]]":
        """Open a stream of server-sent events for the time of the block."""
        import httpx2

        timeout = httpx2.Timeout(ANSWER_S, read=SILENT_S)
        with self._open(request, timeout=timeout) as reply:
            yield iter(read_events(reply, self.url))

    def _fetch(self, request: Request[Any]) -> Reply:
        with (
            translate_errors(self.url),
            self._http.stream(request.method, request.path, **request.arguments()) as reply,
        ):
            self._has_answered = True
            return require_success(request, _read_whole(reply))

    @contextmanager
    def _open(self, request: Request[bytes], **more: Any) -> "Iterator[httpx2.Response]":
        arguments = {**request.arguments(), **more}
        with translate_errors(self.url), self._http.stream(request.method, request.path, **arguments) as reply:
            self._has_answered = True
            if not reply.is_success:
                raise read_problem(_read_whole(reply))
            yield reply


def _read_whole(reply: "httpx2.Response") -> Reply:
    reading = Reading(reply)
    for piece in reply.iter_bytes():
        reading.add(piece)
    return reading.make_reply()
