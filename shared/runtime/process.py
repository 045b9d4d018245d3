"""A worker process: Celery's main process forks one child, which keeps one event loop, one database, one worker."""

import mmap
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import uvloop
from celery import Celery, signals
from opentelemetry.trace import SpanKind
from redis.asyncio import Redis

from shared import telemetry
from shared.contracts.calls import Lane
from shared.lease.guards import Guards
from shared.orphans import die_with
from shared.queue import DRAIN, Ticker, celery_app
from shared.runtime import hearing, heartbeats
from shared.runtime import traced_chunks as chunks
from shared.runtime.execution import Executor
from shared.runtime.jobs import read_code
from shared.runtime.worker import Worker
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import logs, references, traces
from shared.telemetry.references import SpanRef


@dataclass(frozen=True)
class Tools:
    """What an executor may need, made in the child."""

    settings: Settings
    database: Database
    guards: Guards


Executors = Callable[[Tools], Awaitable[Mapping[str, Executor]]]


class Child:
    """What lives in the forked process. Connections must not cross a fork, so it is made on the first tick."""

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
        self._tools = Tools(settings, Database(settings.database_url, pinned=True), guards)
        self._worker: Worker | None = None

    def drain(self, tick: SpanRef | None) -> None:
        """One tick; `tick` is the span of who sent it."""
        with traces.span(f"drain {self._lane.value}", kind=SpanKind.CONSUMER, links=[tick], root=True):
            self._loop.run_until_complete(self._drain())

    async def _drain(self) -> None:
        worker = self._worker = self._worker or await self._make()
        await worker.drain()

    async def _make(self) -> Worker:
        database = self._tools.database
        return Worker(
            self._lane,
            database,
            name=f"{self._lane.value}@{socket.gethostname()}:{os.getpid()}",
            guards=self._tools.guards,
            executors=chunks.traced(await self._executors(self._tools), database),
            ticker=self._ticker,
            limits=self._settings.workers,
            stopping=self._stopping,
        )


def serve(lane: Lane, settings: Settings, executors: Executors) -> None:
    """Run the lane's Celery worker until it is told to stop."""
    logs.configure(settings.telemetry, lane.value)
    read_code()  # before the fork, so that a child that is forked again runs the same
    app = celery_app(settings.redis_url, settings.workers.tick_s)
    child: list[Child] = []
    main = os.getpid()
    stopping = mmap.mmap(-1, 1)  # one byte that the fork shares: the main process hears the signal, the child works

    @app.task(name=DRAIN, bind=True)  # type: ignore[untyped-decorator]
    def drain(task: Any) -> None:
        if not child:
            child.append(Child(lane, settings, app, executors, lambda: stopping[0] != 0))
        child[0].drain(references.of_header((task.request.headers or {}).get("traceparent")))

    @signals.setup_logging.connect(weak=False)  # type: ignore[untyped-decorator]
    def keep_logging(**_: object) -> None:
        """Somebody listens, so Celery leaves the loggers as they are."""

    @signals.worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
    def forked(**_: object) -> None:
        die_with(main)
        telemetry.start_traces(lane.value, settings.telemetry)  # here: an exporter's thread does not survive a fork

    @signals.worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
    def end_traces(**_: object) -> None:
        telemetry.stop_traces()

    @signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def ready(**_: object) -> None:
        heartbeats.start(lane, settings.redis_url)
        hearing.start(lane, settings.redis_url)

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    def stop(**_: object) -> None:
        stopping[0] = 1

    app.worker_main(
        ["--quiet", "worker", "--queues", lane.value, "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
    )
