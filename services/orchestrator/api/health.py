"""`/healthz`: this process is up. `/readyz`: can jobs run, else what to do. `/v1/checks`: all that is known."""

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.probes.probe import checks
from services.orchestrator.probes.registry import probes, readiness
from shared.checks.check import Check
from shared.contracts.api_keys import Scope

router = APIRouter(tags=["health"])


WELL = {"name": "postgres", "ok": True, "detail": "", "fix": ""}
UNWELL = {
    "ready": False,
    "checks": [WELL, {"name": "redis", "ok": False, "detail": "refused", "fix": "start it (`mathrag up`)"}],
}


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """All checks."""

    ready: bool
    checks: list[Check]


@route(router, "GET", "/healthz", None, "Is this process up?", answers(dict[str, str], {"status": "ok"}))
async def healthz() -> dict[str, str]:
    """Asks nobody else."""
    return {"status": "ok"}


@route(
    router, "GET", "/readyz", Scope.READ, "Can jobs run?",
    answers(Readiness, {"ready": True, "checks": [WELL]}) | answers(Readiness, UNWELL, status=503),
)  # fmt: skip
async def readyz(deps: RequestDeps) -> Response:
    """200 if every check of what a job needs is well, else 503; each says what to do. `mathrag doctor` looks at more
    (docs/operations.md#doctor-and-readyz).
    """
    found = await checks(readiness(deps.settings), deps)
    ready = all(check.ok for check in found)
    return json(Readiness(ready=ready, checks=found), 200 if ready else 503)


@route(
    router, "GET", "/v1/checks", Scope.OPERATE, "Check everything",
    answers(Readiness, {"ready": True, "checks": [WELL]}),
)  # fmt: skip
async def examined(deps: RequestDeps) -> Response:
    """All that `mathrag doctor` says, well or not: with the settings that the services run with, by those that know
    (docs/operations.md#doctor-and-readyz). Takes as long as hashing every index and every model's file.
    """
    found = await checks(probes(deps.settings), deps)
    return json(Readiness(ready=all(check.ok for check in found), checks=found))
