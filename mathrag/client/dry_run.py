"""Print requests instead of sending them, for `--print-curl` and `--dry-run`."""

import shlex
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

import httpx2
import msgspec

from mathrag.client.errors import Shown

KEY = '"Authorization: Bearer $MATHRAG_API_KEY"'
"""Header in double quotes: the shell inserts the key, so the screen never shows it."""
HEADERS = ("content-type", "idempotency-key", "if-match", "last-event-id")
GLOBS = frozenset("[]{}")


class SendMode(StrEnum):
    """Treatment of requests: send them, or print them as curl or JSON."""

    SEND = "send"
    CURL = "curl"
    DRY = "dry"


send_mode = ContextVar("send_mode", default=SendMode.SEND)


class Transport(httpx2.BaseTransport):
    """Prints every request instead of sending it."""

    def __init__(self, mode: SendMode) -> None:
        self._show = curl if mode is SendMode.CURL else describe

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Print the request.

        Raises:
            Shown: always.
        """
        print(self._show(request))  # noqa: T201 - the command prints the request
        raise Shown


def transport() -> Transport | None:
    """Return the transport of the current mode; None if requests are sent."""
    mode = send_mode.get()
    return None if mode is SendMode.SEND else Transport(mode)


def curl(request: httpx2.Request) -> str:
    """Return a curl command that sends the request; it reads a streamed body from standard input."""
    words = ["curl", "--fail-with-body"]
    if GLOBS & set(str(request.url)):
        words.append("--globoff")
    if request.method != "GET":
        words += ["--request", request.method]
    for name in HEADERS:
        if name in request.headers:
            words += ["--header", f"{name}: {request.headers[name]}"]
    if _is_streamed(request):
        body = ["--upload-file", "-"]
    else:
        body = ["--data-raw", request.content.decode()] if request.read() else []
    output = ["--output", request.extensions["file"]] if "file" in request.extensions else []
    words += [*body, *output, str(request.url)]
    quoted = [shlex.quote(word) for word in words]
    if "authorization" in request.headers:
        quoted[2:2] = ["--header", KEY]
    return " ".join(quoted)


def describe(request: httpx2.Request) -> str:
    """Return method, address and body as one JSON document."""
    body = None if _is_streamed(request) or not request.read() else msgspec.json.decode(request.content)
    shown: dict[str, Any] = {"method": request.method, "url": str(request.url), "body": body}
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _is_streamed(request: httpx2.Request) -> bool:
    return "transfer-encoding" in request.headers
