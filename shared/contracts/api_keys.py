"""API keys: their format, their scopes, their lifetimes, and the digest that is stored of them."""

import hashlib
import re
import secrets
from collections.abc import Collection
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from shared.errors import Invalid

PREFIX = "mrg_"
_KEY = re.compile(r"(mrg_[0-9a-f]{8})_[0-9a-f]{64}")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_DURATION = re.compile(r"(?P<count>\d{1,6})(?P<unit>[mhd])")


class Scope(StrEnum):
    """What a key may do; each route requires one scope."""

    READ = "read"
    """Read everything, and search."""
    SUBMIT = "submit"
    """Upload, submit, ask questions, and change or end jobs."""
    OPERATE = "operate"
    """Manage devices and the configuration, and do all of the above."""


class Issued(NamedTuple):
    """A new key; it is shown only when it is made, and not stored."""

    key: str
    prefix: str
    """Public part of the key, which names it in lists and tables."""
    digest: bytes


def issue_key() -> Issued:
    """Make a key of 256 random bits."""
    prefix = f"{PREFIX}{secrets.token_hex(4)}"
    key = f"{prefix}_{secrets.token_hex(32)}"
    return Issued(key=key, prefix=prefix, digest=digest(key))


def prefix_of(key: str) -> str | None:
    """Return the public part of `key`; None if it does not have the format of a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def digest(key: str) -> bytes:
    """Return the digest of `key` that is stored.

    It is a single SHA-256: slow hashes protect guessable passwords, and 256 random bits cannot be guessed. A slow hash
    would only let anonymous clients load the server.
    """
    return hashlib.sha256(key.encode()).digest()


def matches_digest(key: str, known: bytes) -> bool:
    """Tell whether `known` is the digest of `key`, in constant time."""
    return secrets.compare_digest(digest(key), known)


def allows(scopes: Collection[str], wanted: Scope) -> bool:
    """Tell whether a key with these scopes may do what requires `wanted`."""
    return wanted in scopes or Scope.OPERATE in scopes


def parse_duration(field: str, words: str) -> timedelta:
    """Parse a lifetime or a grace, such as "90d", "24h" or "30m".

    Raises:
        Invalid: it is none; the message begins with `field`.
    """
    found = _DURATION.fullmatch(words)
    if found is None:
        raise Invalid(f"{field}: {words!r} is not a duration", hint="write a number and m, h or d, such as 90d")
    return int(found["count"]) * _UNITS[found["unit"]]
