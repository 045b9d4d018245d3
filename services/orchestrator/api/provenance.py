"""Serves `/v1/jobs/{job}/provenance`: everything that a job's answers were made from, to verify elsewhere."""

from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.provenance_lines import SampleLine
from shared.provenance import export, lines, prov
from shared.storage import jobs

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
WRITERS = {"jsonl": (lines.export_lines, "application/x-ndjson"), "prov": (prov.export_document, "application/json")}
EXAMPLE: dict[str, Any] = {
    "line": "sample", "sequence": 0, "hash": "5d0c…", "previous": "91be…",
    "record": '{"index":0,"repeat":0,"item":"c0de…","state":"completed","outcome":"77aa…","calls":[…]}',
    "texts": {"77aa…": '{"answer":"5",…}'},
}  # fmt: skip

PROV: dict[str, Any] = {"prefix": {"mathrag": "urn:mathrag:"}, "entity": {"mathrag:text-77aa…": {}}}
RESPONSES = answers(SampleLine, EXAMPLE, media="application/x-ndjson")
RESPONSES[200]["content"]["application/json"] = {"schema": {"type": "object"}, "example": PROV}


@route(router, "GET", "/{job}/provenance", Scope.READ, "Stream the provenance of a job", RESPONSES, refuses=(404, 409))
async def provenance(job: str, deps: RequestDeps, format: Literal["jsonl", "prov"] = "jsonl") -> Response:  # noqa: A002 - the API's word
    """Streams everything that an ended job's answers were made from, to keep and to verify
    (docs/how-to/api.md#provenance): one line per sample with its link of the hash chain, or with `format=prov` one W3C
    PROV-JSON document. Answers 409 if the job has not ended.
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    exported = await export.read_job(deps.database, row)
    write, media = WRITERS[format]
    return StreamingResponse(write(deps.database, exported), media_type=media)
