"""The statuses with which every operation may refuse, and an example of every kind of problem."""

from shared import errors
from shared.access.filters import OPEN
from shared.errors import MathragError

ANYWHERE = (400, 403, 408, 413, 422, 431, 500, 503, 507)
"""Statuses that are answered before a route is reached, or by any route: a body that is not HTTP, a web page of another
origin or a key without the scope, a request that is too slow, too long or holds invalid text, a header that is too
long, an unexpected failure, too many connections, an unavailable service, and a full disk.
"""

EXAMPLES: dict[int, MathragError] = {
    error.status: error
    for error in (
        errors.BadRequest("`cursor`: is not valid", hint="pass the `next_cursor` of the previous page, or none"),
        errors.Unauthorized("an API key is required", hint="send `Authorization: Bearer KEY`"),
        errors.Forbidden("this API key lacks the scope 'operate'", hint="mathrag key create NAME --scope operate"),
        errors.NotFound("there is nothing of this name", hint="the list shows all names"),
        errors.TimedOut("no byte of the body came for 30 s (`limits.idle_s`)", hint="send it again"),
        errors.Conflict("the name is taken, or the state does not allow it", hint="choose another name"),
        errors.PreconditionFailed("the job has version 4, you saw 3", hint="GET it again"),
        errors.TooLarge("a request must declare its length", hint="see `limits.body_bytes`"),
        errors.Invalid("`params.gate.tua`: there is no such field", hint="fields of `params.gate`: items, tau, …"),
        errors.PreconditionRequired("`If-Match`: is required here", hint="send the ETag that you saw, or *"),
        errors.TooMany("the limit of concurrent jobs is reached", hint="wait until one of them ends"),
        errors.HeaderTooLarge("a header may have 65536 bytes (`limits.header_bytes`)", hint="send fewer cookies"),
        errors.MathragError("the orchestrator failed unexpectedly", hint="see the orchestrator's log for the error"),
        errors.Unavailable("a required service does not answer", hint="see GET /readyz"),
        errors.OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="free space, and send it again"),
    )
}  # fmt: skip


def list_common_statuses(path: str) -> tuple[int, ...]:
    """Return the statuses with which any operation at `path` may refuse; 401 only if the operator requires keys."""
    return ANYWHERE if path in OPEN else (*ANYWHERE, 401)
