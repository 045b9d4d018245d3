"""`/healthz`: this process is up. `/readyz`: everything that a job needs is, or what to do about it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import NamedTuple

import httpx2
import msgspec
from alembic.config import Config
from alembic.script import ScriptDirectory
from fastapi import APIRouter, Response
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.resources import Held, Resources, json
from shared.contracts.calls import Lane
from shared.lease import residencies
from shared.settings import REPOSITORY
from shared.storage import devices

router = APIRouter(tags=["health"])
PATIENCE_S = 3.0
SERVED = text("SELECT DISTINCT name FROM models WHERE served AND name = ANY(:names)")
REVISION = text("SELECT version_num FROM alembic_version")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a job needs."""

    name: str
    ok: bool
    detail: str = ""
    fix: str = ""
    """What to do; empty where it is well."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    ready: bool
    checks: list[Check]


class Probe(NamedTuple):
    """How one thing is checked: `run` says what it found, or raises."""

    name: str
    run: Callable[[Resources], Awaitable[str]]
    fix: str


class NotReady(Exception):
    """A probe got an answer, and it was not the right one."""


@router.get("/healthz", summary="Is this process up?", responses=answers(dict[str, str], {"status": "ok"}))
async def healthz() -> dict[str, str]:
    """Asks nobody else."""
    return {"status": "ok"}


@router.get(
    "/readyz", summary="Can jobs run?",
    responses=answers(Readiness, {"ready": True, "checks": [{"name": "redis", "ok": True, "detail": "", "fix": ""}]}),
)  # fmt: skip
async def readyz(held: Held) -> Response:
    """200 if every check is well, else 503; each says what to do."""
    checks = await asyncio.gather(*(_check(probe, held) for probe in PROBES))
    ready = all(check.ok for check in checks)
    return json(Readiness(ready=ready, checks=checks), 200 if ready else 503)


async def _check(probe: Probe, held: Resources) -> Check:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return Check(name=probe.name, ok=True, detail=await probe.run(held))
    except (NotReady, SQLAlchemyError, OSError, RedisError, httpx2.HTTPError) as error:
        detail = str(error).partition("\n")[0] or type(error).__name__
        return Check(name=probe.name, ok=False, detail=detail, fix=probe.fix)


async def _postgres(held: Resources) -> str:
    async with held.database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
    return ""


async def _schema(held: Resources) -> str:
    async with held.database.transaction() as connection:
        revision = (await connection.execute(REVISION)).scalar()
    if revision != head():
        raise NotReady(f"the database is at {revision}, the code at {head()}")
    return f"at {revision}"


@cache
def head() -> str | None:
    """The newest migration that this code has."""
    return ScriptDirectory.from_config(Config(str(REPOSITORY / "alembic.ini"))).get_current_head()


async def _redis(held: Resources) -> str:
    await held.redis.ping()
    return ""


def _service(url_of: str) -> Callable[[Resources], Awaitable[str]]:
    async def run(held: Resources) -> str:
        reply = await held.http.get(f"{getattr(held.settings, url_of)}/healthz")
        if reply.status_code != httpx2.codes.OK:
            raise NotReady(f"answers {reply.status_code}")
        return ""

    return run


def _worker(lane: Lane) -> Callable[[Resources], Awaitable[str]]:
    async def run(held: Resources) -> str:
        pattern = f"mathrag:worker:{lane.value}:*"
        alive = [key async for key in held.redis.scan_iter(match=pattern, count=1000)]
        if not alive:
            raise NotReady("no heartbeat")
        return f"{len(alive)} alive"

    return run


async def _device(held: Resources) -> str:
    device = held.settings.device.id
    async with held.database.transaction() as connection:
        held_now = await residencies.newest(connection, device)
        drain = await devices.drain_of(connection, device)
    if drain is not None:
        raise NotReady(f"{device} is drained by an operator: {drain.reason or 'no reason given'}; jobs wait for it")
    if held_now is not None and held_now.state == "quarantined":
        raise NotReady(f"{device} is quarantined: {held_now.reason}")
    return f"{device}: {held_now.state if held_now else 'nothing loaded yet'}"


async def _models(held: Resources) -> str:
    names = sorted(set(held.settings.roles.values()))
    async with held.database.transaction() as connection:
        served = set((await connection.execute(SERVED, {"names": names})).scalars())
    missing = [name for name in names if name not in served]
    if missing:
        raise NotReady(f"no guard serves {', '.join(missing)}")
    return ", ".join(names)


PROBES = (
    Probe("postgres", _postgres, "start it (`mathrag up`), or correct MATHRAG_DATABASE_URL"),
    Probe("schema", _schema, "`mathrag up` migrates; elsewhere run `alembic upgrade head` as the owner"),
    Probe("redis", _redis, "start it (`mathrag up`), or correct MATHRAG_REDIS_URL"),
    Probe("retriever", _service("retriever_url"), "see the retriever's log, or correct MATHRAG_RETRIEVER_URL"),
    Probe("guard", _service("guard_url"), "see the guard's log, or correct MATHRAG_GUARD_URL"),
    Probe("models", _models, "correct `models` and `roles` in mathrag.yaml, then restart the guard; its log says more"),
    Probe(
        "device",
        _device,
        "quarantined: mend what the detail names; it is tried again, and at once when the guard is restarted."
        " Drained: `POST /v1/gpus/{device}/release`",
    ),
    Probe("judge worker", _worker(Lane.JUDGE), "start `python -m services.judge`, or see its log"),
    Probe("generator worker", _worker(Lane.GENERATE), "start `python -m services.generator`, or see its log"),
)
