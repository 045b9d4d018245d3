"""`/v1/jobs`: submit, look, cancel, and read what came out."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from services.orchestrator import reports
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.resources import Held, json
from services.orchestrator.api.submissions import JobRequest
from shared import audit
from shared.runtime.cancel import cancel as cancel_job
from shared.runtime.submit import submit as submit_job
from shared.storage import jobs, pages, provenance, samples
from shared.storage.database import Database

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
POLL_S = "1"
NDJSON = "application/x-ndjson"

EXAMPLE: dict[str, Any] = {
    "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "first", "state": "running", "pipeline": "mathrag-gate",
    "dataset": "math-500", "corpus": "math", "repeats": 1, "reuse": "all",
    "request_counts": {"total": 500, "completed": 120, "failed": 0, "cancelled": 0, "in_progress": 380},
    "stages": {"judge": {"done": 4100, "total": 4100}, "generate": {"done": 120, "total": 500}},
}  # fmt: skip
SAMPLE: dict[str, Any] = {
    "index": 0, "repeat": 0, "state": "completed", "question": "What is $2+3$?", "gold": "5", "answer": "5",
    "extraction": "ok", "truncated": False, "correct": True, "strict": True,
}  # fmt: skip
PAGE = {"data": [SAMPLE], "next_cursor": None}


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows say about the invariants."""

    clean: bool
    violations: list[audit.Violation]


@router.post("", status_code=202, summary="Submit a job", responses=answers(jobs.Job, EXAMPLE, status=202))
async def submit(request: JobRequest, held: Held) -> Response:
    """202: the job is committed, and survives the loss of everything but the database. Poll `Location`."""
    submission = request.submission()
    public_id = await submit_job(held.database, held.settings, submission)
    held.wake()
    job = await jobs.get(held.database, str(public_id))
    return json(job, 202, {"Location": f"/v1/jobs/{public_id}", "Retry-After": POLL_S})


@router.get("", summary="List jobs", responses=answers(pages.Page[jobs.Job], {"data": [EXAMPLE], "next_cursor": None}))
async def listed(held: Held, limit: int = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await jobs.listed(held.database, jobs.checked_limit(limit), cursor))


@router.get("/{job}", summary="Get a job", responses=answers(jobs.Job, EXAMPLE))
async def get(job: str, held: Held) -> Response:
    """By id, by name, or by the first characters of the id (four or more)."""
    found = await jobs.get(held.database, job)
    return json(found, headers=None if found.ended else {"Retry-After": POLL_S})


@router.post("/{job}/cancel", status_code=202, summary="Cancel a job", responses=answers(jobs.Job, EXAMPLE, status=202))
async def cancel(job: str, held: Held) -> Response:
    """Its samples end at once; calls in flight may still end. Again is harmless; an ended job answers 409."""
    public_id = await jobs.public_id(held.database, job)
    await cancel_job(held.database, public_id)
    held.wake()
    return json(await jobs.get(held.database, str(public_id)), 202)


@router.get("/{job}/results", summary="Stream results", responses=answers(samples.SampleRow, SAMPLE, media=NDJSON))
async def results(job: str, held: Held) -> Response:
    """One JSON object per line for every sample that has ended so far, in dataset order."""
    async with held.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    return StreamingResponse(_lines(held.database, row), media_type=NDJSON)


async def _lines(database: Database, job: int) -> AsyncIterator[bytes]:
    encoder = msgspec.json.Encoder()
    async for batch in samples.ended(database, job):
        yield encoder.encode_lines(batch)


@router.get("/{job}/samples", summary="List samples", responses=answers(pages.Page[samples.SampleRow], PAGE))
async def sample_page(job: str, held: Held, limit: int = pages.DEFAULT, cursor: str | None = None) -> Response:
    """In dataset order, whatever their state."""
    return json(await samples.listed(held.database, job, jobs.checked_limit(limit), cursor))


@router.get(
    "/{job}/samples/{index}", summary="One sample's provenance", responses=answers(provenance.Provenance, SAMPLE)
)
async def sample(job: str, index: int, held: Held, repeat: int = 0) -> Response:
    """All calls it waited for, who answered them, when, and during which epoch; the context's texts."""
    return json(await provenance.provenance(held.database, job, index, repeat))


@router.get("/{job}/report", summary="Report", responses=answers(reports.Report, reports.EXAMPLE))
async def report(job: str, held: Held) -> Response:
    """Accuracy with its interval, failures, and what it cost. Final once the job has ended."""
    return json(await reports.report(held.database, job))


@router.get("/{job}/audit", summary="Check the invariants", responses=answers(Audit, {"clean": True, "violations": []}))
async def check(job: str, held: Held) -> Response:
    """From the database's rows alone."""
    violations = await audit.check(held.database, await jobs.public_id(held.database, job))
    return json(Audit(clean=not violations, violations=violations))
