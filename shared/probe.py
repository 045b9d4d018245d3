"""Whether this container's service is well: `python -m shared.probe judge`, or a URL; the exit status says it."""

import sys
import urllib.request

from redis import Redis
from redis.exceptions import RedisError

from shared.contracts.calls import Lane
from shared.runtime import heartbeats
from shared.settings import load

PATIENCE_S = 3.0


def answers(url: str) -> bool:
    """A GET gives 200."""
    # No proxy of the environment may come between us and our own container.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE_S) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def beats(lane: Lane, redis_url: str) -> bool:
    """A worker of this host has shown a heartbeat lately."""
    with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as redis:
        try:
            return any(redis.scan_iter(match=heartbeats.key(lane, "*"), count=1000))
        except RedisError:
            return False


def well(target: str) -> bool:
    """`target` is a URL, or a lane."""
    return answers(target) if "://" in target else beats(Lane(target), load().redis_url)


if __name__ == "__main__":
    sys.exit(0 if well(sys.argv[1]) else 1)
