"""Without keys, the address is the only lock, and a browser on this machine is behind it with whatever page it shows.

A page from elsewhere may send requests to loopback, and may even read the answers once its own name points there (DNS
rebinding). The first shows in `Origin`, the second in `Host`; both are refused.
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

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and (error := self._refusal(scope["method"], Headers(scope=scope))):
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> Forbidden | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(name := _name(host)):
            return Forbidden(f"not answered under the name {name!r}", hint="add it to `access.hosts`, or require keys")
        if method in SAFE or origin is None or self._is_same(origin, host):
            return None
        return Forbidden(f"a page of {origin!r} may not change anything here", hint="add its host to `access.hosts`")

    def _is_ours(self, name: str) -> bool:
        # Only a name can be pointed here by somebody else, an address cannot.
        return name == "localhost" or name in self._hosts or is_address(name)

    def _is_same(self, origin: str, host: str) -> bool:
        # Another port of this machine is another application.
        there = origin.partition("://")[2]
        return there == host or _name(there) in self._hosts


def _name(host: str) -> str:
    found = _HOST.fullmatch(host)
    return found["address"] or found["name"].lower() if found else ""
