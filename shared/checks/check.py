"""One thing that a job needs: whether it is well, and what to do where it is not."""

from collections.abc import Awaitable

import httpx2
import msgspec
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from shared.errors import MathragError
from shared.redaction import redacted

DEEP_S = 120.0
"""Hashing the file of a large model takes a while."""
RESTART = "restart the stack (`mathrag down`, `mathrag up --detach`; in containers `docker compose restart`)"
EDITED = f"{RESTART}: a source file was edited while it ran"


def correct(setting: str) -> str:
    """The advice to correct a setting."""
    return f"correct `{setting}` in mathrag.yaml, then {RESTART}"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a job needs."""

    name: str
    ok: bool
    detail: str = ""
    fix: str = ""
    """What to do; empty where it is well."""


class NotReady(Exception):
    """Something was looked at, and is not as it must be."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """`fix`: what to do, where it is known better than by the one who asked."""
        super().__init__(message)
        self.fix = fix


EXPECTED = (NotReady, MathragError, SQLAlchemyError, OSError, RedisError, httpx2.HTTPError)
"""What a look may raise: all of it is a finding."""


async def checked(name: str, look: Awaitable[str], *, fix: str) -> Check:
    """What a look found; `fix` is what to do where its exception does not say better."""
    try:
        return Check(name=name, ok=True, detail=await look)
    except EXPECTED as error:
        detail = redacted(str(error).partition("\n")[0]) or type(error).__name__
        better = getattr(error, "fix", "") or getattr(error, "hint", "") or fix
        return Check(name=name, ok=False, detail=detail, fix=redacted(better))
