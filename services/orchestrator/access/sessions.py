"""Sessions of people who signed in with an API key: a cookie that is signed with the key's own digest.

The server stores nothing. A revoked or expired key ends its sessions, and every process of the API accepts them.
"""

import hashlib
import hmac
import time
from typing import NamedTuple

COOKIE = "mathrag_session"
LIFETIME_S = 12 * 3600
"""A working day in seconds; after it the key is required again."""
FIELD = "csrf"
"""Hidden field of every form that changes something."""


class Session(NamedTuple):
    """The contents of a cookie before its signature is checked."""

    prefix: str
    """Prefix of the key that was signed in with."""
    expires_at: int
    """Seconds since 1970."""
    signature: str


def issue(prefix: str, digest: bytes, now: float | None = None) -> str:
    """Return the cookie's value for the key with this prefix and stored digest."""
    expires_at = int((time.time() if now is None else now) + LIFETIME_S)
    return f"{prefix}.{expires_at}.{_sign(digest, 'session', prefix, expires_at)}"


def parse(cookie: str) -> Session | None:
    """Parse a cookie; None if its format is another one."""
    prefix, _, rest = cookie.partition(".")
    expires_at, _, signature = rest.partition(".")
    if not (expires_at.isascii() and expires_at.isdigit() and len(expires_at) < 12 and signature.isascii()):
        return None
    return Session(prefix, int(expires_at), signature)


def is_valid(session: Session, digest: bytes, now: float | None = None) -> bool:
    """Return whether the key with this digest signed the session and it has not expired."""
    expected = _sign(digest, "session", session.prefix, session.expires_at)
    fresh = (time.time() if now is None else now) < session.expires_at
    return are_equal(expected, session.signature) and fresh


def make_csrf_token(session: Session, digest: bytes) -> str:
    """Return the token that a form must send back: only a page that was drawn for this session knows it."""
    return _sign(digest, "form", session.signature, session.expires_at)


def are_equal(one: str, other: str) -> bool:
    """Return whether two tokens are equal, in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _sign(digest: bytes, purpose: str, name: str, expires_at: int) -> str:
    return hmac.new(digest, f"{purpose} {name} {expires_at}".encode(), hashlib.sha256).hexdigest()
