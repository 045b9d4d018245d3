"""A worker's process: its heartbeat, the ticks that wake it, and the watch over Celery."""

import asyncio
import logging
import mmap
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import uvloop
from celery import Celery, signals
from celery.worker import state
from opentelemetry.trace import SpanKind
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared import telemetry
from shared.calls import Lane
from shared.lease.lease import Guards
from shared.pipelines import registry
from shared.processes.children import die_with
from shared.queue import DRAIN, Ticker, celery_app, queue_key
from shared.runtime import heartbeats
from shared.runtime.advance import read_code
from shared.runtime.worker import Executor, LaneWorker, trace_executors
from shared.settings import Settings, Workers
from shared.storage.database import Database
from shared.telemetry import logs, traces
from shared.telemetry.traces import SpanRef

# Watchdog for Celery: end a worker that takes no tick although some are queued, so that it is started again.
#
# If Redis restarts while Celery acknowledges a tick, Celery counts that tick as running for ever and never asks for the
# next one. Its process lives, reconnects and sends heartbeats all the while.

_log = logging.getLogger(__name__)
LOOK_S = 5.0
LOOKS = 3
"""Consecutive idle checks before the worker ends; a single one may just precede a tick."""


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


def start_watchdog(lane: Lane, redis_url: str) -> None:
    """Watch this process in a thread and end it if it is stuck; it runs nothing then, and its children die with it."""
    watch = TickWatch()
    signals.task_received.connect(watch.note_tick, weak=False)
    threading.Thread(target=_watch, args=(watch, lane, BlockingRedis.from_url(redis_url)), daemon=True).start()


def _watch(watch: TickWatch, lane: Lane, redis: BlockingRedis) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_S):
        try:
            waiting = int(redis.llen(queue_key(lane)))
        except RedisError:
            continue  # the heartbeat logs it
        if watch.is_stuck(waiting, busy=bool(state.reserved_requests)):
            _log.critical("%d ticks are queued and none is taken; this worker ends, to be started again", waiting)
            os._exit(1)


# A worker process: Celery's main process forks one child with one event loop, one database and one worker.
#
# Mining takes minutes, so it has a second worker in its own thread; a tick may last two minutes.


@dataclass(frozen=True)
class Tools:
    """The clients and pools that executors need, created in the child process."""

    settings: Settings
    database: Database
    guards: Guards


Executors = Callable[[Tools], Awaitable[Mapping[str, Executor]]]
Miners = Callable[[Tools], AbstractAsyncContextManager[Mapping[str, Executor]]]
"""Opens and closes the executors of mining."""
STOP_S = 8.0
"""Time to release relations that are being mined when the process is told to stop."""
AGAIN_S = 5.0
"""Pause after an error of the mining thread."""


class ForkedWorker:
    """State of the forked process. Connections must not cross a fork, so the first tick creates it."""

    def __init__(
        self, lane: Lane, settings: Settings, app: Celery, executors: Executors, stopping: Callable[[], bool]
    ) -> None:
        self._lane = lane
        self._settings = settings
        self._executors = executors
        self._stopping = stopping
        self._loop = uvloop.new_event_loop()
        self._redis = Redis.from_url(settings.redis_url)
        self._ticker = Ticker(app, self._redis)
        urls = [device.guard_url for device in settings.all_devices() if device.guard_url]
        guards = Guards(self._redis, urls, settings.service_key)
        self.tools = Tools(settings, Database(settings.database_url, pinned=True), guards)
        self._worker: LaneWorker | None = None

    def drain(self, tick: SpanRef | None) -> None:
        """Handle one tick; `tick` is the sender's span."""
        with traces.span(f"drain {self._lane.value}", kind=SpanKind.CONSUMER, links=[tick], root=True):
            self._loop.run_until_complete(self.drain_lane())

    async def drain_lane(self) -> None:
        """Answer the calls of the lane that can be answered now."""
        if self._worker is None:
            self._worker = self._make_worker(await self._executors(self.tools), self._settings.workers)
        await self._worker.drain()

    def _make_worker(self, executors: Mapping[str, Executor], limits: Workers, *, mines: bool = False) -> LaneWorker:
        return LaneWorker(
            self._lane,
            self.tools.database,
            name=f"{self._lane.value}@{socket.gethostname()}:{os.getpid()}",
            guards=self.tools.guards,
            executors=trace_executors(executors, self.tools.database),
            ticker=self._ticker,
            limits=limits,
            stopping=self._stopping,
            mines=mines,
        )

    async def close(self) -> None:
        await self.tools.database.close()
        await self.tools.guards.close()
        await self._redis.aclose()

    def mine(self, miners: Miners) -> None:
        """Mine until told to stop, also after errors."""
        self._loop.run_until_complete(self._mine(miners))

    async def _mine(self, miners: Miners) -> None:
        # One relation per claim, so that a kill loses only the work of its processes.
        limits = self._settings.workers.model_copy(update={"chunk": 1, "streams": self._settings.workers.miners})
        async with miners(self.tools) as executors:
            while not self._stopping():
                try:
                    await self._make_worker(executors, limits, mines=True).mine()
                except Exception:  # noqa: BLE001 - a defect must not end mining for good
                    _log.exception("mining broke off, trying again in %.0f s", AGAIN_S)
                    await asyncio.sleep(AGAIN_S)


