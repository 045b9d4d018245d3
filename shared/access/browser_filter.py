"""Protect a service without keys from web pages of other sites that a browser on this machine shows.

Such a page may send requests to loopback, and may even read the answers once its own name points there (DNS
rebinding). The first shows in `Origin`, the second in `Host`; both are refused. Another port is another application, so
a page may write only if its scheme, host and port are those that the request was sent to. It cannot read what it GETs,
because no answer allows that (CORS).
"""

import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.access.binding import is_address
from shared.access.refusals import refuse
from shared.errors import Forbidden

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[\w.-]+))(?::\d+)?")


class BrowserFilter:
    """Middleware that refuses what a page of another site makes a browser send."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), *, host: str = "") -> None:
        """`hosts` is `access.hosts`, whose pages may write, too; `host` is the address that the service listens on."""
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
            # Others can point a name of their own at this machine, but not an address.
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
