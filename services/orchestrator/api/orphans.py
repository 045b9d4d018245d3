"""`/v1/indexes/orphans`: indexes on Elasticsearch that nothing uses."""

from typing import Any

import httpx2
import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.upstream import read_problem
from shared.contracts.api_keys import Scope
from shared.errors import Unavailable

router = APIRouter(prefix="/v1/indexes/orphans", tags=["corpora"])
BUILD_S = 1800.0
"""Longest wait: the retriever answers after the build that it is at."""

EXAMPLE: dict[str, Any] = {"orphans": ["mathrag-dense-51c9…"], "deleted": False}


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Indexes of this installation's prefix that no row and no evaluation names."""

    orphans: tuple[str, ...]
    """Their names on the server, in order."""
    deleted: bool
    """Whether they have been deleted."""


_ORPHANS = msgspec.json.Decoder(Orphans)


@route(router, "GET", "", scope=Scope.READ, summary="List unused indexes", responses=answers(Orphans, EXAMPLE))
async def list_orphans(deps: RequestDeps) -> Response:
    """What builds that broke off, or a database that was replaced, left behind on Elasticsearch.

    Only indexes that are called PREFIX-KIND-SIGNATURE are looked at. A build that is under way is waited for.
    """
    return json(await _ask(deps, "GET"))


@route(
    router,
    "DELETE",
    "",
    scope=Scope.OPERATE,
    summary="Delete unused indexes",
    responses=answers(Orphans, {**EXAMPLE, "deleted": True}),
)
async def delete_orphans(deps: RequestDeps) -> Response:
    """The same indexes, deleted for good.

    Another database whose retriever uses the same prefix would lose its indexes, so each needs a prefix of its own.
    """
    return json(await _ask(deps, "DELETE"))


async def _ask(deps: Deps, method: str) -> Orphans:
    """The retriever's answer.

    Raises:
        Unavailable: it gives none.
    """
    try:
        reply = await deps.http.request(method, f"{deps.settings.retriever_url}/orphans", timeout=BUILD_S)
        if problem := read_problem(reply, httpx2.codes.SERVICE_UNAVAILABLE):
            raise Unavailable(problem.detail, hint=problem.hint)
        return _ORPHANS.decode(reply.content)
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        hint = "see GET /readyz and the retriever's log"
        raise Unavailable(f"the retriever did not list its indexes ({error})", hint=hint) from error
