"""What goes wrong, as sentences that name the fix.

One base carries the HTTP status; one handler turns it into a problem. docs/api.md has the table.
"""


class MathragError(Exception):
    """Something went wrong that should not, a defect of ours; the base of every error that a user may see."""

    status = 500
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadRequest(MathragError):
    """A header, cursor or body that cannot be read; the message names it."""

    status = 400
    kind = "bad_request"


class Unauthorized(MathragError):
    """No API key, or one that is not valid."""

    status = 401
    kind = "unauthorized"


class Forbidden(MathragError):
    """The API key lacks the scope that this needs."""

    status = 403
    kind = "forbidden"


class NotFound(MathragError):
    """Nothing has this name or id."""

    status = 404
    kind = "not_found"


class TimedOut(MathragError):
    """Header or body did not arrive in time (`limits.header_s`, `limits.idle_s`, `limits.body_bytes_s`); the connection
    is closed."""

    status = 408
    kind = "timed_out"


class Conflict(MathragError):
    """The name is taken, or the state does not allow it."""

    status = 409
    kind = "conflict"


class InProgress(Conflict):
    """The same request is being answered right now."""

    kind = "in_progress"


class Unreadable(Conflict, ValueError):
    """A row, or the pipeline that it names, is not one that this release can use; the message says what and why."""

    kind = "unreadable"


class Invalid(MathragError):
    """A field has a value that cannot be used; the message names the field."""

    status = 422
    kind = "invalid"


class InvalidLine(Invalid):
    """A line of an upload cannot be used; the message names source and line."""

    kind = "invalid_line"

    def __init__(self, source: str, line: int, message: str) -> None:
        super().__init__(f"{source}, line {line}: {message}")
        self.line = line
        self.said = message
        self.others: tuple[InvalidLine, ...] = ()
        """What is wrong with further lines, as far as they were read."""


class IdempotencyMismatch(MathragError):
    """The `Idempotency-Key` was sent before, with another request."""

    status = 422
    kind = "idempotency_mismatch"


class TooLarge(MathragError):
    """More than the operator allows; the message names the limit."""

    status = 413
    kind = "too_large"


class PreconditionFailed(MathragError):
    """It has changed since the caller looked."""

    status = 412
    kind = "precondition_failed"


class PreconditionRequired(MathragError):
    """The caller must say which version it means."""

    status = 428
    kind = "precondition_required"


class TooMany(MathragError):
    """More at once than the operator allows; later it may work."""

    status = 429
    kind = "too_many"


class HeaderTooLarge(MathragError):
    """The header has more bytes or fields than the operator allows (`limits.header_bytes`, `limits.header_fields`); the
    connection is closed."""

    status = 431
    kind = "header_too_large"


class Unavailable(MathragError):
    """A service or PostgreSQL is away, or `limits.connections` are open; an `Idempotency-Key` makes it safe to send
    again."""

    status = 503
    kind = "unavailable"

    def __init__(self, message: str, *, hint: str | None = None, what: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.what = what or message
        """The service that is away, where the message says more than that."""


class Refused(Unavailable):
    """A service that is needed answers, and has nothing for this request: waiting for it changes nothing."""

    kind = "refused"


class OutOfSpace(MathragError):
    """The disk of the service or of PostgreSQL is full; nothing of the request is stored, and the service goes on."""

    status = 507
    kind = "out_of_space"
