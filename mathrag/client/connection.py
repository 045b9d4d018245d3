"""Send requests and read answers; repeat a request if that is safe. For threads and event loops."""

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import msgspec

from mathrag.client import address
from mathrag.client.errors import Failed, Incompatible, Shown, TooLarge, Unreachable, failure, make_failed
from mathrag.client.request import MOST_OF_A_PAGE, Page, Request, T
from mathrag.errors import MathragError

if TYPE_CHECKING:
    import httpx2

ANSWER_S = 60.0
SILENT_S = 45.0
"""Longest silence of an event stream in seconds; a longer one counts as broken, because servers send keep-alives."""


def resolve_key(key: str | None) -> str:
    """Return the given key, or the key in the environment, or an empty text.

    Raises:
        Failed: the key has blanks or other invalid characters; the message does not repeat it.
    """
    found = (os.environ.get("MATHRAG_API_KEY", "") if key is None else key).strip()
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Failed(
            "usage", "the API key contains spaces or invalid characters", hint="copy the key again; it starts with mrg_"
        )
    return found


def options(url: str, timeout_s: float, key: str | None) -> dict[str, Any]:
    """Return the arguments of an HTTP client; if `key` is None, use the key in the environment."""
    return {
        "base_url": url,
        "timeout": timeout_s,
        "headers": {"Authorization": f"Bearer {found}"} if (found := resolve_key(key)) else {},
        # Requests to this machine must not go through a proxy that the environment sets.
        "trust_env": not address.is_local(url),
        # Reading the certificates of all authorities takes longer than a request that needs no certificate.
        "verify": url.startswith("https:"),
    }


@contextmanager
def name_proxy_errors() -> Iterator[None]:
    """Convert the error of an HTTP client that cannot use the environment's proxy to `Failed`."""
    try:
        yield
    except (ImportError, ValueError) as error:
        hint = "correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the server to NO_PROXY"
        raise Failed("usage", f"the proxy that the environment sets cannot be used: {error}", hint=hint) from error


RETRIES = 7
"""Number of retries; their waits add up to about 45 s, long enough for a service to restart."""
FIRST_S = 0.5
LONGEST_S = 30.0
"""Longest wait in seconds; if the server asks for a longer one, the error is raised at once."""
REFUSED_FOR_NOW = 429
"""Status of a request that the server refused for now: it did nothing, so any request may be repeated."""
BUSY = (502, 503, 504)
"""Statuses of a server or proxy that is unavailable or overloaded; the request may have been carried out."""


