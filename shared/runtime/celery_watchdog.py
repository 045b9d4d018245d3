"""Watchdog for Celery: end a worker that takes no tick although some are queued, so that it is started again.

If Redis restarts while Celery acknowledges a tick, Celery counts that tick as running for ever and never asks for the
next one. Its process lives, reconnects and sends heartbeats all the while.
"""

import logging
import os
import threading
from typing import Any

from celery import signals
from celery.worker import state
from redis import Redis
from redis.exceptions import RedisError

from shared.contracts.calls import Lane
from shared.queue import queue_key

LOOK_S = 5.0
LOOKS = 3
"""Consecutive idle checks before the worker ends; a single one may just precede a tick."""

_log = logging.getLogger(__name__)


class TickWatch:
    """State of the watch over one worker."""

    def __init__(self) -> None:
        self._heard = False
        self._silent = 0

    def note_tick(self, **_: Any) -> None:
        """Record that a tick has arrived."""
        self._heard = True

    def is_stuck(self, waiting: int, *, busy: bool) -> bool:
        """Tell whether the worker was idle at `LOOKS` checks in a row while ticks waited and none was taken."""
        silent = waiting > 0 and not busy and not self._heard
        self._heard = False
        self._silent = self._silent + 1 if silent else 0
        return self._silent >= LOOKS


def start(lane: Lane, redis_url: str) -> None:
    """Watch this process in a thread and end it if it is stuck; it runs nothing then, and its children die with it."""
    watch = TickWatch()
    signals.task_received.connect(watch.note_tick, weak=False)
    threading.Thread(target=_watch, args=(watch, lane, Redis.from_url(redis_url)), daemon=True).start()


def _watch(watch: TickWatch, lane: Lane, redis: Redis) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_S):
        try:
            waiting = int(redis.llen(queue_key(lane)))
        except RedisError:
            continue  # the heartbeat logs it
        if watch.is_stuck(waiting, busy=bool(state.reserved_requests)):
            _log.critical("%d ticks are queued and none is taken; this worker ends, to be started again", waiting)
            os._exit(1)
