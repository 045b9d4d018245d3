"""What each route asks for, on one page. A route that is not here answers nobody."""

from fastapi import Request

from shared.contracts.api_keys import Scope, allows
from shared.errors import Forbidden

READ, SUBMIT, OPERATE = Scope.READ, Scope.SUBMIT, Scope.OPERATE

SCOPES: dict[tuple[str, str], Scope | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/docs"): READ,
    ("GET", "/openapi.json"): READ,
    ("GET", "/v1/checks"): OPERATE,
    ("GET", "/v1/pipelines"): READ,
    ("GET", "/v1/models"): READ,
    ("GET", "/v1/corpora"): READ,
    ("GET", "/v1/corpora/{name}"): READ,
    ("GET", "/v1/corpora/{name}/contamination"): READ,
    ("GET", "/v1/corpora/{name}/documents"): READ,
    ("POST", "/v1/corpora"): SUBMIT,
    ("POST", "/v1/corpora/{name}/indexes"): SUBMIT,
    ("GET", "/v1/indexes/orphans"): READ,
    ("DELETE", "/v1/indexes/orphans"): OPERATE,
    ("GET", "/v1/datasets"): READ,
    ("GET", "/v1/datasets/{name}"): READ,
    ("GET", "/v1/datasets/{name}/items"): READ,
    ("POST", "/v1/datasets"): SUBMIT,
    ("GET", "/v1/jobs"): READ,
    ("GET", "/v1/jobs/{job}"): READ,
    ("GET", "/v1/jobs/{job}/audit"): READ,
    ("GET", "/v1/jobs/{job}/calibration"): READ,
    ("GET", "/v1/jobs/{job}/events"): READ,
    ("GET", "/v1/jobs/{job}/plan"): READ,
    ("GET", "/v1/jobs/{job}/provenance"): READ,
    ("GET", "/v1/jobs/{job}/report"): READ,
    ("GET", "/v1/jobs/{job}/results"): READ,
    ("GET", "/v1/jobs/{job}/samples"): READ,
    ("GET", "/v1/jobs/{job}/samples/{index}"): READ,
    ("POST", "/v1/jobs"): SUBMIT,
    ("PATCH", "/v1/jobs/{job}"): SUBMIT,
    ("POST", "/v1/jobs/{job}/cancel"): SUBMIT,
    ("POST", "/v1/jobs/{job}/pause"): SUBMIT,
    ("POST", "/v1/jobs/{job}/requeue"): SUBMIT,
    ("POST", "/v1/jobs/{job}/resume"): SUBMIT,
    ("GET", "/v1/comparison"): READ,
    ("GET", "/v1/configuration"): READ,
    ("GET", "/v1/configuration/history"): READ,
    ("PATCH", "/v1/configuration"): OPERATE,
    ("POST", "/v1/search"): READ,
    ("POST", "/v1/plan"): READ,
    ("POST", "/v1/chat"): SUBMIT,
    ("GET", "/v1/experiments"): READ,
    ("POST", "/v1/experiments"): SUBMIT,
    ("POST", "/v1/experiments/plan"): READ,
    ("GET", "/v1/experiments/{experiment}"): READ,
    ("GET", "/v1/experiments/{experiment}/report"): READ,
    ("POST", "/v1/experiments/{experiment}/cancel"): SUBMIT,
    ("POST", "/v1/experiments/{experiment}/resume"): SUBMIT,
    ("GET", "/v1/gpus"): READ,
    ("GET", "/v1/gpus/{device}"): READ,
    ("POST", "/v1/gpus/{device}/drain"): OPERATE,
    ("POST", "/v1/gpus/{device}/release"): OPERATE,
}
"""None: open to everybody."""


async def authorised(request: Request) -> None:
    """Before every route: the key must allow what the route asks for.

    Raises:
        Forbidden: it does not, or the route declares no scope.
    """
    route = request.scope["route"].path
    if (request.method, route) not in SCOPES:
        raise Forbidden(f"{request.method} {route} declares no scope", hint="a defect: list it in access/scopes.py")
    wanted = SCOPES[request.method, route]
    if wanted is not None and not allows(request.state.scopes, wanted):
        raise Forbidden(
            f"this API key lacks the scope {wanted.value!r}", hint=f"mathrag key create NAME --scope {wanted.value}"
        )
