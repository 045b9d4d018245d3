"""Run a check and turn its errors into a result."""

from collections.abc import Awaitable

import httpx2
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from shared.checks.check import Check, NotReady
from shared.errors import MathragError
from shared.redaction import redact

EXPECTED_ERRORS = (NotReady, MathragError, SQLAlchemyError, OSError, RedisError, httpx2.HTTPError)
"""Errors of a check that count as its negative result."""


async def run_check(name: str, check: Awaitable[str], *, fix: str) -> Check:
    """Run a check; `fix` is the advice for errors that bring none of their own."""
    try:
        return Check(name=name, ok=True, detail=await check)
    except EXPECTED_ERRORS as error:
        detail = redact(str(error).partition("\n")[0]) or type(error).__name__
        better = getattr(error, "fix", "") or getattr(error, "hint", "") or fix
        return Check(name=name, ok=False, detail=detail, fix=redact(better))
