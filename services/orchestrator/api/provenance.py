"""Serves `/v1/jobs/{job}/provenance`: everything that a job's answers were made from, to verify elsewhere."""

from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from shared import provenance as provenance_module
from shared.records import SampleLine
from shared.shapes import Scope
from shared.storage import jobs

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
EXAMPLE: dict[str, Any] = {
    "line": "sample", "sequence": 0, "hash": "5d0c…", "previous": "91be…",
    "record": '{"index":0,"repeat":0,"item":"c0de…","state":"completed","outcome":"77aa…","calls":[…]}',
    "texts": {"77aa…": '{"answer":"5",…}'},
}  # fmt: skip
RESPONSES = answers(SampleLine, EXAMPLE, media="application/x-ndjson")


@route(router, "GET", "/{job}/provenance", Scope.READ, "Stream the provenance of a job", RESPONSES, refuses=(404, 409))
async def provenance(job: str, deps: RequestDeps, format: Literal["jsonl"] = "jsonl") -> Response:  # noqa: A002, ARG001 - clients send it
    """Streams everything that an ended job's answers were made from, to keep and to verify
    (docs/how-to/api.md#provenance): one line per sample with its link of the hash chain. Answers 409 if the job has not
    ended.
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    exported = await provenance_module.read_job(deps.database, row)
    return StreamingResponse(provenance_module.export_lines(deps.database, exported), media_type="application/x-ndjson")
