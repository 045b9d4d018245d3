"""`/v1/jobs`: submit, look at, change, pause, cancel, requeue, report on and check jobs."""

import uuid
from collections.abc import Sequence
from typing import Annotated

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Response

from services.orchestrator import reports
from services.orchestrator.api.etags import UNCHANGED, RequiredVersions, Seen, Versions, tagged
from services.orchestrator.api.flaws import rule_warnings, version_warnings
from services.orchestrator.api.keys import IdempotencyKey, keyed
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.submissions import JobChange, JobFilters, JobRequest
from services.orchestrator.api.views import EXAMPLE, JobView, accuracies, edit_warnings, page, view
from services.orchestrator.deps import Deps, RequestDeps
from shared import audit
from shared.contracts.api_keys import Scope
from shared.runtime.amending import amend
from shared.runtime.cancel import cancel as cancel_job
from shared.runtime.drafting import Submission
from shared.runtime.pausing import pause as pause_job
from shared.runtime.pausing import resume as resume_job
from shared.runtime.requeue import again
from shared.runtime.submit import submit_once
from shared.storage import configurations, job_list, jobs, pages
from shared.storage.idempotency import Keyed

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
POLL_S = "1"
REPLAYED = "Idempotency-Replayed"
"""Header of an answer that repeats an earlier one."""

JOB = answers(JobView, EXAMPLE)
ACCEPTED = answers(JobView, EXAMPLE, status=202)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows say about the invariants."""

    clean: bool
    violations: list[audit.Violation]
    source_changed: str | None = None
    """That the job's pipeline has another source by now; replays that give the same outcomes all the same are clean."""


@route(router, "POST", "", Scope.SUBMIT, "Submit a job", ACCEPTED, refuses=(404, 409, 429), status_code=202)
async def submit(request: JobRequest, deps: RequestDeps, key: IdempotencyKey) -> Response:
    """202: the job is committed, and survives the loss of everything but the database. Poll `Location`.
    `warnings`, where there are any, name source files that were edited and do not run
    (docs/operations.md#edited-source-files), and items that no rule leads to (docs/rulerag.md). With an
    `Idempotency-Key` it may be sent again (docs/api.md#idempotency).

    The same `Idempotency-Key` with the same body answers with the same job, at least for 24 hours; with another body
    422, and while the first request is still being answered 409.
    """
    submission = request.submission(await configurations.holding(deps.database))
    return await _submitted(deps, submission, keyed(key, "POST /v1/jobs", request.identity()))


@route(
    router, "POST", "/{job}/requeue", Scope.SUBMIT, "Requeue a job", ACCEPTED, refuses=(404, 409, 429), status_code=202
)
async def requeue(job: str, deps: RequestDeps, key: IdempotencyKey) -> Response:
    """202: a new job that asks for the same as one that has ended; replies are shared, so only what failed is computed
    anew (docs/api.md#pause-and-requeue).

    A job that has not ended answers 409.
    """
    public_id = await jobs.public_id(deps.database, job)
    submission = await again(deps.database, public_id)
    return await _submitted(deps, submission, keyed(key, "requeue", str(public_id)))


async def _submitted(deps: Deps, submission: Submission, request: Keyed | None) -> Response:
    accepted = await submit_once(deps.database, deps.settings, submission, request)
    deps.wake()
    headers = {"Location": f"/v1/jobs/{accepted.job}", "Retry-After": POLL_S}
    warnings = await to_thread.run_sync(edit_warnings, [submission.pipeline])
    warnings += await version_warnings(deps.database, job=accepted.job)
    warnings += await rule_warnings(deps.database, accepted.job)
    again = {REPLAYED: "true"} if accepted.replayed else {}
    return await _answer(deps, accepted.job, 202, headers | again, warnings)


async def _answer(
    deps: Deps,
    job: uuid.UUID,
    status: int = 200,
    headers: dict[str, str] | None = None,
    warnings: Sequence[str] = (),
) -> Response:
    deps.job_views.forget()
    found = await jobs.get(deps.database, str(job))
    return tagged(view(found, warnings), version=found.version, status=status, headers=headers)


