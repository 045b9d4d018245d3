"""Heartbeats: a worker's key in Redis, which readiness, the supervisor and health checks read.

`python -m shared.runtime.heartbeats judge` exits with 0 if this host has a live judge worker.
"""

import logging
import os
import socket
import sys
import threading

from redis import Redis
from redis.exceptions import RedisError

from shared.calls import Lane
from shared.settings import load

BEAT_S = 5
TTL_S = 15
PATIENCE_S = 3.0

_log = logging.getLogger(__name__)


def key(lane: Lane, process: int | str) -> str:
    """Return the key of a worker process on this host; `*` matches any process."""
    return f"mathrag:worker:{lane.value}:{socket.gethostname()}:{process}"


def start(lane: Lane, redis_url: str, source: str) -> None:
    """Send heartbeats until this process ends; each holds the hash of the imported pipelines' source."""
    arguments = (key(lane, os.getpid()), source, redis_url)
    threading.Thread(target=_beat, args=arguments, daemon=True).start()


def is_alive(lane: Lane, redis_url: str) -> bool:
    """Tell whether a worker of this lane on this host has a current heartbeat."""
    with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as redis:
        try:
            return any(redis.scan_iter(match=key(lane, "*"), count=1000))
        except RedisError:
            return False


def _beat(name: str, source: str, redis_url: str) -> None:
    redis = Redis.from_url(redis_url)
    stop = threading.Event()
    while not stop.wait(0):
        try:
            redis.set(name, source, ex=TTL_S)
        except RedisError as error:
            _log.warning("heartbeat not written: %s", error)
        stop.wait(BEAT_S)


if __name__ == "__main__":
    sys.exit(0 if is_alive(Lane(sys.argv[1]), load().redis_url) else 1)
