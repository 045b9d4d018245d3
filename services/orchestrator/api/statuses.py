"""How each operation may refuse, on one page, with an example of every kind of problem."""

from shared import errors
from shared.access.internal import OPEN
from shared.errors import MathragError

ANYWHERE = (400, 403, 408, 413, 422, 431, 500, 503)
"""Given before a route is reached, or by any: bytes that are no HTTP, a web page from elsewhere or a key without the
scope, a request that is too slow, too long or holds what is no text, a header that is too long, a defect of ours, too
many connections or a service that is away."""

REFUSALS: dict[tuple[str, str], tuple[int, ...]] = {
    ("GET", "/healthz"): (),
    ("GET", "/readyz"): (),
    ("GET", "/metrics"): (),
    ("GET", "/v1/pipelines"): (),
    ("GET", "/v1/models"): (),
    ("GET", "/v1/corpora"): (),
    ("POST", "/v1/corpora"): (409, 429),
    ("GET", "/v1/corpora/{name}"): (404,),
    ("POST", "/v1/corpora/{name}/indexes"): (404,),
    ("GET", "/v1/corpora/{name}/contamination"): (404,),
    ("GET", "/v1/corpora/{name}/documents"): (404,),
    ("GET", "/v1/indexes/orphans"): (),
    ("DELETE", "/v1/indexes/orphans"): (),
    ("GET", "/v1/datasets"): (),
    ("POST", "/v1/datasets"): (409, 429),
    ("GET", "/v1/datasets/{name}"): (404,),
    ("GET", "/v1/datasets/{name}/items"): (404,),
    ("GET", "/v1/jobs"): (),
    ("POST", "/v1/jobs"): (404, 409, 429),
    ("GET", "/v1/jobs/{job}"): (404, 409),
    ("PATCH", "/v1/jobs/{job}"): (404, 409, 412, 428),
    ("POST", "/v1/jobs/{job}/cancel"): (404, 409, 412),
    ("POST", "/v1/jobs/{job}/pause"): (404, 409, 412),
    ("POST", "/v1/jobs/{job}/resume"): (404, 409, 412),
    ("POST", "/v1/jobs/{job}/requeue"): (404, 409, 429),
    ("GET", "/v1/jobs/{job}/events"): (404, 409, 429),
    ("GET", "/v1/jobs/{job}/results"): (404, 409),
    ("GET", "/v1/jobs/{job}/provenance"): (404, 409),
    ("GET", "/v1/jobs/{job}/samples"): (404, 409),
    ("GET", "/v1/jobs/{job}/samples/{index}"): (404, 409),
    ("GET", "/v1/jobs/{job}/report"): (404, 409),
    ("GET", "/v1/jobs/{job}/audit"): (404, 409),
    ("GET", "/v1/jobs/{job}/plan"): (404, 409),
    ("GET", "/v1/jobs/{job}/calibration"): (404, 409),
    ("GET", "/v1/comparison"): (404, 409),
    ("GET", "/v1/checks"): (),
    ("GET", "/v1/configuration"): (),
    ("PATCH", "/v1/configuration"): (412, 428),
    ("GET", "/v1/configuration/history"): (),
    ("POST", "/v1/search"): (404,),
    ("POST", "/v1/plan"): (404,),
    ("POST", "/v1/chat"): (404, 429),
    ("GET", "/v1/experiments"): (),
    ("POST", "/v1/experiments"): (404, 409, 429),
    ("POST", "/v1/experiments/plan"): (404,),
    ("GET", "/v1/experiments/{experiment}"): (404, 409),
    ("GET", "/v1/experiments/{experiment}/report"): (404, 409),
    ("POST", "/v1/experiments/{experiment}/cancel"): (404, 409),
    ("POST", "/v1/experiments/{experiment}/resume"): (404, 409, 429),
    ("GET", "/v1/gpus"): (),
    ("GET", "/v1/gpus/{device}"): (404,),
    ("POST", "/v1/gpus/{device}/drain"): (404,),
    ("POST", "/v1/gpus/{device}/release"): (404,),
}
"""Besides those that every operation has: `ANYWHERE`, and 401 where the operator asks for keys."""

EXAMPLES: dict[int, MathragError] = {
    error.status: error
    for error in (
        errors.BadRequest("`cursor`: not one of ours", hint="pass the `next_cursor` of the page before, or none"),
        errors.Unauthorized("an API key is needed", hint="send `Authorization: Bearer KEY`"),
        errors.Forbidden("this API key lacks the scope 'operate'", hint="mathrag key create NAME --scope operate"),
        errors.NotFound("there is none of this name", hint="the list has all that there are"),
        errors.TimedOut("no byte of the body came for 30 s (`limits.idle_s`)", hint="send it again"),
        errors.Conflict("the name is taken, or the state does not allow it", hint="choose another name"),
        errors.PreconditionFailed("the job has version 4, you saw 3", hint="GET it again"),
        errors.TooLarge("a request must declare its length", hint="see `limits.body_bytes`"),
        errors.Invalid("`params.gate.tua`: there is no such field", hint="fields of `params.gate`: items, tau, …"),
        errors.PreconditionRequired("`If-Match`: is needed here", hint="send the ETag of it as you saw it, or *"),
        errors.TooMany("as many are running as the operator allows", hint="wait until one of them ends"),
        errors.HeaderTooLarge("a header may have 65536 bytes (`limits.header_bytes`)", hint="send fewer cookies"),
        errors.MathragError("something went wrong that should not", hint="the orchestrator's log says where"),
        errors.Unavailable("a service that is needed does not answer", hint="see GET /readyz"),
    )
}  # fmt: skip


def of(method: str, path: str) -> tuple[int, ...]:
    """Statuses of the problems that this operation may answer with."""
    keys = () if path in OPEN else (401,)
    return tuple(sorted({*ANYWHERE, *keys, *REFUSALS[method, path]}))
