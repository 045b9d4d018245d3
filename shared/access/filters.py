"""Filters before every route: binding, size of bodies, browsers, and keys between services."""

import ipaddress
import logging
import re
import secrets
from collections.abc import Collection

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mathrag.errors import Forbidden, MathragError, TooLarge, Unauthorized
from mathrag.messages import redact
from shared.headers import key_of
from shared.settings import Settings

# Answers to requests that are refused before any route sees them, in the form of all other errors.

PREFIX = "urn:mathrag:"
MEDIA_TYPE = "application/problem+json"
OPENAI = "/openai/v1"
"""Path prefix of the OpenAI-compatible API."""
HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="mathrag"'}, 429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}
"""Headers that a client needs besides the problem, by status."""


def encode_problem(error: MathragError, instance: str | None = None) -> bytes:
    """Encode `error` as a problem document; `instance` is the requested path, if known."""
    document = {
        "type": PREFIX + error.kind,
        "title": error.kind.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": redact(error.message),
        "instance": instance,
        "hint": error.hint,
    }
    return msgspec.json.encode({name: value for name, value in document.items() if value is not None})


def is_openai(path: str) -> bool:
    """Tell whether errors at this path have OpenAI's form."""
    return path.startswith(f"{OPENAI}/")


def encode_openai_error(
    status: int, kind: str, message: str, hint: str | None = None, field: str | None = None
) -> bytes:
    """Encode an error in OpenAI's form; `field` is the wrong one, if known."""
    text = redact(message) + (f" ({hint})" if hint else "")
    family = "invalid_request_error" if status < 500 else "server_error"
    return msgspec.json.encode({"error": {"message": text, "type": family, "param": field, "code": kind}})


async def refuse(error: MathragError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with `error`, in the form of its path's API."""
    path, headers = scope["path"], HEADERS.get(error.status)
    if is_openai(path):
        body = encode_openai_error(error.status, error.kind, error.message, error.hint)
        response = Response(body, error.status, headers, "application/json")
    else:
        response = Response(encode_problem(error, path), error.status, headers, MEDIA_TYPE)
    await response(scope, receive, send)


# Where a process may listen, and whether it then requires a key.

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a server that listens on `host`."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_address(host: str) -> bool:
    """Tell whether `host` is an IP address rather than a name."""
    return _parse_address(host) is not None


def keys_required(settings: Settings) -> bool:
    """Tell whether the API requires keys."""
    if settings.access.keys == "auto":
        return not is_loopback(settings.host)
    return settings.access.keys == "required"


def log_exposure(settings: Settings) -> None:
    """Log, at start, who can reach the API if it listens beyond loopback."""
    if is_loopback(settings.host):
        return
    if keys_required(settings):
        _log.info("the API listens on %s and requires keys: `mathrag key create NAME --scope read`", settings.host)
    else:
        _log.warning("the API listens on %s WITHOUT keys: any client that reaches it may do everything", settings.host)


def explain_refusal(settings: Settings, host: str) -> str | None:
    """Explain why guard or retriever must not listen on `host`; None if it may."""
    if is_loopback(host) or settings.service_key:
        return None
    return (
        f"refused to listen on {host!r} without a service key: "
        "set the same MATHRAG_SERVICE_KEY for all services (`openssl rand -hex 32`), or listen on 127.0.0.1"
    )


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


NOWHERE = re.compile(r"(?!)")


class BodyLimit:
    """Middleware that refuses bodies above `most` bytes or of undeclared length, except on paths that take streams."""

    def __init__(self, app: ASGIApp, most: int, *, hint: str, streams: re.Pattern[str] = NOWHERE) -> None:
        self._app = app
        self._most = most
        self._hint = hint
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._streams.fullmatch(scope["path"]) and not self._is_short(scope):
            error = TooLarge(f"a request must declare its length, at most {self._most} bytes", hint=self._hint)
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_short(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "" if "transfer-encoding" in headers else "0")
        return length.isdecimal() and int(length) <= self._most


# Protect a service without keys from web pages of other sites that a browser on this machine shows.
#
# Such a page may send requests to loopback, and may even read the answers once its own name points there (DNS
# rebinding). The first shows in `Origin`, the second in `Host`; both are refused. Another port is another application,
# so a page may write only if its scheme, host and port are those that the request was sent to. It cannot read what it
# GETs, because no answer allows that (CORS).

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[\w.-]+))(?::\d+)?")


class BrowserFilter:
    """Middleware that refuses requests that a page of another site makes a browser send."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), *, host: str = "") -> None:
        """`hosts` is `access.hosts`, whose pages may write as well; `host` is the address that the service listens
        on."""
        self._app = app
        self._pages = {each.lower() for each in hosts}
        self._names = {"localhost", *filter(None, map(_parse_name, (host, *hosts)))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(scope, Headers(scope=scope))):
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Forbidden | None:
        host = headers.get("host", "").lower()
        if (name := _parse_name(host)) not in self._names and not is_address(name):
            # Others can point their own name at this machine, but not an address.
            return Forbidden(
                f"this service does not answer under the name {name!r}",
                hint="add it to `access.hosts`, or require keys",
            )
        if scope["method"] in SAFE or self._may_write(headers, f"{scope['scheme']}://{host}"):
            return None
        page = headers.get("origin", "another site")
        return Forbidden(f"a page of {page!r} may not change anything here", hint="add its host to `access.hosts`")

    def _may_write(self, headers: Headers, here: str) -> bool:
        origin = headers.get("origin")
        if origin is None:
            # Programs send neither header; a browser that omits `Origin` still sends `Sec-Fetch-Site`.
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin.lower() == here or origin.lower().partition("://")[2] in self._pages


def comes_from_here(headers: Headers) -> bool:
    """Tell whether a request was sent by a page of this host, or by a program. The scheme is not compared, because
    behind a proxy that ends TLS the service may not know it; `Sec-Fetch-Site` does, and all current browsers send it.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("none", "same-origin")
    origin = headers.get("origin")
    return origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()


def _parse_name(host: str) -> str:
    found = _HOST.fullmatch(host)
    return found["address"] or found["name"].lower() if found else ""


OPEN = frozenset({"/healthz"})
"""Paths that need no key: they tell only that the process is up."""


def protect(app: Starlette, settings: Settings, *, most: int) -> None:
    """Accept requests of up to `most` bytes, with the service key or, if none is set, from programs but no web page."""
    app.add_middleware(BodyLimit, most=most, hint="send fewer at once")
    if settings.service_key:
        app.add_middleware(ServiceKey, key=settings.service_key)
    else:
        app.add_middleware(BrowserFilter)


class ServiceKey:
    """Middleware that refuses requests without the service key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN and not self._has_key(scope):
            error = Unauthorized(
                "this service answers only to services with its key", hint="set the same MATHRAG_SERVICE_KEY for all"
            )
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        key = key_of(Headers(scope=scope).get("authorization", ""))
        return key is not None and secrets.compare_digest(key.encode(), self._key)
