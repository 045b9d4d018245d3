"""Tests of whether a service is ready: it answers on its port, or its worker has a heartbeat in Redis."""

from collections.abc import Awaitable, Callable

import httpx2
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.contracts.calls import Lane
from shared.runtime import heartbeats

PATIENCE_S = 2.0

Ready = Callable[[int], Awaitable[bool]]


def make_http_test(port: int, host: str = "127.0.0.1") -> Ready:
    """Return a test that succeeds when GET /healthz answers 200."""

    async def is_ready(_pid: int) -> bool:
        # trust_env=False: requests to this machine must not go through a proxy of the environment.
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            try:
                reply = await client.get(f"http://{host}:{port}/healthz")
            except httpx2.HTTPError:
                return False
            return reply.status_code == httpx2.codes.OK

    return is_ready


def make_heartbeat_test(redis_url: str, lane: Lane) -> Ready:
    """Return a test that succeeds when the worker with the process id has written its heartbeat."""

    async def is_ready(pid: int) -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                return bool(await client.exists(heartbeats.key(lane, pid)))
            except RedisError:
                return False

    return is_ready