@route(
    router, "GET", "", Scope.READ, "List jobs",
    answers(pages.Page[JobView], {"data": [EXAMPLE], "next_cursor": None}) | UNCHANGED,
)  # fmt: skip
async def listed(
    deps: RequestDeps,
    seen: Seen,
    filters: Annotated[JobFilters, Query()],
) -> Response:
    """Newest first, or as `sort` says. A cursor belongs to its filters and its order: with others it answers 400."""
    return tagged(await listing(deps, filters), seen=seen)


async def listing(deps: Deps, filters: JobFilters) -> pages.Page[JobView]:
    """A page of the list."""
    found = await job_list.listed(deps.database, filters.limit, filters.cursor, filters.filters(), filters.sort)
    return await page(deps, found)


@route(router, "GET", "/{job}", Scope.READ, "Get a job", JOB | UNCHANGED, refuses=(404, 409))
async def get(job: str, deps: RequestDeps, seen: Seen) -> Response:
    """State, counts, calls by stage, estimate, links. With `If-None-Match` 304 while nothing has changed
    (docs/api.md#tags).

    By id, by name, or by the first characters of the id (four or more).

    A state may be a tenth of a second old, progress half a second, and some seconds for a very large job.
    """
    found = await deps.job_views.get(deps.database, job)
    known = await accuracies(deps, [found])
    return tagged(
        view(found, found=known.get(found.id)),
        version=found.version,
        seen=seen,
        headers=None if found.ended else {"Retry-After": POLL_S},
    )


@route(router, "PATCH", "/{job}", Scope.SUBMIT, "Change a job", JOB, refuses=(404, 409, 412, 428))
async def change(job: str, request: JobChange, deps: RequestDeps, versions: RequiredVersions) -> Response:
    """`name`, `rank` and `metadata`, whatever its state; the rank counts for its queued calls, too. `If-Match` is
    needed: with another version 412, without it 428 (docs/api.md#tags).
    """
    public_id = await jobs.public_id(deps.database, job)
    await amend(deps.database, public_id, request.change(), versions)
    return await _answer(deps, public_id)


@route(
    router, "POST", "/{job}/cancel", Scope.SUBMIT, "Cancel a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def cancel(job: str, deps: RequestDeps, versions: Versions) -> Response:
    """202 with the state `cancelling`: nothing of it is begun any more, and calls in flight may still end. Its samples
    end in batches, 300,000 in about a minute. Again is harmless; an ended job answers 409.
    """
    public_id = await jobs.public_id(deps.database, job)
    await cancel_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(router, "POST", "/{job}/pause", Scope.SUBMIT, "Pause a job", ACCEPTED, refuses=(404, 409, 412), status_code=202)
async def pause(job: str, deps: RequestDeps, versions: Versions) -> Response:
    """Nothing of it is begun any more; calls in flight may still end. Again is harmless; an ended job answers 409
    (docs/api.md#pause-and-requeue).
    """
    public_id = await jobs.public_id(deps.database, job)
    await pause_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(
    router, "POST", "/{job}/resume", Scope.SUBMIT, "Resume a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def resume(job: str, deps: RequestDeps, versions: Versions) -> Response:
    """It goes on where it was. Harmless for a job that is not paused; an ended job answers 409
    (docs/api.md#pause-and-requeue).
    """
    public_id = await jobs.public_id(deps.database, job)
    await resume_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(
    router, "GET", "/{job}/report", Scope.READ, "Report", answers(reports.Report, reports.EXAMPLE), refuses=(404, 409)
)
async def report(job: str, deps: RequestDeps) -> Response:
    """Accuracy with its interval, failures, what methods decided, loads, calls made and reused, time by stage, cost
    (docs/api.md#reports). Final once the job has ended.
    """
    return json(await reports.report(deps.database, job, deps.settings.models))


@route(
    router, "GET", "/{job}/audit", Scope.READ, "Check the invariants",
    answers(Audit, {"clean": True, "violations": []}), refuses=(404, 409),
)  # fmt: skip
async def check(job: str, deps: RequestDeps) -> Response:
    """From the database's rows alone (docs/architecture.md#invariants). `source_changed` is there where the pipeline's
    source is another than when the job ran.
    """
    return json(await audited(deps, await jobs.public_id(deps.database, job)))


async def audited(deps: Deps, job: uuid.UUID) -> Audit:
    """What an audit of the job with this id finds, now."""
    violations = await audit.check_apart(deps.database, job)
    changed = await audit.changed_source(deps.database, job)
    return Audit(clean=not violations, violations=violations, source_changed=changed)