class ForkedProcess:
    """The forked process: it handles ticks, and mines in a thread with its own event loop."""

    def __init__(self, make: Callable[[], ForkedWorker], miners: Miners | None) -> None:
        self._make = make
        self._miners = miners
        self._child: ForkedWorker | None = None
        self._mining: threading.Thread | None = None

    def drain(self, tick: SpanRef | None) -> None:
        """Handle one tick; the first one starts mining."""
        self._child = self._child or self._make()
        if self._miners is not None and self._mining is None:
            self._mining = threading.Thread(target=self._mine, args=(self._miners,), name="mining", daemon=True)
            self._mining.start()
        self._child.drain(tick)

    def _mine(self, miners: Miners) -> None:
        self._make().mine(miners)

    def end(self) -> None:
        """Wait until relations that are being mined are released, when the process is told to stop."""
        if self._mining is not None:
            self._mining.join(STOP_S)


def serve(lane: Lane, settings: Settings, executors: Executors, miners: Miners | None = None) -> None:
    """Run the lane's Celery worker until it is told to stop; with `miners` it also mines."""
    logs.configure(settings.telemetry, lane.value)
    read_code(settings.plugins)  # before the fork, so that a child that is forked again runs the same
    app = celery_app(settings.redis_url, settings.workers.tick_s)
    main = os.getpid()
    stopping = mmap.mmap(-1, 1)  # one byte that the fork shares: the main process hears the signal, the child works

    forked = ForkedProcess(lambda: ForkedWorker(lane, settings, app, executors, lambda: stopping[0] != 0), miners)

    @app.task(name=DRAIN, bind=True)  # type: ignore[untyped-decorator]
    def drain(task: Any) -> None:
        forked.drain(traces.parse_traceparent((task.request.headers or {}).get("traceparent")))

    @signals.setup_logging.connect(weak=False)  # type: ignore[untyped-decorator]
    def keep_logging(**_: object) -> None:
        """Keep Celery from configuring the loggers: it does so unless this signal has a receiver."""

    @signals.worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
    def begin(**_: object) -> None:
        die_with(main)
        telemetry.start_traces(lane.value, settings.telemetry)  # here: an exporter's thread does not survive a fork

    @signals.worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
    def end(**_: object) -> None:
        forked.end()
        telemetry.stop_traces()

    @signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def ready(**_: object) -> None:
        heartbeats.start(lane, settings.redis_url, registry.source_hash())
        start_watchdog(lane, settings.redis_url)

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    def stop(**_: object) -> None:
        stopping[0] = 1

    # Celery's own heartbeats have no reader. While the broker is away they block the main process, which then ignores
    # SIGTERM.
    silent = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    app.worker_main(["--quiet", "worker", "--queues", lane.value, "--loglevel", "WARNING", *silent])
