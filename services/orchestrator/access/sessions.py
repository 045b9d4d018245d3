"""Sessions of people who signed in with an API key: a cookie that only the services can make.

The cookie is signed with the service key, which is not in the database: somebody who reads the stored hashes of keys
can make no session of them. The server stores nothing, a revoked or expired key ends its sessions, and every process
of the API accepts them.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response

COOKIE = "mathrag_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name of the cookie under HTTPS: browsers then accept it from this host alone, and only under HTTPS."""
LIFETIME_S = 12 * 3600
"""A working day in seconds; after it the key is required again."""
FIELD = "csrf"
"""Hidden field of every form that changes something."""


class Session(NamedTuple):
    """A session whose signature was checked."""

    prefix: str
    """Prefix of the key that was signed in with."""
    csrf: str
    """Token that a form must send back: only a page that was drawn for this session knows it."""


class Sessions:
    """Issues and checks the cookies."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """`secret` is the service key. Without one, sessions are valid in this process only."""
        self._secret = secret.encode() or secrets.token_bytes(32)
        self._clock = clock

    def start(self, response: Response, prefix: str, *, https: bool) -> None:
        """Set the cookie for the key with this prefix."""
        issued_at = int(self._clock())
        value = f"{prefix}.{issued_at}.{self._sign('session', prefix, str(issued_at))}"
        _set_cookie(response, value, LIFETIME_S, https=https)

    def find(self, headers: Headers, *, https: bool) -> Session | None:
        """Return the session of a request; None if it has none, or one that is forged or has expired."""
        prefix, _, rest = _read_cookie(headers, SECURE_COOKIE if https else COOKIE).partition(".")
        issued_at, _, signature = rest.partition(".")
        if not are_equal(self._sign("session", prefix, issued_at), signature):
            return None
        if not 0 <= self._clock() - int(issued_at) < LIFETIME_S:
            return None
        return Session(prefix, self._sign("form", signature))

    def _sign(self, *parts: str) -> str:
        return hmac.new(self._secret, " ".join(parts).encode(), hashlib.sha256).hexdigest()


def end(response: Response, *, https: bool) -> None:
    """Remove the cookie from the browser."""
    _set_cookie(response, "", 0, https=https)


def are_equal(one: str, other: str) -> bool:
    """Return whether two tokens are equal, in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _set_cookie(response: Response, value: str, lifetime_s: int, *, https: bool) -> None:
    name = SECURE_COOKIE if https else COOKIE
    response.set_cookie(name, value, max_age=lifetime_s, path="/", httponly=True, samesite="strict", secure=https)


def _read_cookie(headers: Headers, name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
