"""The orchestrator: the REST API, and behind it schedulers, sweeper, finaliser, sealer and batches, which share only
PostgreSQL.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
from fastapi import Depends, FastAPI
from redis.asyncio import Redis

from services.orchestrator.access.identity import Identity, Keyring, Sessions, authorise
from services.orchestrator.access.limits import UPLOADS, ConcurrencyLimit, SecurityHeaders, check_storable
from services.orchestrator.api import (
    chat,
    comparison,
    configuration,
    corpora,
    datasets,
    experiments,
    gpus,
    graphs,
    health,
    jobs,
    labels,
    models,
    pipelines,
    plans,
    prompts,
    routes,
    rules,
    samples,
    search,
)
from services.orchestrator.deps import Deps
from services.orchestrator.metrics import CountRequests, JobSpans, Metrics
from services.orchestrator.openai import endpoints
from services.orchestrator.openai.batch_work import BatchAdvancer
from services.orchestrator.scheduling.routines import Finaliser, Routine, Sealer, Sweeper
from services.orchestrator.scheduling.scheduler import Scheduler
from services.orchestrator.web import site
from shared.access.filters import BodyLimit, BrowserFilter, keys_required
from shared.headers import add_trace_headers, authorization
from shared.keepalive import make_transport
from shared.runtime.placement import settings_for_device
from shared.settings import Settings
from shared.storage.database import Database
from shared.telemetry import traces

PATIENCE_S = 10.0

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_log = logging.getLogger(__name__)

DESCRIPTION = """
**A job.** You upload a corpus of documents (`POST /v1/corpora`) and a dataset of questions (`POST /v1/datasets`), and
submit a job that answers the dataset by a pipeline (`POST /v1/jobs`). The answer is 202 with the job's address in
`Location`. Poll this address, or follow its events (`GET /v1/jobs/{job}/events`), until the state is `completed`,
`failed` or `cancelled`. Then read the results (`GET /v1/jobs/{job}/results`), the report with accuracy, interval and
cost (`GET /v1/jobs/{job}/report`), and the provenance of every sample. `GET /v1/comparison` compares several jobs.

**Authentication.** If the operator requires keys, send `Authorization: Bearer KEY`. Every key has scopes: `read`,
`submit` or `operate`. A missing key answers 401, a missing scope 403. Without keys, every client that reaches the
address may use the whole API.

**Errors.** Every error has a body of the type `application/problem+json` with `type`, `title`, `status` and `detail`,
often with a `hint` that says how to fix the request. Below `/openai/v1` errors have the form of OpenAI's API.

**Pages.** A list answers with `data` and `next_cursor`. Pass `next_cursor` as `cursor` to get the next page; it is null
on the last page.

**Repeated requests.** Submissions accept an `Idempotency-Key`. The same key with the same body answers with the same
job for at least 24 hours, so that you can repeat a request whose answer was lost.

**Tags.** A `GET` with `If-None-Match` answers 304 if nothing has changed. Changes that require `If-Match` answer 412 if
the resource has changed since you read it.
"""
"""The introduction of the OpenAPI document, as Markdown."""


def create_app(settings: Settings) -> FastAPI:
    """Return the application. While it runs, so do its routines: one scheduler per device, and the others."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = Redis.from_url(settings.redis_url)
        # The runtime's statements need the planner settings of the hot path, reports do not.
        scheduling, reporting = (Database(settings.database_url, pinned=pinned) for pinned in (True, False))
        admission = Database(settings.database_url, pinned=False, size=2)
        schedulers = [
            Scheduler(settings_for_device(settings, device.id), scheduling, redis) for device in settings.all_devices()
        ]
        sweeper = Sweeper(settings, scheduling, redis)
        routines: list[Routine] = [
            *schedulers, sweeper, Finaliser(scheduling, sweeper.wake), Sealer(scheduling),
            BatchAdvancer(reporting, settings, sweeper.wake),
        ]  # fmt: skip
        loops = [asyncio.create_task(routine.run()) for routine in routines]
        for running in loops:
            running.add_done_callback(_stop_without_routine)
        if traces.is_on():
            loops.append(asyncio.create_task(JobSpans(reporting, redis).follow(settings.sweep_s)))

        def wake() -> None:
            for routine in routines:
                routine.wake()

        # This client calls only the retriever and the guards.
        known = authorization(settings.service_key)
        async with httpx2.AsyncClient(
            transport=make_transport(), timeout=PATIENCE_S, trust_env=False, headers=known,
            event_hooks={"request": [add_trace_headers]},
        ) as http:  # fmt: skip
            app.state.deps = Deps(
                settings=settings, database=reporting, admission=admission, redis=redis, http=http, wake=wake,
                schedulers=schedulers,
            )  # fmt: skip
            yield
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await asyncio.gather(scheduling.close(), reporting.close(), admission.close(), redis.aclose())

    return build(settings, lifespan)


def build(settings: Settings, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the application with routes, problems and documentation; `app.state.deps` holds its resources."""
    # A report makes some hundred thousand objects and no garbage: looking for some takes 30 % of its time.
    gc.set_threshold(10_000)
    app = FastAPI(
        title="MathRAG-Gate",
        version="1",
        summary="Batches of questions answered with retrieval-augmented generation, with measured accuracy.",
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        dependencies=[Depends(authorise), Depends(check_storable)],
        telemetry=traces.make_server_options(),
    )
    for router in (
        corpora.router, corpora.orphans_router, datasets.router, datasets.questions_router, datasets.generation_router,
        datasets.training_router, graphs.router, rules.router, rules.files_router, jobs.imports_router, jobs.router,
        samples.router, jobs.events_router, samples.provenance_router, comparison.router, search.router, chat.router,
        plans.router, experiments.router, labels.router, prompts.router, gpus.router, gpus.now_router,
        gpus.shares_router, pipelines.router, models.router, models.plugins_router, configuration.router,
        configuration.settings_router, health.router, health.reference_router,
    ):  # fmt: skip
        app.include_router(router)
    # Add the middleware that a request passes on its way to a route, from the inside out.
    required = keys_required(settings)
    app.add_middleware(ConcurrencyLimit, limits=settings.limits)
    app.add_middleware(Identity, keyring=Keyring() if required else None, sessions=Sessions(settings.service_key))
    app.add_middleware(BodyLimit, most=settings.limits.body_bytes, hint="see `limits.body_bytes`", streams=UPLOADS)
    if not required:
        app.add_middleware(BrowserFilter, hosts=settings.access.hosts, host=settings.host)
    app.add_middleware(SecurityHeaders)
    if settings.telemetry.metrics:
        # Add the request counter as the outermost middleware, so that refused requests are counted as well.
        app.state.metrics = Metrics()
        app.include_router(health.metrics_router)
        app.add_middleware(CountRequests, requests=app.state.metrics.requests)
    routes.answer_problems(app)
    endpoints.install(app)
    site.add_pages(app)
    routes.document_operations(app)
    return app


def _stop_without_routine(task: "asyncio.Task[None]") -> None:
    """End the process in order when a routine ends, so that it is restarted: without a scheduler no job would
    proceed.
    """
    if not task.cancelled():
        _log.critical("a routine ended", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)
