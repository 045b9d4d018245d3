"""The servers and processes that a job needs."""

from datetime import UTC, datetime
from functools import cache

import httpx2
from alembic.config import Config
from alembic.script import ScriptDirectory
from redis.exceptions import ResponseError
from sqlalchemy import text

from services.orchestrator.deps import Deps
from services.orchestrator.probes.probe import Run
from shared.checks.check import EDITED, NotReady
from shared.contracts.calls import Lane
from shared.pipelines import registry
from shared.settings import REPOSITORY

MOST_SKEW_S = 2.0
"""Claims and heartbeats live for 15 s; times in reports should agree to the second."""
SILENT_S = 10.0
"""A scheduler looks every second at least; one that has not for longer hangs, or what it asks does."""
REVISION = text("SELECT version_num FROM alembic_version")
NOW = text("SELECT clock_timestamp()")


async def postgres(deps: Deps) -> str:
    """It answers."""
    async with deps.database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
    return ""


async def schema(deps: Deps) -> str:
    """The database is where the code is."""
    async with deps.database.transaction() as connection:
        revision = (await connection.execute(REVISION)).scalar()
    if revision != head():
        raise NotReady(f"the database is at {revision}, the code at {head()}")
    return f"at {revision}"


@cache
def head() -> str | None:
    """The newest migration that this code has."""
    return ScriptDirectory.from_config(Config(str(REPOSITORY / "migrations" / "alembic.ini"))).get_current_head()


async def clock(deps: Deps) -> str:
    """This machine and the database agree what time it is."""
    async with deps.database.transaction() as connection:
        before = datetime.now(UTC)
        theirs: datetime = (await connection.execute(NOW)).scalar_one()
        after = datetime.now(UTC)
    ahead = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(ahead) > MOST_SKEW_S:
        raise NotReady(f"the database's is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}")
    return f"within {max(abs(ahead), 0.1):.1f} s"


async def redis(deps: Deps) -> str:
    """It answers."""
    await deps.redis.ping()
    return ""


async def redis_settings(deps: Deps) -> str:
    """It evicts nothing, and keeps what it was told."""
    try:
        policy = (await deps.redis.config_get("maxmemory-policy"))["maxmemory-policy"]
        appending = (await deps.redis.config_get("appendonly"))["appendonly"]
    except ResponseError:
        return "its settings may not be read"
    if policy != "noeviction":
        raise NotReady(f"maxmemory-policy is {policy}", fix="redis-cli CONFIG SET maxmemory-policy noeviction")
    if appending != "yes":
        raise NotReady("appendonly is no", fix="redis-cli CONFIG SET appendonly yes")
    return "noeviction, append-only file"


def service(url_of: str) -> Run:
    """A service of ours answers at the address that the setting `url_of` names."""

    async def run(deps: Deps) -> str:
        if not (url := getattr(deps.settings, url_of)):
            raise NotReady("not started, or its address is not known")
        reply = await deps.http.get(f"{url}/healthz")
        if reply.status_code != httpx2.codes.OK:
            raise NotReady(f"answers {reply.status_code}")
        return ""

    return run


async def schedulers(deps: Deps) -> str:
    """Each of this process has looked at the work lately: flips are decided nowhere else."""
    silent = [each for each in deps.schedulers if each.silent_s > SILENT_S]
    if silent:
        said = ", ".join(f"that of {each.device} {each.silent_s:.0f} s ago" for each in silent)
        raise NotReady(f"last complete look at the work: {said}")
    return "" if deps.schedulers else "the orchestrator's /readyz knows"


def worker(lane: Lane) -> Run:
    """A worker of this lane shows a heartbeat, on whatever host."""

    async def run(deps: Deps) -> str:
        pattern = f"mathrag:worker:{lane.value}:*"
        alive = [key async for key in deps.redis.scan_iter(match=pattern, count=1000)]
        if not alive:
            raise NotReady("no heartbeat")
        return f"{len(alive)} alive"

    return run


async def worker_sources(deps: Deps) -> str:
    """Every worker has imported the pipelines that this process has; heartbeats of older releases do not say."""
    keys = [key async for key in deps.redis.scan_iter(match="mathrag:worker:*", count=1000)]
    here = registry.source_hash().encode()
    sources = dict(zip(keys, await deps.redis.mget(keys), strict=True)) if keys else {}
    said = {key: source for key, source in sources.items() if source is not None and len(source) == len(here)}
    others = sorted(key.decode() for key, source in said.items() if source != here)
    if others:
        names = ", ".join(key.removeprefix("mathrag:worker:") for key in others)
        raise NotReady(f"of another source than the files here: {names}", fix=EDITED)
    return "as on disk"
