"""Whether Celery still hears: a worker that takes no tick although some are queued ends, and is started again.

Celery whose acknowledgement of a tick fails, because Redis restarts at that moment, counts the tick as under way for
ever and never asks for the next one: its process lives, its connections are made again, its heart beats.
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
from shared.queue import queued

LOOK_S = 5.0
LOOKS = 3
"""Looks in a row: a tick that has just come is no sign of anything."""

_log = logging.getLogger(__name__)


class Hearing:
    """What the looks at one worker have found."""

    def __init__(self) -> None:
        self._heard = False
        self._silent = 0

    def hear(self, **_: Any) -> None:
        """A tick has come."""
        self._heard = True

    def lost(self, waiting: int, *, busy: bool) -> bool:
        """Whether it was idle at `LOOKS` looks in a row, with ticks waiting and none taken in between."""
        silent = waiting > 0 and not busy and not self._heard
        self._heard = False
        self._silent = self._silent + 1 if silent else 0
        return self._silent >= LOOKS


def start(lane: Lane, redis_url: str) -> None:
    """Watch until this process ends, or end it: nothing of it is under way then, and its children die with it."""
    hearing = Hearing()
    signals.task_received.connect(hearing.hear, weak=False)
    threading.Thread(target=_watch, args=(hearing, lane, Redis.from_url(redis_url)), daemon=True).start()


def _watch(hearing: Hearing, lane: Lane, redis: Redis) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_S):
        try:
            waiting = int(redis.llen(queued(lane)))
        except RedisError:
            continue  # the heartbeat says so
        if hearing.lost(waiting, busy=bool(state.reserved_requests)):
            _log.critical("%d ticks are queued and none is taken; this worker ends, to be started again", waiting)
            os._exit(1)
