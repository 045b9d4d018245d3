"""Serves `/doctor`: whether jobs can run, and how to fix what prevents them."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from services.orchestrator.deps import RequestDeps
from services.orchestrator.probes.probe import Probe, checks
from services.orchestrator.probes.registry import list_readiness_probes, probes
from services.orchestrator.web.page import Visit, Visitor, page
from shared.shapes import Scope

router = APIRouter()


@page(router, "/doctor")
async def doctor(visit: Visitor, deps: RequestDeps) -> Response:
    """Runs the checks of what jobs depend on."""
    return await _show(visit, deps, list_readiness_probes(deps.settings), "/readyz")


@page(router, "/doctor/everything", Scope.OPERATE)
async def check_everything(visit: Visitor, deps: RequestDeps) -> Response:
    """Runs all checks, including those that hash every index and every model file."""
    return await _show(visit, deps, probes(deps.settings), "/v1/checks")


async def _show(visit: Visit, deps: RequestDeps, looked_at: Sequence[Probe], json: str) -> Response:
    found = await checks(looked_at, deps)
    wrong = [check for check in found if not check.ok]
    well = [check for check in found if check.ok]
    return visit.show("doctor/doctor.html", title="Doctor", json=json, wrong=wrong, well=well)
