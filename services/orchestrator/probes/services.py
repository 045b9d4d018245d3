"""Checks of the servers and processes that a job needs."""

from datetime import UTC, datetime
from functools import cache

import httpx2
from alembic.config import Config
from alembic.script import ScriptDirectory
from redis.exceptions import ResponseError
from sqlalchemy import text

from services.orchestrator.deps import Deps
from services.orchestrator.probes.probe import Run
from shared.calls import Lane
from shared.checks import EDITED, NotReady
from shared.pipelines import registry
from shared.settings import REPOSITORY

MOST_SKEW_S = 2.0
"""Tolerated difference of clocks in seconds. Claims and heartbeats live for 15 s, and times in reports should agree
to the second.
"""
SILENT_S = 10.0
"""Seconds after which a scheduler counts as hanging: it observes the work every second at least."""
REVISION = text("SELECT version_num FROM alembic_version")
NOW = text("SELECT clock_timestamp()")


async def check_postgres(deps: Deps) -> str:
    """Check that PostgreSQL answers."""
    async with deps.database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
    return ""


async def check_schema(deps: Deps) -> str:
    """Check that the database has the schema of this code."""
    async with deps.database.transaction() as connection:
        revision = (await connection.execute(REVISION)).scalar()
    if revision != find_head():
        raise NotReady(f"the schema of the database is at {revision}, that of the code at {find_head()}")
    return f"at {revision}"


@cache
def find_head() -> str | None:
    """Return the newest migration of this code."""
    return ScriptDirectory.from_config(Config(str(REPOSITORY / "migrations" / "alembic.ini"))).get_current_head()


async def check_clock(deps: Deps) -> str:
    """Check that the clocks of this machine and of the database agree."""
    async with deps.database.transaction() as connection:
        before = datetime.now(UTC)
        theirs: datetime = (await connection.execute(NOW)).scalar_one()
        after = datetime.now(UTC)
    ahead = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(ahead) > MOST_SKEW_S:
        raise NotReady(f"the database's clock is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}")
    return f"within {max(abs(ahead), 0.1):.1f} s"


async def check_redis(deps: Deps) -> str:
    """Check that Redis answers."""
    await deps.redis.ping()
    return ""


async def check_redis_settings(deps: Deps) -> str:
    """Check that Redis evicts nothing and persists what it stores."""
    try:
        policy = (await deps.redis.config_get("maxmemory-policy"))["maxmemory-policy"]
        appending = (await deps.redis.config_get("appendonly"))["appendonly"]
    except ResponseError:
        return "its settings cannot be read"
    if policy != "noeviction":
        raise NotReady(f"maxmemory-policy is {policy}", fix="redis-cli CONFIG SET maxmemory-policy noeviction")
    if appending != "yes":
        raise NotReady("appendonly is no", fix="redis-cli CONFIG SET appendonly yes")
    return "noeviction, append-only file"


def make_service_check(url_of: str) -> Run:
    """Return the check that a service answers at the address in the setting `url_of`."""

    async def run(deps: Deps) -> str:
        if not (url := getattr(deps.settings, url_of)):
            raise NotReady("it is not started, or its address is unknown")
        reply = await deps.http.get(f"{url}/healthz")
        if reply.status_code != httpx2.codes.OK:
            raise NotReady(f"answers with status {reply.status_code}")
        return ""

    return run


async def check_schedulers(deps: Deps) -> str:
    """Check that each scheduler of this process has observed the work recently; only these schedulers decide flips."""
    silent = [each for each in deps.schedulers if each.silent_s > SILENT_S]
    if silent:
        heartbeats = ", ".join(f"that of {each.device} {each.silent_s:.0f} s ago" for each in silent)
        raise NotReady(f"last complete observation of the work: {heartbeats}")
    return "" if deps.schedulers else "only the orchestrator's /readyz knows"


def make_worker_check(lane: Lane) -> Run:
    """Return the check that a worker of this lane has a heartbeat, on any host."""

    async def run(deps: Deps) -> str:
        pattern = f"mathrag:worker:{lane.value}:*"
        alive = [key async for key in deps.redis.scan_iter(match=pattern, count=1000)]
        if not alive:
            raise NotReady("no heartbeat")
        return f"{len(alive)} alive"

    return run


async def check_worker_sources(deps: Deps) -> str:
    """Check that every worker has imported the pipelines that this process has; workers of older releases do not
    report them.
    """
    keys = [key async for key in deps.redis.scan_iter(match="mathrag:worker:*", count=1000)]
    here = registry.source_hash().encode()
    sources = dict(zip(keys, await deps.redis.mget(keys), strict=True)) if keys else {}
    reported = {key: source for key, source in sources.items() if source is not None and len(source) == len(here)}
    others = sorted(key.decode() for key, source in reported.items() if source != here)
    if others:
        names = ", ".join(key.removeprefix("mathrag:worker:") for key in others)
        raise NotReady(f"running another source than the files here: {names}", fix=EDITED)
    return "as on disk"
