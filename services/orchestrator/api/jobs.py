"""`/v1/jobs`: submit, look, change, pause, cancel, requeue, and read what came out."""

import uuid
from collections.abc import Sequence
from typing import Annotated

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from services.orchestrator import reports
from services.orchestrator.api import examples, formats
from services.orchestrator.api.etags import UNCHANGED, RequiredVersions, Seen, Versions, tagged
from services.orchestrator.api.flaws import flawed
from services.orchestrator.api.keys import IdempotencyKey, keyed
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.submissions import JobChange, JobFilters, JobRequest
from services.orchestrator.api.views import JobView, edited, page, view
from services.orchestrator.deps import Held, Limit, Resources, json
from shared import audit
from shared.contracts.provenance import Provenance
from shared.runtime.amending import amend
from shared.runtime.cancel import cancel as cancel_job
from shared.runtime.drafting import Submission
from shared.runtime.pausing import pause as pause_job
from shared.runtime.pausing import resume as resume_job
from shared.runtime.requeue import again
from shared.runtime.submit import submit_once
from shared.storage import configurations, jobs, pages, provenance, samples
from shared.storage import results as stored
from shared.storage.idempotency import Keyed

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
POLL_S = "1"
REPLAYED = "Idempotency-Replayed"
"""Header of an answer that repeats an earlier one."""

PAGE = {"data": [examples.SAMPLE], "next_cursor": None}
JOB = answers(JobView, examples.JOB)
ACCEPTED = answers(JobView, examples.JOB, status=202)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows say about the invariants."""

    clean: bool
    violations: list[audit.Violation]
    source_changed: str | None = None
    """That the job's pipeline has another source by now; replays that give the same outcomes all the same are clean."""


@router.post("", status_code=202, summary="Submit a job", responses=ACCEPTED)
async def submit(request: JobRequest, held: Held, key: IdempotencyKey) -> Response:
    """202: the job is committed, and survives the loss of everything but the database. Poll `Location`.

    The same `Idempotency-Key` with the same body answers with the same job, at least for 24 hours; with another body
    422, and while the first request is still being answered 409.
    """
    submission = request.submission(await configurations.holding(held.database))
    return await _submitted(held, submission, keyed(key, "POST /v1/jobs", request.identity()))


@router.post("/{job}/requeue", status_code=202, summary="Requeue a job", responses=ACCEPTED)
async def requeue(job: str, held: Held, key: IdempotencyKey) -> Response:
    """A new job that asks for the same as one that has ended; replies are shared, so only what failed is computed anew.

    A job that has not ended answers 409.
    """
    public_id = await jobs.public_id(held.database, job)
    submission = await again(held.database, public_id)
    return await _submitted(held, submission, keyed(key, "requeue", str(public_id)))


async def _submitted(held: Resources, submission: Submission, request: Keyed | None) -> Response:
    accepted = await submit_once(held.database, held.settings, submission, request)
    held.wake()
    headers = {"Location": f"/v1/jobs/{accepted.job}", "Retry-After": POLL_S}
    warnings = await to_thread.run_sync(edited, [submission.pipeline])
    warnings += await flawed(held.database, job=accepted.job)
    again = {REPLAYED: "true"} if accepted.replayed else {}
    return await _answer(held, accepted.job, 202, headers | again, warnings)


async def _answer(
    held: Resources,
    job: uuid.UUID,
    status: int = 200,
    headers: dict[str, str] | None = None,
    warnings: Sequence[str] = (),
) -> Response:
    held.glances.forget()
    found = await jobs.get(held.database, str(job))
    return tagged(view(found, warnings), version=found.version, status=status, headers=headers)


@router.get(
    "",
    summary="List jobs",
    responses=answers(pages.Page[JobView], {"data": [examples.JOB], "next_cursor": None}) | UNCHANGED,
)
async def listed(
    held: Held,
    seen: Seen,
    filters: Annotated[JobFilters, Query()],
) -> Response:
    """Newest first. A cursor belongs to its filters: with others it answers 400."""
    found = await jobs.listed(held.database, filters.limit, filters.cursor, filters.filters())
    return tagged(page(found), seen=seen)


@router.get("/{job}", summary="Get a job", responses=JOB | UNCHANGED)
async def get(job: str, held: Held, seen: Seen) -> Response:
    """By id, by name, or by the first characters of the id (four or more). 304 while nothing has changed.

    A state may be a tenth of a second old, progress half a second, and some seconds for a very large job.
    """
    found = await held.glances.get(held.database, job)
    return tagged(
        view(found), version=found.version, seen=seen, headers=None if found.ended else {"Retry-After": POLL_S}
    )


