"""Tests of a service: whether it is ready, and later whether it still answers.

A service is reached on its port; a worker has no port, and has a heartbeat in Redis instead.
"""

from collections.abc import Awaitable, Callable

import httpx2
import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.calls import Lane
from shared.runtime import heartbeats

PATIENCE_S = 2.0
ANSWER_S = 5.0
"""How long a service may take to answer that was ready before: it may be at work."""
WRITTEN = "mathrag:supervisor:written"
"""Key in Redis whose writing shows that heartbeats can be written."""

Test = Callable[[int], Awaitable[bool]]
"""A test of the process with this id."""


def make_http_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that succeeds when GET /healthz answers 200."""

    async def is_ready(_pid: int) -> bool:
        try:
            return await _get_health(host, port, PATIENCE_S) == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    return is_ready


def make_http_answer_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that fails when GET /healthz finds nobody who listens, or is not answered in time."""

    async def answers(_pid: int) -> bool:
        try:
            await _get_health(host, port, ANSWER_S)
        except (httpx2.TimeoutException, httpx2.ConnectError):
            return False
        except httpx2.HTTPError:
            return True  # a service with too many connections closes further ones at once
        return True

    return answers


async def _get_health(host: str, port: int, patience_s: float) -> int:
    # trust_env=False: requests to this machine must not go through a proxy of the environment.
    # verify=False: loading certificates, of which http:// needs none, takes 70 ms of the processor.
    async with httpx2.AsyncClient(timeout=patience_s, trust_env=False, verify=False) as client:
        return (await client.get(f"http://{host}:{port}/healthz")).status_code


def make_heartbeat_test(redis_url: str, lane: Lane) -> Test:
    """Return a test that succeeds when the worker with the process id has written its heartbeat."""

    async def is_ready(pid: int) -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                return bool(await client.exists(heartbeats.key(lane, pid)))
            except RedisError:
                return False

    return is_ready


def make_heartbeat_answer_test(redis_url: str, lane: Lane) -> Test:
    """Return a test that fails when a Redis that takes heartbeats has none of the worker, or its child is stopped.

    The main process, whose heartbeat it is, lives on while the child that works is stopped. A child that works and does
    not end is Celery's to kill, which limits the time of a tick.
    """

    async def answers(pid: int) -> bool:
        if _has_stopped_child(pid):
            return False
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                if await client.exists(heartbeats.key(lane, pid)):
                    return True
                await client.set(WRITTEN, "", ex=heartbeats.TTL_S)  # a full Redis refuses heartbeats, too
            except RedisError:
                return True
            return False

    return answers


def _has_stopped_child(pid: int) -> bool:
    try:
        return any(child.status() == psutil.STATUS_STOPPED for child in psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return False
