"""Without keys, the address is the only lock, and a browser on this machine is behind it with whatever page it shows.

A page from elsewhere may send requests to loopback, and may even read the answers once its own name points there (DNS
rebinding). The first shows in `Origin`, the second in `Host`; both are refused. Another port is another application, so
a page may write only where its scheme, host and port are those that the request was sent to. What it GETs it cannot
read, because no answer allows that (CORS).
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


class Browsers:
    """Refuses what a page from elsewhere makes a browser send."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), *, host: str = "") -> None:
        """`hosts`: `access.hosts`, whose pages may write, too; `host`: what the service listens on."""
        self._app = app
        self._pages = {each.lower() for each in hosts}
        self._names = {"localhost", *filter(None, map(_name, (host, *hosts)))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and (error := self._refusal(scope, Headers(scope=scope))):
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Forbidden | None:
        host = headers.get("host", "").lower()
        if (name := _name(host)) not in self._names and not is_address(name):
            # Only a name can be pointed here by somebody else, an address cannot.
            return Forbidden(f"not answered under the name {name!r}", hint="add it to `access.hosts`, or require keys")
        if scope["method"] in SAFE or self._may_write(headers, f"{scope['scheme']}://{host}"):
            return None
        page = headers.get("origin", "another site")
        return Forbidden(f"a page of {page!r} may not change anything here", hint="add its host to `access.hosts`")

    def _may_write(self, headers: Headers, here: str) -> bool:
        origin = headers.get("origin")
        if origin is None:
            # Programs send neither header; a browser that leaves out `Origin` says at least how far away the page is.
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin.lower() == here or origin.lower().partition("://")[2] in self._pages


def _name(host: str) -> str:
    found = _HOST.fullmatch(host)
    return found["address"] or found["name"].lower() if found else ""
