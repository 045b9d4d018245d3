"""Serves `/v1/indexes/orphans`: indexes on Elasticsearch that no corpus uses."""

from collections.abc import Awaitable
from typing import Any

import httpx2
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.errors import Unavailable
from shared.models.retriever_client import NoReply, Orphans, RetrieverClient
from shared.shapes import Scope

router = APIRouter(prefix="/v1/indexes/orphans", tags=["corpora"])

EXAMPLE: dict[str, Any] = {"orphans": ["mathrag-dense-51c9…"], "deleted": False}


@route(router, "GET", "", Scope.READ, "List unused indexes", answers(Orphans, EXAMPLE))
async def list_orphans(deps: RequestDeps) -> Response:
    """Lists the indexes that interrupted builds, or a database that was replaced, left on Elasticsearch
    (docs/how-to/retrieval.md#back-ends).

    Only indexes whose name has the form PREFIX-KIND-SIGNATURE are considered. Those that are being built are left out.
    """
    return await _answer(RetrieverClient(deps.http, deps.settings).list_orphans())


@route(router, "DELETE", "", Scope.OPERATE, "Delete unused indexes", answers(Orphans, {**EXAMPLE, "deleted": True}))
async def delete_orphans(deps: RequestDeps) -> Response:
    """Deletes the indexes that `GET /v1/indexes/orphans` lists, permanently.

    If another database's retriever uses the same prefix, its indexes would be deleted too: give each retriever its own
    prefix.
    """
    return await _answer(RetrieverClient(deps.http, deps.settings).delete_orphans())


async def _answer(asked: Awaitable[Orphans]) -> Response:
    """Return the retriever's answer.

    Raises:
        Unavailable: the retriever does not answer.
    """
    try:
        return json(await asked)
    except NoReply as error:
        if error.status == httpx2.codes.SERVICE_UNAVAILABLE and error.problem.detail:
            raise Unavailable(error.problem.detail, hint=error.problem.hint) from error
        hint = "see GET /readyz and the retriever's log"
        raise Unavailable(f"the retriever did not list its indexes ({error.cause})", hint=hint) from error
