"""Ticks over Celery: messages that a lane may have work. A lost or repeated tick changes nothing but latency."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.calls import Lane
from shared.headers import trace_headers

DRAIN = "mathrag.drain"
VISIBILITY_S = 600
COALESCE_S = 10
"""For this long a queued tick suppresses further ones, so a lost tick delays work by at most as long."""
PATIENCE_S = 5.0
"""Timeout of the broker."""
RECONNECT_S = 2.0
"""Longest pause between two attempts to reconnect to the broker."""
KEY_PREFIX = "mathrag:celery:"
"""Prefix of all keys of Celery's transport in Redis."""
MAX_QUEUED = 16
"""Ticks of a lane that are kept: they all mean the same, and each wakes at most one worker."""

CONFIGURATION: Mapping[str, Any] = {
    # Redelivered after a crash; a drain is idempotent.
    "task_acks_late": True,
    # No delivery counter exists, so a poisonous task would loop for ever; the sweeper ticks again instead.
    "task_reject_on_worker_lost": False,
    # Failures are recorded in PostgreSQL, not in the queue.
    "task_acks_on_failure_or_timeout": True,
    # With the default of an hour, kill -9 would cost an hour; ticks are much shorter than this.
    "visibility_timeout": VISIBILITY_S,
    "broker_transport_options": {
        "visibility_timeout": VISIBILITY_S,
        "global_keyprefix": KEY_PREFIX,
        "health_check_interval": 10,
        "socket_keepalive": True,
        # Otherwise a sender waits for ever behind a dead cable.
        "socket_timeout": PATIENCE_S,
        "socket_connect_timeout": PATIENCE_S,
        "retry_on_timeout": True,
    },
    # One tick at a time, and none reserved behind it.
    "worker_prefetch_multiplier": 1,
    "worker_concurrency": 1,
    # The only pool in which time limits and termination work.
    "worker_pool": "prefork",
    # A drain that is told to stop gives its calls back within a second.
    "worker_soft_shutdown_timeout": 10,
    # Otherwise a tick runs twice for every lost connection.
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    # Not used, and harmful: after a reconnect in the middle of a read, its consumer can block for ever, and the worker
    # is alive but takes no ticks.
    "worker_enable_remote_control": False,
    # Services may start in any order.
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # Nothing waits for a result, and results and chords are where messages get lost.
    "task_ignore_result": True,
    "result_backend": None,
    # No pickles: ticks have no payload.
    "task_serializer": "json",
    "accept_content": ["json"],
    # A tick is best effort; a sender must not hang on a dead broker.
    "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0.1, "interval_max": 0.1},
    "worker_hijack_root_logger": False,
}

_log = logging.getLogger(__name__)
_TRACER = trace.get_tracer("mathrag")
_MESSAGE = {"messaging.system": "redis", "messaging.operation.type": "send", "messaging.destination.name": DRAIN}


class SteadyConnection(Connection):
    """Reconnects with a short pause: kombu's grows to 30 s, which would delay work after the broker is back."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        return super().ensure_connection(*args, **{**options, "interval_max": RECONNECT_S})  # type: ignore[no-untyped-call]


class SteadyBroker(AMQP):  # type: ignore[misc]
    """Makes Celery use `SteadyConnection`."""

    Connection = SteadyConnection


def celery_app(redis_url: str, tick_s: float) -> Celery:
    """Build the Celery application of workers and senders; `tick_s` is the longest that a worker works on a tick."""
    app = Celery("mathrag", broker=redis_url, amqp=SteadyBroker)
    # A last resort, since every call has its own deadline. Without Redis a drain continues while its lease is valid.
    app.conf.update(CONFIGURATION, task_soft_time_limit=tick_s + 60, task_time_limit=tick_s + 90)
    return app


class Ticker:
    """Sends ticks, of which at most one is queued per lane."""

    def __init__(self, app: Celery, redis: Redis) -> None:
        self._app = app
        self._redis = redis

    async def tick(self, lane: Lane) -> bool:
        """Wake a worker of `lane`, unless a tick is already queued. Best effort: the sweeper repeats it.

        Returns False if Redis is away and no tick is queued.
        """
        try:
            if await self._redis.set(_tick_key(lane), "1", nx=True, ex=COALESCE_S):
                await self._send(lane)
        except (RedisError, OperationalError) as error:
            _log.warning("tick for %s not sent: %s", lane.value, error)
            return False
        return True

    async def _send(self, lane: Lane) -> None:
        """Publish a tick in a thread, since a dead broker blocks; if that fails, do not suppress the next tick."""
        with _TRACER.start_as_current_span(
            f"tick {lane.value}", kind=SpanKind.PRODUCER, attributes=_MESSAGE,
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                await asyncio.to_thread(self._app.send_task, DRAIN, queue=lane.value, headers=trace_headers())
            except OperationalError as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                await self.clear_tick(lane)
                raise

    async def clear_tick(self, lane: Lane) -> None:
        """Allow the next tick, since a worker has begun with one, and drop all but `MAX_QUEUED` that are queued."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.delete(_tick_key(lane))
                pipeline.ltrim(queue_key(lane), 0, MAX_QUEUED - 1)
                await pipeline.execute()
        except RedisError as error:
            _log.warning("tick of %s not cleared: %s", lane.value, error)


def queue_key(lane: Lane) -> str:
    """Return the Redis key of the list of a lane's ticks."""
    return f"{KEY_PREFIX}{lane.value}"


def _tick_key(lane: Lane) -> str:
    return f"mathrag:tick:{lane.value}"
