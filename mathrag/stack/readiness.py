"""When a service counts as ready: it answers on its port, or its worker has shown a heartbeat in Redis."""

from collections.abc import Awaitable, Callable

import httpx2
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.contracts.calls import Lane
from shared.runtime import heartbeats

PATIENCE_S = 2.0

Ready = Callable[[int], Awaitable[bool]]


def answers(port: int, host: str = "127.0.0.1") -> Ready:
    """GET /healthz gives 200."""

    async def ready(_pid: int) -> bool:
        # trust_env: a proxy of the environment must not come between us and our own machine.
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            try:
                reply = await client.get(f"http://{host}:{port}/healthz")
            except httpx2.HTTPError:
                return False
            return reply.status_code == httpx2.codes.OK

    return ready


def has_heartbeat(redis_url: str, lane: Lane) -> Ready:
    """The worker with this process id has written its key."""

    async def ready(pid: int) -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                return bool(await client.exists(heartbeats.key(lane, pid)))
            except RedisError:
                return False

    return ready
