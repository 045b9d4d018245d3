"""`--print-curl` and `--dry-run`: the request is shown, and not sent."""

import shlex
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

import httpx2
import msgspec

from mathrag.client.errors import Shown

KEY = '"Authorization: Bearer $MATHRAG_API_KEY"'
"""In double quotes: the shell that runs it knows the key, the screen never shows it."""
HEADERS = ("content-type", "idempotency-key", "if-match", "last-event-id")
GLOBS = frozenset("[]{}")


class SendMode(StrEnum):
    """What is done with a request."""

    SEND = "send"
    CURL = "curl"
    DRY = "dry"


send_mode = ContextVar("send_mode", default=SendMode.SEND)


class Transport(httpx2.BaseTransport):
    """Shows every request, and sends none."""

    def __init__(self, mode: SendMode) -> None:
        self._show = curl if mode is SendMode.CURL else described

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Never answers.

        Raises:
            Shown: always.
        """
        print(self._show(request))  # noqa: T201 - it is what the command is for
        raise Shown


def transport() -> Transport | None:
    """None: send."""
    mode = send_mode.get()
    return None if mode is SendMode.SEND else Transport(mode)


def curl(request: httpx2.Request) -> str:
    """A command line that sends the same; a body that is streamed is read from its standard input."""
    words = ["curl", "--fail-with-body"]
    if GLOBS & set(str(request.url)):
        words.append("--globoff")
    if request.method != "GET":
        words += ["--request", request.method]
    for name in HEADERS:
        if name in request.headers:
            words += ["--header", f"{name}: {request.headers[name]}"]
    words += [*_body(request), *_output(request), str(request.url)]
    quoted = [shlex.quote(word) for word in words]
    if "authorization" in request.headers:
        quoted[2:2] = ["--header", KEY]
    return " ".join(quoted)


def described(request: httpx2.Request) -> str:
    """Method, address and body as one JSON document."""
    body = None if _is_streamed(request) or not request.read() else msgspec.json.decode(request.content)
    shown: dict[str, Any] = {"method": request.method, "url": str(request.url), "body": body}
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _body(request: httpx2.Request) -> list[str]:
    if _is_streamed(request):
        return ["--upload-file", "-"]
    return ["--data-raw", request.content.decode()] if request.read() else []


def _output(request: httpx2.Request) -> list[str]:
    return ["--output", request.extensions["file"]] if "file" in request.extensions else []


def _is_streamed(request: httpx2.Request) -> bool:
    return "transfer-encoding" in request.headers
