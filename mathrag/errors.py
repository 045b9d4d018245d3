"""The errors that users see.

Each has an HTTP status. One handler converts them to problem documents; docs/reference/errors.md lists them.
"""


class MathragError(Exception):
    """An internal error, which is a defect of the service. It is also the base class of all other errors."""

    status = 500
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadRequest(MathragError):
    """A header, cursor or body cannot be read; the message names it."""

    status = 400
    kind = "bad_request"


class Unauthorized(MathragError):
    """The request has no API key, or the key is not valid."""

    status = 401
    kind = "unauthorized"


class Forbidden(MathragError):
    """The API key lacks the scope that the request needs, or the job belongs to another key."""

    status = 403
    kind = "forbidden"


class NotFound(MathragError):
    """No object has this name or id."""

    status = 404
    kind = "not_found"


class TimedOut(MathragError):
    """The header or body did not arrive in time (`limits.header_s`, `limits.idle_s`, `limits.body_bytes_s`); the
    connection is closed."""

    status = 408
    kind = "timed_out"


class Conflict(MathragError):
    """The name is taken, or the current state does not allow the request."""

    status = 409
    kind = "conflict"


class InProgress(Conflict):
    """The same request is still being processed."""

    kind = "in_progress"


class Unreadable(Conflict, ValueError):
    """This release cannot use a stored row, or the pipeline that the row names; the message names it and the reason."""

    kind = "unreadable"


class Invalid(MathragError):
    """A field has an invalid value; the message names the field."""

    status = 422
    kind = "invalid"


class InvalidLine(Invalid):
    """A line of an upload cannot be used; the message names the file and the line."""

    kind = "invalid_line"

    def __init__(self, source: str, line: int, message: str) -> None:
        super().__init__(f"{source}, line {line}: {message}")
        self.line = line
        self.said = message
        self.others: tuple[InvalidLine, ...] = ()
        """Problems of further lines, up to the point where reading stopped."""


class IdempotencyMismatch(MathragError):
    """The `Idempotency-Key` was already used with another request."""

    status = 422
    kind = "idempotency_mismatch"


class TooLarge(MathragError):
    """The request exceeds a limit that the operator has set; the message names it."""

    status = 413
    kind = "too_large"


class PreconditionFailed(MathragError):
    """The resource has changed since the client read it."""

    status = 412
    kind = "precondition_failed"


class PreconditionRequired(MathragError):
    """The request must send the version of the resource that it changes (header `If-Match`)."""

    status = 428
    kind = "precondition_required"


class TooMany(MathragError):
    """Too many requests of this kind run at once; try again later."""

    status = 429
    kind = "too_many"


class HeaderTooLarge(MathragError):
    """The header has more bytes or fields than allowed (`limits.header_bytes`, `limits.header_fields`); the connection
    is closed."""

    status = 431
    kind = "header_too_large"


class Unavailable(MathragError):
    """A service or PostgreSQL is unavailable, or `limits.connections` connections are open. A request with an
    `Idempotency-Key` can safely be repeated."""

    status = 503
    kind = "unavailable"

    def __init__(self, message: str, *, hint: str | None = None, what: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.what = what or message
        """Name of the unavailable service, if the message does not consist of it."""


class Refused(Unavailable):
    """A service that the request needs answers, but refuses it. Repeating the request does not help."""

    kind = "refused"


class NotInstalled(Unavailable):
    """A package of an extra is missing; the hint is the command that installs it."""

    kind = "not_installed"


class OutOfSpace(MathragError):
    """The disk of the service or of PostgreSQL is full. Nothing of the request was stored; the service continues."""

    status = 507
    kind = "out_of_space"
