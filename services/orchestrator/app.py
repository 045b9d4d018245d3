"""The orchestrator: REST in front; schedulers, sweeper, finaliser and sealer behind it; they share PostgreSQL alone."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
from fastapi import Depends, FastAPI
from redis.asyncio import Redis

from services.orchestrator.access.headers import SecurityHeaders
from services.orchestrator.access.identity import Identity
from services.orchestrator.access.keyring import Keyring
from services.orchestrator.access.limits import UPLOADS, AtOnce
from services.orchestrator.access.scopes import authorised
from services.orchestrator.access.values import storable
from services.orchestrator.api import (
    calibration,
    chat,
    comparison,
    configuration,
    corpora,
    datasets,
    effective_settings,
    events,
    experiments,
    gpus,
    graphs,
    health,
    imports,
    jobs,
    labels,
    metrics,
    models,
    now,
    openapi,
    orphans,
    pipelines,
    plans,
    problems,
    provenance,
    questions,
    reference,
    rule_files,
    rules,
    samples,
    search,
    training,
)
from services.orchestrator.deps import Deps
from services.orchestrator.metrics.job_spans import JobSpans
from services.orchestrator.metrics.metrics import Metrics
from services.orchestrator.metrics.requests import CountRequests
from services.orchestrator.scheduling.finaliser import Finaliser
from services.orchestrator.scheduling.routine import Routine
from services.orchestrator.scheduling.scheduler import Scheduler
from services.orchestrator.scheduling.sealer import Sealer
from services.orchestrator.scheduling.sweeper import Sweeper
from services.orchestrator.web import site
from shared.access.binding import keys_required
from shared.access.bodies import Bodies
from shared.access.browsers import Browsers
from shared.bearer import authorization
from shared.runtime.placement import narrowed
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces
from shared.trace_headers import add_trace_headers

PATIENCE_S = 10.0

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application; while it runs, so do a scheduler for each device, the sweeper, the finaliser and the sealer."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = Redis.from_url(settings.redis_url)
        # The runtime's statements want the planner settings of the hot path, reports do not.
        scheduling, reporting = (Database(settings.database_url, pinned=pinned) for pinned in (True, False))
        schedulers = [Scheduler(narrowed(settings, device.id), scheduling, redis) for device in settings.all_devices()]
        sweeper = Sweeper(settings, scheduling, redis)
        routines: list[Routine] = [*schedulers, sweeper, Finaliser(scheduling, sweeper.wake), Sealer(scheduling)]
        loops = [asyncio.create_task(routine.run()) for routine in routines]
        for running in loops:
            running.add_done_callback(_stop_without_routine)
        if traces.on():
            loops.append(asyncio.create_task(JobSpans(reporting, redis).follow(settings.sweep_s)))

        def wake() -> None:
            for routine in routines:
                routine.wake()

        # Reaches the retriever and the guards, nobody else.
        known = authorization(settings.service_key)
        async with httpx2.AsyncClient(
            timeout=PATIENCE_S, trust_env=False, headers=known, event_hooks={"request": [add_trace_headers]}
        ) as http:
            app.state.deps = Deps(
                settings=settings, database=reporting, redis=redis, http=http, wake=wake, schedulers=schedulers
            )
            yield
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await asyncio.gather(scheduling.close(), reporting.close(), redis.aclose())

    return build(settings, lifespan)


def build(settings: Settings, lifespan: Lifespan | None = None) -> FastAPI:
    """Routes, problems and documentation; `app.state.deps` is what they stand on."""
    app = FastAPI(
        title="MathRAG-Gate",
        version="1",
        summary="Batches of questions answered with retrieval-augmented generation, measured honestly.",
        lifespan=lifespan,
        openapi_url=None,
        dependencies=[Depends(authorised), Depends(storable)],
        telemetry=traces.server(),
    )
    for part in (
        corpora, orphans, datasets, questions, training, graphs, rules, rule_files, imports, jobs, samples, events,
        provenance, calibration, comparison, search, chat, plans, experiments, labels, gpus, now, models, pipelines,
        configuration, effective_settings, health, reference,
    ):  # fmt: skip
        app.include_router(part.router)
    _protect(app, settings)
    if settings.telemetry.metrics:
        _measure(app)
    problems.install(app)
    site.install(app)
    openapi.install(app)
    return app


def _protect(app: FastAPI, settings: Settings) -> None:
    """What a request passes on its way to a route, from the inside out."""
    required = keys_required(settings)
    app.add_middleware(AtOnce, limits=settings.limits)
    app.add_middleware(Identity, keyring=Keyring() if required else None)
    app.add_middleware(Bodies, most=settings.limits.body_bytes, hint="see `limits.body_bytes`", streams=UPLOADS)
    if not required:
        app.add_middleware(Browsers, hosts=settings.access.hosts, host=settings.host)
    app.add_middleware(SecurityHeaders)


def _measure(app: FastAPI) -> None:
    """Outermost, so that refused requests are counted, too."""
    app.state.metrics = Metrics()
    app.include_router(metrics.router)
    app.add_middleware(CountRequests, requests=app.state.metrics.requests)


def _stop_without_routine(task: "asyncio.Task[None]") -> None:
    """Without a scheduler no job would ever move: end the process in order, so that it is started again."""
    if not task.cancelled():
        _log.critical("a routine ended", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)
