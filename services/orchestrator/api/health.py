"""Serves `/healthz` (is this process up?), `/readyz` (can jobs run?) and `/v1/checks` (every check, with its fix)."""

from dataclasses import replace

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.probes.probe import checks
from services.orchestrator.probes.registry import list_readiness_probes, probes
from shared.checks import Check
from shared.shapes import Scope

router = APIRouter(tags=["health"])


WELL = {"name": "postgres", "ok": True, "detail": "", "fix": ""}
UNWELL = {
    "ready": False,
    "checks": [WELL, {"name": "redis", "ok": False, "detail": "refused", "fix": "start it (`mathrag up`)"}],
}


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The checks, and whether all of them pass."""

    ready: bool
    checks: list[Check]


@route(router, "GET", "/healthz", None, "Is this process up?", answers(dict[str, str], {"status": "ok"}))
async def healthz() -> dict[str, str]:
    """Answers 200 while this process serves requests; it asks no other service."""
    return {"status": "ok"}


@route(
    router, "GET", "/readyz", Scope.READ, "Can jobs run?",
    answers(Readiness, {"ready": True, "checks": [WELL]}) | answers(Readiness, UNWELL, status=503),
)  # fmt: skip
async def readyz(deps: RequestDeps) -> Response:
    """Answers 200 if every check that jobs depend on passes, else 503; each failed check says how to fix it. `mathrag
    doctor` runs more checks (docs/how-to/operations.md#doctor-and-readyz).
    """
    found = await checks(list_readiness_probes(deps.settings), replace(deps, database=deps.admission))
    ready = all(check.ok for check in found)
    return json(Readiness(ready=ready, checks=found), 200 if ready else 503)


@route(
    router, "GET", "/v1/checks", Scope.OPERATE, "Check everything",
    answers(Readiness, {"ready": True, "checks": [WELL]}),
    name="examined",
)  # fmt: skip
async def run_every_check(deps: RequestDeps) -> Response:
    """Runs every check of `mathrag doctor` with the settings of the running services and returns all results, passed or
    failed (docs/how-to/operations.md#doctor-and-readyz). It hashes every index and every model file, which may take
    minutes.
    """
    found = await checks(probes(deps.settings), deps)
    return json(Readiness(ready=all(check.ok for check in found), checks=found))
