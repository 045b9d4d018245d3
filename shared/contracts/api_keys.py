"""API keys: how they look, what they allow, and what is kept of them."""

import hashlib
import re
import secrets
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

PREFIX = "mrg_"
_KEY = re.compile(r"(mrg_[0-9a-f]{8})_[0-9a-f]{64}")


class Scope(StrEnum):
    """What a key allows; a route asks for one."""

    READ = "read"
    """Look at everything, and search."""
    SUBMIT = "submit"
    """Upload, submit, ask, and change or end jobs."""
    OPERATE = "operate"
    """Devices, the configuration; and all of the above."""


class Issued(NamedTuple):
    """A new key, in the only moment when it is known."""

    key: str
    prefix: str
    """Its public part, by which people and tables tell keys apart."""
    digest: bytes


def issue() -> Issued:
    """A key of 256 random bits."""
    prefix = f"{PREFIX}{secrets.token_hex(4)}"
    key = f"{prefix}_{secrets.token_hex(32)}"
    return Issued(key=key, prefix=prefix, digest=digest(key))


def prefix_of(key: str) -> str | None:
    """The public part of `key`; None: it is no key of ours."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def digest(key: str) -> bytes:
    """What is stored of `key`.

    One SHA-256 and nothing slower: a slow hash protects what can be guessed, and nobody guesses 256 random bits; here
    it would only let strangers make us work.
    """
    return hashlib.sha256(key.encode()).digest()


def same(key: str, known: bytes) -> bool:
    """Whether `key` is the one with the digest `known`; takes as long whatever they are."""
    return secrets.compare_digest(digest(key), known)


def allows(scopes: Collection[str], wanted: Scope) -> bool:
    """Whether a key with these scopes may do what asks for `wanted`."""
    return wanted in scopes or Scope.OPERATE in scopes
