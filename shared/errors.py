"""What goes wrong, as sentences that name the fix.

One base carries the HTTP status; one handler turns it into a problem.

MathragError
├── NotFound              404
├── Conflict              409
├── Invalid               422   (field named)
│   └── InvalidLine       422   (line named)
├── TooLarge              413
└── Unavailable           503
"""


class MathragError(Exception):
    """Base of every error that a user may see."""

    status = 500
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(MathragError):
    """Nothing has this name or id."""

    status = 404
    kind = "not_found"


class Conflict(MathragError):
    """The name is taken, or the state does not allow it."""

    status = 409
    kind = "conflict"


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


class TooLarge(MathragError):
    """More than the operator allows; the message names the limit."""

    status = 413
    kind = "too_large"


class Unavailable(MathragError):
    """A service that is needed does not answer."""

    status = 503
    kind = "unavailable"
