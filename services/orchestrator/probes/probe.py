"""How one thing is checked, and what is said about it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx2
import msgspec
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.api.resources import Resources
from shared.telemetry.redaction import redacted

PATIENCE_S = 3.0
DEEP_S = 120.0
"""Hashing the file of a large model takes a while."""

Run = Callable[[Resources], Awaitable[str]]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a job needs."""

    name: str
    ok: bool
    detail: str = ""
    fix: str = ""
    """What to do; empty where it is well."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """How one thing is checked."""

    name: str
    run: Run
    """Says what it found, or raises."""
    fix: str
    deep: bool = False
    """Reads files or asks much: for the doctor, not for readiness, which is asked every few seconds."""
    alone: bool = False
    """Needs neither the database nor Redis."""
    each_device: bool = False
    """Looks at `device` of the settings: asked for every device, with the settings narrowed to it."""


class NotReady(Exception):
    """A probe got an answer, and it was not the right one."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """`fix`: where the probe knows better than its row in the registry."""
        super().__init__(message)
        self.fix = fix


async def checks(probes: Sequence[Probe], held: Resources) -> list[Check]:
    """All of them at once, in their order."""
    return await asyncio.gather(*(check(probe, held) for probe in probes))


async def check(probe: Probe, held: Resources) -> Check:
    """Run one."""
    try:
        async with asyncio.timeout(DEEP_S if probe.deep else PATIENCE_S):
            return Check(name=probe.name, ok=True, detail=await probe.run(held))
    except (NotReady, SQLAlchemyError, OSError, RedisError, httpx2.HTTPError) as error:
        detail = redacted(str(error).partition("\n")[0]) or type(error).__name__
        return Check(name=probe.name, ok=False, detail=detail, fix=getattr(error, "fix", "") or probe.fix)
