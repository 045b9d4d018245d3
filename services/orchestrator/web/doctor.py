"""`/doctor`: whether jobs can run, and what to do about what is in their way."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from services.orchestrator.deps import RequestDeps
from services.orchestrator.probes.probe import Probe, checks
from services.orchestrator.probes.registry import probes, readiness
from services.orchestrator.web.page import Visit, Visitor, page
from shared.contracts.api_keys import Scope

router = APIRouter()


@page(router, "/doctor")
async def doctor(visit: Visitor, deps: RequestDeps) -> Response:
    """What a job needs, looked at now."""
    return await _shown(visit, deps, readiness(deps.settings), "/readyz")


@page(router, "/doctor/everything", Scope.OPERATE)
async def everything(visit: Visitor, deps: RequestDeps) -> Response:
    """Also what takes as long as hashing every index and every model's file."""
    return await _shown(visit, deps, probes(deps.settings), "/v1/checks")


async def _shown(visit: Visit, deps: RequestDeps, looked_at: Sequence[Probe], json: str) -> Response:
    found = await checks(looked_at, deps)
    wrong = [check for check in found if not check.ok]
    well = [check for check in found if check.ok]
    return visit.show("doctor/doctor.html", title="Doctor", json=json, wrong=wrong, well=well)
