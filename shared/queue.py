"""Celery as a carrier of ticks: "this lane may have work". Losing or doubling them changes nothing but latency."""

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

from shared.contracts.calls import Lane
from shared.trace_headers import trace_headers

DRAIN = "mathrag.drain"
VISIBILITY_S = 600
COALESCE_S = 10
"""So long a tick hides those that come after it: the time that a lost one costs."""
PATIENCE_S = 5.0
"""For an answer of the broker."""
RECONNECT_S = 2.0
"""Longest pause between two tries to connect to the broker again."""
KEYS = "mathrag:celery:"
"""Prefix of all that the transport keeps in Redis."""
MOST_QUEUED = 16
"""Ticks of a lane that are worth keeping: they all say the same, and wake at most one worker each."""

CONFIGURATION: Mapping[str, Any] = {
    # Redelivered after a crash; a drain is idempotent.
    "task_acks_late": True,
    # No delivery counter exists, so a poisonous task would loop for ever; the sweeper ticks again instead.
    "task_reject_on_worker_lost": False,
    # What failed stands in PostgreSQL, not in the queue.
    "task_acks_on_failure_or_timeout": True,
    # The default of an hour is an hour lost after kill -9; ticks are much shorter than this.
    "visibility_timeout": VISIBILITY_S,
    "broker_transport_options": {
        "visibility_timeout": VISIBILITY_S,
        "global_keyprefix": KEYS,
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
    # A drain that is told to stop gives its calls back within a second; nothing may wait longer.
    "worker_soft_shutdown_timeout": 10,
    # Otherwise a tick runs twice for every lost connection.
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    # Nobody commands a worker through the broker, and whoever listens for that listens for ever on a connection
    # that was made again in the middle of a read: alive, and deaf to ticks.
    "worker_enable_remote_control": False,
    # Services may start in any order.
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # Results and chords are where messages get lost; nothing waits for one here.
    "task_ignore_result": True,
    "result_backend": None,
    # No pickles, and a payload of nothing.
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
    """Connects again at a steady pace: kombu's pause grows to 30 s, and goes on when the broker is back."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """As kombu does it, but for the pauses."""
        return super().ensure_connection(*args, **{**options, "interval_max": RECONNECT_S})  # type: ignore[no-untyped-call]


class SteadyBroker(AMQP):  # type: ignore[misc]
    """Celery's connections to the broker."""

    Connection = SteadyConnection


def celery_app(redis_url: str, tick_s: float) -> Celery:
    """The application of every worker and of every sender; `tick_s` is the longest that a tick works."""
    app = Celery("mathrag", broker=redis_url, amqp=SteadyBroker)
    # The last resort: every call has a deadline of its own. Without Redis a drain goes on while its lease lives.
    app.conf.update(CONFIGURATION, task_soft_time_limit=tick_s + 60, task_time_limit=tick_s + 90)
    return app


class Ticker:
    """Sends ticks, at most one queued per lane."""

    def __init__(self, app: Celery, redis: Redis) -> None:
        self._app = app
        self._redis = redis

    async def tick(self, lane: Lane) -> bool:
        """Wake a worker of `lane`, unless a tick is queued already. Best effort: the sweeper repeats it.

        Returns False if Redis is away: no tick is queued.
        """
        try:
            if await self._redis.set(_key(lane), "1", nx=True, ex=COALESCE_S):
                await self._send(lane)
        except (RedisError, OperationalError) as error:
            _log.warning("tick for %s not sent: %s", lane.value, error)
            return False
        return True

    async def _send(self, lane: Lane) -> None:
        """Publish, off the event loop: a dead broker blocks. A tick that was not sent must not hide the next one."""
        with _TRACER.start_as_current_span(
            f"tick {lane.value}", kind=SpanKind.PRODUCER, attributes=_MESSAGE,
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                await asyncio.to_thread(self._app.send_task, DRAIN, queue=lane.value, headers=trace_headers())
            except OperationalError as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                await self.begun(lane)
                raise

    async def begun(self, lane: Lane) -> None:
        """A tick has left the queue: the next one may be queued. However many came at once, few are kept."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.delete(_key(lane))
                pipeline.ltrim(queued(lane), 0, MOST_QUEUED - 1)
                await pipeline.execute()
        except RedisError as error:
            _log.warning("tick of %s not cleared: %s", lane.value, error)


def queued(lane: Lane) -> str:
    """The list of a lane's ticks in Redis."""
    return f"{KEYS}{lane.value}"


def _key(lane: Lane) -> str:
    return f"mathrag:tick:{lane.value}"
