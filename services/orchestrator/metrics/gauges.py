"""Reads the current values: from the database, Redis, the other services and the connection pool."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator

import httpx2
import psutil
from redis.exceptions import RedisError
from sqlalchemy import QueuePool, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.deps import Deps
from shared.calls import Lane
from shared.settings import find_existing_folder

MIB = 1 << 20
PATIENCE_S = 0.5
"""Longest wait for another service in seconds: a scrape must not hang with it."""
MOST = 20_000
"""Upper bound of the calls that are counted per lane and model."""

Gauge = tuple[str, list[str], float]

JOBS = text("SELECT state, count(*) AS n FROM jobs WHERE ended_at IS NULL GROUP BY state")
QUEUE = text("""
    SELECT l.lane, m.name, q.state, count(*) AS n
    FROM models m CROSS JOIN (VALUES ('judge'), ('generate')) l(lane)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN q.token IS NOT NULL THEN 'claimed' WHEN q.lapses > 0 THEN 'suspect'
                    WHEN q.not_before > now() THEN 'delayed' ELSE 'pending' END AS state
        FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id LIMIT :most) q
    GROUP BY l.lane, m.name, q.state""")
DEVICES = text("""
    SELECT d.device, r.epoch, r.state, m.name, CAST(r.measured -> 'memory_mib' ->> CAST(m.id AS text) AS float) AS mib
    FROM (SELECT DISTINCT device FROM models WHERE device IS NOT NULL AND needs_lease) d
    CROSS JOIN LATERAL (
        SELECT * FROM residencies r WHERE r.device = d.device ORDER BY r.epoch DESC LIMIT 1) r
    LEFT JOIN models m ON m.id = ANY(r.models) AND r.state = 'open' ORDER BY d.device, m.id""")


OUTAGES = text("""
    SELECT m.name, max(EXTRACT(EPOCH FROM now() - o.since)) AS seconds
    FROM outages o JOIN models m ON m.id = o.model_id GROUP BY m.name""")
SIZE = text("SELECT pg_database_size(current_database())")


async def read_rows(connection: AsyncConnection) -> list[Gauge]:
    """Return the gauges of jobs, queue, outages and devices, and the size of the database."""
    parts = (_read_jobs, _queue, _read_outages, _read_devices)
    size = (await connection.execute(SIZE)).scalar_one()
    return [("mathrag_database_bytes", [], size), *[gauge for part in parts async for gauge in part(connection)]]


async def _read_jobs(connection: AsyncConnection) -> AsyncIterator[Gauge]:
    for row in await connection.execute(JOBS):
        yield "mathrag_jobs", [row.state], row.n


async def _queue(connection: AsyncConnection) -> AsyncIterator[Gauge]:
    for row in await connection.execute(QUEUE, {"most": MOST}):
        yield "mathrag_queue_calls", [row.lane, row.name, row.state], row.n


async def _read_outages(connection: AsyncConnection) -> AsyncIterator[Gauge]:
    for row in await connection.execute(OUTAGES):
        yield "mathrag_outage_seconds", [row.name], float(row.seconds)


async def _read_devices(connection: AsyncConnection) -> AsyncIterator[Gauge]:
    for row in await connection.execute(DEVICES):
        yield "mathrag_device_state", [row.device, row.state], 1
        yield "mathrag_device_epoch", [row.device], row.epoch
        if row.name is not None:
            yield "mathrag_resident_model_memory_bytes", [row.device, row.name], (row.mib or 0) * MIB


def read_process(deps: Deps) -> Iterator[Gauge]:
    """Yield the gauges of this process's pool, of its host, and of the budgets in its settings."""
    yield "mathrag_disk_free_bytes", [], shutil.disk_usage(find_existing_folder(deps.settings.data_dir)).free
    yield "mathrag_memory_available_bytes", [], psutil.virtual_memory().available
    for device in deps.settings.all_devices():
        yield "mathrag_device_budget_bytes", [device.id], device.models_mib * MIB
    pool = deps.database.engine.pool
    if isinstance(pool, QueuePool):
        yield "mathrag_database_connections", ["in_use"], pool.checkedout()
        yield "mathrag_database_connections", ["idle"], pool.checkedin()


async def read_services(deps: Deps) -> list[Gauge]:
    """Return the gauges of Redis, of the workers' heartbeats in it, and of the services that answer HTTP."""
    urls = {name: device.guard_url for name, device in deps.settings.guards().items()}
    urls["retriever"] = deps.settings.retriever_url
    answer = asyncio.gather(*(_is_up(deps, url) for url in urls.values()))
    up, workers = await asyncio.gather(answer, _count_workers(deps))
    return [
        *(("mathrag_service_up", [name], is_up) for name, is_up in zip(urls, up, strict=True)),
        ("mathrag_service_up", ["redis"], workers is not None),
        *(workers or ()),
    ]


async def _is_up(deps: Deps, url: str) -> bool:
    try:
        reply = await deps.http.get(f"{url}/healthz", timeout=PATIENCE_S)
    except httpx2.HTTPError:
        return False
    return reply.status_code == httpx2.codes.OK


async def _count_workers(deps: Deps) -> list[Gauge] | None:
    """Return the number of heartbeats by lane; None if Redis does not answer."""
    found: list[Gauge] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            for lane in Lane:
                keys = [key async for key in deps.redis.scan_iter(match=f"mathrag:worker:{lane.value}:*", count=1000)]
                found.append(("mathrag_workers", [lane.value], len(keys)))
    except (RedisError, OSError, TimeoutError):
        return None
    return found