class Tries:
    """Counts the tries of one request, and returns the pause before the next one, if a repetition is harmless.

    A server that has never answered gets no retries: its address is wrong, or it was not started.
    """

    def __init__(self, request: Request[Any], retries: int, *, has_answered: bool) -> None:
        self._request = request
        self._left = retries
        self._has_answered = has_answered
        self._made = 0

    def delay(self, failed: Failed) -> float:
        """Return the seconds until the next try.

        Raises:
            Failed: `failed` itself, if no try is left.
        """
        self._made += 1
        # Exponential back-off with random jitter, so that many clients do not return at once.
        backoff = min(LONGEST_S, FIRST_S * 2.0 ** (self._made - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        wait = backoff if failed.retry_after_s is None else failed.retry_after_s
        if self._made > self._left or wait > LONGEST_S or not self._may_repeat(failed):
            if self._made > 1:
                failed.add_note(f"tried {self._made} times")
            raise failed
        return wait

    def _may_repeat(self, failed: Failed) -> bool:
        if self._request.has_gone:
            return False
        if isinstance(failed, Unreachable):
            if failed.never_sent:
                return self._has_answered
            return self._request.is_harmless_again and not failed.ran_out_of_time
        if failed.status == REFUSED_FOR_NOW:
            return True
        return self._request.is_harmless_again and (failed.kind == "in_progress" or failed.status in BUSY)


def seconds_of(retry_after: str | None) -> float | None:
    """Parse a `Retry-After` header, in seconds or as a date, into seconds; None if it cannot be parsed."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime  # 5 ms, and servers rarely send dates

    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


@contextmanager
def replace_when_whole(file: Path) -> Iterator[Path]:
    """Yield a new path in the folder of `file`. The file written there replaces `file`, or is deleted after an error.

    So `file` is never incomplete.
    """
    partial = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


A = TypeVar("A")
PREFIX = "urn:mathrag:"
EVENTS = "text/event-stream"
UNREACHABLE = "start it with `mathrag up`, or set MATHRAG_URL"
NOT_OURS = "check that the address is that of a MathRAG-Gate server"
OTHER_RELEASE = "client and server may be of different releases: update the older one (`mathrag --version`)"
LARGEST = 256 << 20
"""Largest answer that is kept in memory, in bytes; the API's answers are far smaller, so a larger one is not its."""


class Reply(NamedTuple):
    """An answer that was read completely."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


class Reading:
    """Collects the pieces of an answer, and rejects an answer that is too large."""

    def __init__(self, reply: "httpx2.Response") -> None:
        self._reply = reply
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            TooLarge: the answer is larger than any answer of the API.
        """
        self._size += len(piece)
        if self._size > LARGEST:
            raise TooLarge(
                "too_large", f"the answer of {self._reply.url} has more than {LARGEST >> 20} MiB", hint=NOT_OURS
            )
        self._pieces.append(piece)

    def make_reply(self) -> Reply:
        """Return the complete answer."""
        return Reply(self._reply.status_code, self._reply.headers, b"".join(self._pieces), str(self._reply.url))


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Convert a network error to `Unreachable`, and an error of the uploaded data to `Failed`."""
    import httpx2

    try:
        yield
    except MathragError as error:
        raise failure(error) from error
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        reason = str(error) or type(error).__name__
        unreachable = Unreachable("unreachable", f"no answer from {url} ({reason})", hint=UNREACHABLE)
        unreachable.never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        unreachable.ran_out_of_time = isinstance(error, httpx2.TimeoutException)
        raise unreachable from error


def require_success(request: Request[Any], reply: Reply) -> Reply:
    """Return the answer if it is a success.

    Raises:
        Failed: the answer is a problem or a redirect.
    """
    success = 200 <= reply.status < 300
    if success or (request.answers_anyway and reply.headers.get("content-type") == "application/json"):
        return reply
    problem = read_problem(reply)
    raise request.explain(problem) if request.explain else problem


def decode_answer(request: Request[Any], reply: Reply, answer: type[A]) -> A:
    """Decode the answer to a request.

    Raises:
        Incompatible: the answer does not have the type that the API returns.
    """
    value: A = decode(reply.content, answer, reply.url)
    return request.complete(value) if request.complete else value


def json(reply: Reply) -> Any:
    """Return the JSON value of an answer without converting it."""
    return decode(reply.content, Any, reply.url)


def decode(content: bytes, answer: Any, url: str) -> Any:
    """Decode an answer, or a line of it.

    Raises:
        Incompatible: the content is not JSON, or does not have this type.
    """
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.ValidationError as error:
        message = f"this client cannot read the answer of {url}: {error}"
        raise Incompatible("incompatible", message, hint=OTHER_RELEASE) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Incompatible("incompatible", f"the answer of {url} is not JSON ({error})", hint=NOT_OURS) from error


class _Problem(msgspec.Struct):
    """The fields of a problem; a field of an unexpected type must not hide the others."""

    type: str
    detail: str
    hint: str | None = None
    field: object = None
    line: object = None
    others: object = None


def read_problem(reply: Reply) -> Failed:
    """Return the exception for an answer that is a problem."""
    if 300 <= reply.status < 400:
        to = reply.headers.get("location", "nowhere")
        message = f"{reply.url} redirects to {to}; the client does not send the API key there"
        found = make_failed(
            reply.status, "redirected", message, hint="give the client the address of the service itself"
        )
    else:
        try:
            problem = msgspec.json.decode(reply.content, type=_Problem)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = make_failed(
                reply.status, "internal", f"{reply.url} answered with status {reply.status}", hint=NOT_OURS
            )
        else:
            found = make_failed(reply.status, problem.type.removeprefix(PREFIX), problem.detail, problem.hint)
            found.field = problem.field if isinstance(problem.field, str) else None
            found.line = problem.line if isinstance(problem.line, int) else None
            found.others = tuple(map(str, problem.others)) if isinstance(problem.others, list) else ()
    found.retry_after_s = seconds_of(reply.headers.get("retry-after"))
    return found


def read_events(reply: "httpx2.Response", url: str) -> "httpx2.EventSource":
    """Return the events of a streamed answer.

    Raises:
        Failed: the answer is not a stream of events.
    """
    import httpx2

    if not reply.headers.get("content-type", "").startswith(EVENTS):
        raise Failed("not_implemented", f"{url} does not send a stream of events", hint=NOT_OURS)
    return httpx2.EventSource(reply)


class Connection:
    """Connection to one server."""

    transport: "httpx2.BaseTransport | None" = None
    """Transport that replaces the network in tests."""
    sleep = staticmethod(time.sleep)

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = ANSWER_S, retries: int = RETRIES
    ) -> None:
        """Connect on the first request.

        Args:
            url: address such as "http://127.0.0.1:8080"; None takes MATHRAG_URL, or the stack on this machine.
            key: API key; None takes MATHRAG_API_KEY.
            timeout_s: longest silence of the server, in seconds.
            retries: number of times that a failed request is repeated, if that is harmless; `send` never repeats.
        """
        # The help needs no HTTP library, whose import takes half the time of a command.
        import httpx2

        from mathrag.client import dry_run

        self.url = url.strip().rstrip("/") if url else address.url()
        self.shows = (shown := dry_run.transport()) is not None
        """Requests are printed instead of sent."""
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
        """Yield every entry of a paged list, from the page that the request names."""
        while True:
            page = self.send(request)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            request = request.with_cursor(page["next_cursor"])

    def first(self, request: Request[Page[T]], count: int) -> list[T]:
        """Return the first `count` entries of a paged list."""
        return list(islice(self.all(request.with_limit(min(count, MOST_OF_A_PAGE))), count))

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
            return  # in a dry run, the requests for further files are also printed

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
