"""Serves `/v1/jobs`: submits, shows, changes, pauses, cancels, requeues, reports on and audits jobs."""

import uuid
from collections.abc import Sequence
from typing import Annotated

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Response

from services.orchestrator import reports
from services.orchestrator.access.identity import Caller, RequestCaller
from services.orchestrator.api.etags import UNCHANGED, RequiredVersions, Seen, Versions, respond_with_tag
from services.orchestrator.api.flaws import list_rule_warnings, list_ungraded_warnings, list_version_warnings
from services.orchestrator.api.keys import IdempotencyKey, make_keyed_request
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.submissions import JobChange, JobFilters, JobRequest
from services.orchestrator.api.views import EXAMPLE, JobView, list_edit_warnings, load_accuracies, make_view, page
from services.orchestrator.deps import Deps, RequestDeps
from shared import audit
from shared.runtime.lifecycle import amend
from shared.runtime.lifecycle import cancel as cancel_job
from shared.runtime.lifecycle import pause as pause_job
from shared.runtime.lifecycle import resume as resume_job
from shared.runtime.submit import Submission, repeat_submission, submit_once
from shared.shapes import Scope
from shared.storage import configurations, database
from shared.storage import jobs as stored_jobs
from shared.storage.database import KeyedRequest

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
POLL_S = "1"
REPLAYED = "Idempotency-Replayed"
"""Header of an answer that repeats an earlier one."""

JOB = answers(JobView, EXAMPLE)
ACCEPTED = answers(JobView, EXAMPLE, status=202)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the job's rows satisfy the invariants."""

    clean: bool
    violations: list[audit.Violation]
    source_changed: str | None = None
    """Set if the source of the job's pipeline has changed since the job ran. The audit is still clean if replays give
    the same outcomes.
    """