@router.patch("/{job}", summary="Change a job", responses=JOB)
async def change(job: str, request: JobChange, held: Held, versions: RequiredVersions) -> Response:
    """Name, rank and metadata, whatever its state; the rank counts for its queued calls, too.

    `If-Match` is needed: with another version 412, without it 428.
    """
    public_id = await jobs.public_id(held.database, job)
    await amend(held.database, public_id, request.change(), versions)
    return await _answer(held, public_id)


@router.post("/{job}/cancel", status_code=202, summary="Cancel a job", responses=ACCEPTED)
async def cancel(job: str, held: Held, versions: Versions) -> Response:
    """Its samples end at once; calls in flight may still end. Again is harmless; an ended job answers 409."""
    public_id = await jobs.public_id(held.database, job)
    await cancel_job(held.database, public_id, versions)
    held.wake()
    return await _answer(held, public_id, 202)


@router.post("/{job}/pause", status_code=202, summary="Pause a job", responses=ACCEPTED)
async def pause(job: str, held: Held, versions: Versions) -> Response:
    """Nothing of it is begun any more; calls in flight may still end. Again is harmless; an ended job answers 409."""
    public_id = await jobs.public_id(held.database, job)
    await pause_job(held.database, public_id, versions)
    held.wake()
    return await _answer(held, public_id, 202)


@router.post("/{job}/resume", status_code=202, summary="Resume a job", responses=ACCEPTED)
async def resume(job: str, held: Held, versions: Versions) -> Response:
    """It goes on where it was. Harmless for a job that is not paused; an ended job answers 409."""
    public_id = await jobs.public_id(held.database, job)
    await resume_job(held.database, public_id, versions)
    held.wake()
    return await _answer(held, public_id, 202)


@router.get(
    "/{job}/results",
    summary="Stream results",
    responses=formats.also(answers(stored.ResultRow, examples.RESULT, media="application/x-ndjson")),
)
async def results(
    job: str,
    held: Held,
    format: Annotated[formats.Name | None, Query(description="Wins over `Accept`.")] = None,  # noqa: A002 - the API's word
    prompts: Annotated[bool, Query(description="With what the generator was asked.")] = False,  # noqa: FBT002 - a query parameter
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Every sample that has ended so far, in dataset order: JSON lines, CSV or Parquet."""
    async with held.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    name = formats.chosen(format, accept)
    media, write = formats.FORMATS[name]
    # What resolved is an id or a name, and these need no quoting.
    headers = {"Content-Disposition": f'attachment; filename="{job}.{name}"', "Vary": "Accept"}
    return StreamingResponse(
        write(stored.ended(held.database, row, prompts=prompts)), media_type=media, headers=headers
    )


@router.get("/{job}/samples", summary="List samples", responses=answers(pages.Page[samples.SampleRow], PAGE))
async def sample_page(
    job: str,
    held: Held,
    limit: Limit = pages.DEFAULT,
    cursor: str | None = None,
    differing: Annotated[bool, Query(description="Only those that the two graders judge differently.")] = False,  # noqa: FBT002 - a query parameter
    wrong: Annotated[bool, Query(description="Only those whose answer is wrong.")] = False,  # noqa: FBT002 - a query parameter
) -> Response:
    """In dataset order, whatever their state."""
    only = samples.Only(differing=differing, wrong=wrong)
    return json(await samples.listed(held.database, job, limit, cursor, only))


@router.get(
    "/{job}/samples/{index}",
    summary="One sample's provenance",
    responses=answers(Provenance, examples.PROVENANCE),
)
async def sample(
    job: str,
    held: Held,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
    prompts: Annotated[bool, Query(description="With what models were asked.")] = False,  # noqa: FBT002 - a query parameter
) -> Response:
    """All calls it waited for, who answered them, when, and during which epoch; the context's texts."""
    return json(await provenance.provenance(held.database, job, index, repeat, prompts=prompts))


@router.get("/{job}/report", summary="Report", responses=answers(reports.Report, reports.EXAMPLE))
async def report(job: str, held: Held) -> Response:
    """Accuracy with its interval, failures, and what it cost. Final once the job has ended."""
    return json(await reports.report(held.database, job, held.settings.models))


@router.get("/{job}/audit", summary="Check the invariants", responses=answers(Audit, {"clean": True, "violations": []}))
async def check(job: str, held: Held) -> Response:
    """From the database's rows alone."""
    public_id = await jobs.public_id(held.database, job)
    violations = await audit.check_apart(held.database, public_id)
    changed = await audit.changed_source(held.database, public_id)
    return json(Audit(clean=not violations, violations=violations, source_changed=changed))
