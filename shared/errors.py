"""What goes wrong, as sentences that name the fix.

One base carries the HTTP status; one handler turns it into a problem.

MathragError
├── BadRequest            400   (a header or cursor that is malformed)
├── Unauthorized          401
├── Forbidden             403
├── NotFound              404
├── TimedOut              408
├── Conflict              409
│   ├── InProgress        409   (the same again, in a second)
│   └── Unreadable        409   (written by a release that this one does not understand)
├── PreconditionFailed    412
├── TooLarge              413
├── Invalid               422   (field named)
│   └── InvalidLine       422   (line named)
├── IdempotencyMismatch   422
├── PreconditionRequired  428
├── TooMany               429
├── HeaderTooLarge        431
└── Unavailable           503
    └── Refused           503   (it answers, and refuses this request)
"""


class MathragError(Exception):
    """Base of every error that a user may see."""

    status = 500
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadRequest(MathragError):
    """A header or cursor is malformed; the message names it."""

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
    """The request did not arrive in time; the message names the limit."""

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
    """The key was sent before, with another request."""

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
    """The header has more bytes or fields than the operator allows; the message names the limit."""

    status = 431
    kind = "header_too_large"


class Unavailable(MathragError):
    """A service that is needed does not answer; `what` names it, where the message says more than that."""

    status = 503
    kind = "unavailable"

    def __init__(self, message: str, *, hint: str | None = None, what: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.what = what or message


class Refused(Unavailable):
    """A service that is needed answers, and has nothing for this request: waiting for it changes nothing."""

    kind = "refused"
