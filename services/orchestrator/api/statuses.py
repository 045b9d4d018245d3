"""How every operation may refuse, and an example of every kind of problem."""

from shared import errors
from shared.access.internal import OPEN
from shared.errors import MathragError

ANYWHERE = (400, 403, 408, 413, 422, 431, 500, 503, 507)
"""Given before a route is reached, or by any: bytes that are no HTTP, a web page from elsewhere or a key without the
scope, a request that is too slow, too long or holds what is no text, a header that is too long, a defect of ours, too
many connections, a service that is away, or a disk that is full."""

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
        errors.OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="make room, and send it again"),
    )
}  # fmt: skip


def of_every_operation(path: str) -> tuple[int, ...]:
    """Statuses of the problems that any operation at `path` may answer with; 401 where the operator asks for keys."""
    return ANYWHERE if path in OPEN else (*ANYWHERE, 401)
