"""`--print-curl` and `--dry-run`: the request is shown, and not sent."""

import shlex
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any

import httpx2
import msgspec
import typer

KEY = '"Authorization: Bearer $MATHRAG_API_KEY"'
"""In double quotes: the shell that runs it knows the key, the screen never shows it."""
HEADERS = ("content-type", "idempotency-key", "if-match", "last-event-id")
GLOBS = frozenset("[]{}")


class Instead(StrEnum):
    """What happens instead of sending."""

    SEND = "send"
    CURL = "curl"
    DRY = "dry"


_instead = ContextVar("instead", default=Instead.SEND)


class Shown(Exception):
    """The request was shown; whoever waits for its answer has come to the end."""


def _curl(value: bool) -> None:
    # Asked of every command before `--dry-run`, so that one command's answer is never the next one's.
    _instead.set(Instead.CURL if value else Instead.SEND)


def _dry(value: bool) -> None:
    if value:
        _instead.set(Instead.DRY)


PrintCurl = Annotated[
    bool,
    typer.Option(
        "--print-curl", callback=_curl, is_eager=True, expose_value=False, help="Print it for curl; send nothing."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", callback=_dry, expose_value=False, help="Print the request; send nothing.")
]


class Transport(httpx2.BaseTransport):
    """Shows every request, and sends none."""

    def __init__(self, instead: Instead) -> None:
        self._show = curl if instead is Instead.CURL else described

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Never answers.

        Raises:
            Shown: always.
        """
        typer.echo(self._show(request))
        raise Shown


def transport() -> Transport | None:
    """None: send."""
    instead = _instead.get()
    return None if instead is Instead.SEND else Transport(instead)


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
