"""Heartbeats: a worker's key in Redis, by which readiness, the supervisor and health checks know that it is there."""

import logging
import os
import socket
import threading

from redis import Redis
from redis.exceptions import RedisError

from shared.contracts.calls import Lane

BEAT_S = 5
TTL_S = 15

_log = logging.getLogger(__name__)


def key(lane: Lane, process: int | str) -> str:
    """The key of a worker process of this host; `*` stands for any. Process ids are unique within a host only."""
    return f"mathrag:worker:{lane.value}:{socket.gethostname()}:{process}"


def start(lane: Lane, redis_url: str) -> None:
    """Beat until this process ends."""
    threading.Thread(target=_beat, args=(key(lane, os.getpid()), redis_url), daemon=True).start()


def _beat(name: str, redis_url: str) -> None:
    redis = Redis.from_url(redis_url)
    stop = threading.Event()
    while not stop.wait(0):
        try:
            redis.set(name, "alive", ex=TTL_S)
        except RedisError as error:
            _log.warning("heartbeat not written: %s", error)
        stop.wait(BEAT_S)
