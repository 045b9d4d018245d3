"""Why a request, or what a person asked for, could not be done: one exception with the words for it."""

from mathrag.client.system_errors import NO_ROOM, described
from shared.errors import MathragError


class Failed(Exception):
    """A command cannot go on."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


class Shown(Exception):
    """The request was shown and not sent; whoever waits for its answer has come to the end."""


def failure(error: Exception) -> Failed:
    """Any error as `Failed`; what is no fault of the caller or the machine is a defect, kind "internal"."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, MathragError):
        return Failed(error.kind, error.message, error.hint)
    if isinstance(error, OSError) and (words := described(error)):
        return Failed("unavailable" if error.errno in NO_ROOM else "invalid", *words)
    return Failed("internal", f"{type(error).__name__}: {error}", hint="a defect of mathrag; please report it")