@route(router, "POST", "", Scope.SUBMIT, "Submit a job", ACCEPTED, refuses=(404, 409, 429), status_code=202)
async def submit(request: JobRequest, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Submits a job. 202 means that it is committed to the database, and survives the loss of every other service. Poll
    the address in `Location`. `warnings`, if there are any, name source files that were edited but do not run
    (docs/how-to/operations.md#edited-source-files), items whose relation no rule predicts (docs/how-to/rulerag.md), and
    a dataset without any expected answer. With an `Idempotency-Key` the request can be repeated safely
    (docs/how-to/api.md#idempotency).

    For at least 24 hours the same `Idempotency-Key` with the same body answers with the same job. Another body answers
    422, and a repetition while the first request is still being answered 409.
    """
    submission = request.submission(await configurations.load_newest(deps.database))
    return await _submit(deps, caller, submission, make_keyed_request(key, "POST /v1/jobs", request.identity()))


@route(
    router, "POST", "/{job}/requeue", Scope.SUBMIT, "Requeue a job", ACCEPTED, refuses=(404, 409, 429), status_code=202
)
async def requeue(job: str, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Submits a new job with the request of one that has ended. Replies are shared, so only what failed is computed
    again (docs/how-to/api.md#pause-and-requeue).

    Answers 409 if the job has not ended.
    """
    public_id = await stored_jobs.resolve_public_id(deps.database, job)
    submission = await repeat_submission(deps.database, public_id)
    return await _submit(deps, caller, submission, make_keyed_request(key, "requeue", str(public_id)))


async def _submit(deps: Deps, caller: Caller, submission: Submission, request: KeyedRequest | None) -> Response:
    submission = msgspec.structs.replace(submission, submitted_by=caller.name)
    accepted = await submit_once(deps.database, deps.settings, submission, request)
    deps.wake()
    headers = {"Location": f"/v1/jobs/{accepted.job}", "Retry-After": POLL_S}
    warnings = await to_thread.run_sync(list_edit_warnings, [submission.pipeline])
    warnings += await list_version_warnings(deps.database, job=accepted.job)
    warnings += await list_rule_warnings(deps.database, accepted.job)
    warnings += await list_ungraded_warnings(deps.database, job=accepted.job)
    repeat_submission = {REPLAYED: "true"} if accepted.replayed else {}
    return await _answer(deps, accepted.job, 202, headers | repeat_submission, warnings)


async def _resolve_own(deps: Deps, job: str, caller: Caller) -> uuid.UUID:
    """Find the public id of a job that the caller wants to change.

    Raises:
        NotFound, Conflict: as `jobs.resolve` raises them.
        Forbidden: it is another key's, and the caller is no operator.
    """
    public_id = await stored_jobs.resolve_public_id(deps.database, job)
    caller.check_owns(await stored_jobs.list_submitters(deps.database, job=public_id), f"job {job}")
    return public_id


async def _answer(
    deps: Deps,
    job: uuid.UUID,
    status: int = 200,
    headers: dict[str, str] | None = None,
    warnings: Sequence[str] = (),
) -> Response:
    deps.job_views.forget()
    found = await stored_jobs.get(deps.database, str(job))
    return respond_with_tag(make_view(found, warnings), version=found.version, status=status, headers=headers)


@route(
    router, "GET", "", Scope.READ, "List jobs",
    answers(database.Page[JobView], {"data": [EXAMPLE], "next_cursor": None}) | UNCHANGED,
    name="listed",
)  # fmt: skip
async def list_jobs(
    deps: RequestDeps,
    seen: Seen,
    filters: Annotated[JobFilters, Query()],
) -> Response:
    """Lists the jobs, newest first or as `sort` says. A cursor is valid only with the filters and the order of its
    page; otherwise it answers 400.
    """
    return respond_with_tag(await load_page(deps, filters), seen=seen)


async def load_page(deps: Deps, filters: JobFilters) -> database.Page[JobView]:
    """Return a page of the list."""
    found = await stored_jobs.list_jobs(
        deps.database, filters.limit, filters.cursor, filters.make_selection(), filters.sort
    )
    return await page(deps, found)


@route(router, "GET", "/{job}", Scope.READ, "Get a job", JOB | UNCHANGED, refuses=(404, 409))
async def get(job: str, deps: RequestDeps, seen: Seen) -> Response:
    """Returns the state, counts, calls by stage, estimate and links of a job. With `If-None-Match` it answers 304 if
    nothing has changed (docs/how-to/api.md#tags).

    The job is given by id, by name, or by the first characters of its id (four or more).

    The state may be 0.1 s old, and the progress 0.5 s, or some seconds for a very large job.
    """
    found = await deps.job_views.get(deps.database, job)
    known = await load_accuracies(deps, [found])
    return respond_with_tag(
        make_view(found, found=known.get(found.id)),
        version=found.version,
        seen=seen,
        headers=None if found.ended else {"Retry-After": POLL_S},
    )


@route(router, "PATCH", "/{job}", Scope.SUBMIT, "Change a job", JOB, refuses=(404, 409, 412, 428))
async def change(
    job: str, request: JobChange, deps: RequestDeps, caller: RequestCaller, versions: RequiredVersions
) -> Response:
    """Changes `name`, `rank` and `metadata` of a job in any state; the rank also applies to its queued calls. Requires
    `If-Match`: another version answers 412, a missing header 428 (docs/how-to/api.md#tags).
    """
    public_id = await _resolve_own(deps, job, caller)
    await amend(deps.database, public_id, request.make_amendment(), versions)
    return await _answer(deps, public_id)


@route(
    router, "POST", "/{job}/cancel", Scope.SUBMIT, "Cancel a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def cancel(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Cancels a job: 202 with the state `cancelling`. None of its calls is started any more; calls in flight may still
    end. Its samples are ended in batches, 300,000 in about a minute. A second request changes nothing; a job that has
    ended answers 409.
    """
    public_id = await _resolve_own(deps, job, caller)
    await cancel_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(router, "POST", "/{job}/pause", Scope.SUBMIT, "Pause a job", ACCEPTED, refuses=(404, 409, 412), status_code=202)
async def pause(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Pauses a job: none of its calls is started any more; calls in flight may still end. A second request changes
    nothing; a job that has ended answers 409 (docs/how-to/api.md#pause-and-requeue).
    """
    public_id = await _resolve_own(deps, job, caller)
    await pause_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(
    router, "POST", "/{job}/resume", Scope.SUBMIT, "Resume a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def resume(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Resumes a paused job where it was. Changes nothing if the job is not paused; a job that has ended answers 409
    (docs/how-to/api.md#pause-and-requeue).
    """
    public_id = await _resolve_own(deps, job, caller)
    await resume_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(
    router, "GET", "/{job}/report", Scope.READ, "Report", answers(reports.Report, reports.EXAMPLE), refuses=(404, 409)
)
async def report(job: str, deps: RequestDeps) -> Response:
    """Returns the accuracy with its interval, the failures, the decisions of the methods, loads, calls made and reused,
    time by stage, and cost (docs/how-to/api.md#reports). The report is final once the job has ended.
    """
    return json(await reports.report(deps.database, job, deps.settings.models))


@route(
    router, "GET", "/{job}/audit", Scope.READ, "Check the invariants",
    answers(Audit, {"clean": True, "violations": []}), refuses=(404, 409),
)  # fmt: skip
async def check(job: str, deps: RequestDeps) -> Response:
    """Checks the invariants of a job from its rows in the database (docs/explanation/architecture.md#invariants).
    `source_changed` is set if the source of the pipeline has changed since the job ran.
    """
    return json(await audit_job(deps, await stored_jobs.resolve_public_id(deps.database, job)))


async def audit_job(deps: Deps, job: uuid.UUID) -> Audit:
    """Audit the job with this id as it is now."""
    violations = await audit.check_in_thread(deps.database, job)
    changed = await audit.describe_changed_source(deps.database, job)
    return Audit(clean=not violations, violations=violations, source_changed=changed)
