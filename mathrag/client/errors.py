"""Failures that the client and the command line show: what went wrong, where, and what to do."""

import errno
import os
from importlib import import_module
from typing import Any

from mathrag.errors import MathragError
from mathrag.installation import install_command

OTHER_FOLDER = "or take another folder: --data-dir DIR, MATHRAG_DATA_DIR"
FIXES = {
    errno.EACCES: f"give this user the right to it (`ls -ld` shows whose it is), {OTHER_FOLDER}",
    errno.EPERM: f"give this user the right to it (`ls -ld` shows whose it is), {OTHER_FOLDER}",
    errno.EROFS: f"mount it for writing, {OTHER_FOLDER}",
    errno.ENOSPC: f"free some room there (`df -h` shows it), {OTHER_FOLDER}",
    errno.EDQUOT: f"free some room there (`quota` shows it), {OTHER_FOLDER}",
    errno.ENOTDIR: "name a folder, or move the file in its way",
    errno.EEXIST: "name a folder, or move the file in its way",
    errno.EISDIR: "name a file",
    errno.ENOENT: "make it, or name another one",
    errno.ENAMETOOLONG: "take a shorter path",
    errno.EMFILE: "allow this user more open files: ulimit -n 4096",
    errno.ENFILE: "allow more open files: sysctl fs.file-max",
    errno.ENOMEM: "free some memory",
}
"""Remedies by error number; an error that is not listed is a defect of ours."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors for want of a resource: the same command may succeed later."""


def explain(error: OSError) -> tuple[str, str] | None:
    """Return the problem of an error of the operating system, and its remedy; None if an operator cannot fix it."""
    if error.errno == errno.ENOENT and not error.filename:
        return "the working directory no longer exists", "cd to an existing one"
    fix = FIXES.get(error.errno or 0)
    if fix is None:
        return None
    reason = os.strerror(error.errno or 0).lower()
    return f"`{os.fsdecode(error.filename)}`: {reason}" if error.filename else reason, fix


class Failed(Exception):
    """A command or a request failed; `kind` is the API's word for why, `hint` says what to do about it."""

    status: int | None = None
    """Of the answer; None: there was none."""
    retry_after_s: float | None = None
    """After how many seconds the server asks to be asked again."""
    field: str | None = None
    """Path of the field that is wrong, such as `params.gate.tau`."""
    line: int | None = None
    """Number of the line of an upload that is wrong, from 1."""
    others: tuple[str, ...] = ()
    """What is wrong with further lines of an upload."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[type["Failed"], tuple[str, str, str | None], dict[str, object]]:
        """Return how to make it again, so that it passes between processes."""
        return type(self), (self.kind, self.message, self.hint), self.__dict__


class BadRequest(Failed):
    """A header, cursor or body cannot be read."""


class Unauthorized(Failed):
    """The server asks for an API key, and there was none or not a valid one."""


class Forbidden(Failed):
    """The API key lacks the scope that this needs."""


class NotFound(Failed):
    """Nothing has this name or id."""


class Conflict(Failed):
    """The name is taken, or the state does not allow it."""


class PreconditionFailed(Failed):
    """It has changed since the caller looked."""


class TooLarge(Failed):
    """It is larger than the operator, or this client, allows."""


class Invalid(Failed):
    """A value cannot be used; `field` or `line` names it."""


class TooMany(Failed):
    """There is more at once than the operator allows; later it may work."""


class Unavailable(Failed):
    """A service or the database is away, or the server is full; later it may work."""


class Unreachable(Failed):
    """No whole answer arrived."""

    never_sent = False
    """Whether it is certain that the server has seen nothing of the request."""
    ran_out_of_time = False
    """Whether the server was silent for longer than the client waits."""


class Incompatible(Failed):
    """What answers is not MathRAG-Gate, or a release whose answers this client cannot read."""


class TimedOut(Failed, TimeoutError):
    """It took longer than the caller wanted to wait."""


class JobFailed(Failed):
    """A job that was waited for has failed or was cancelled."""


class MissingPackage(Failed, ImportError):
    """A package that is needed for this alone is not installed."""


class Shown(Exception):
    """The request was shown in place of being sent, so there is no answer to wait for."""


KINDS: dict[str, type[Failed]] = {
    "bad_request": BadRequest, "unauthorized": Unauthorized, "forbidden": Forbidden, "not_found": NotFound,
    "timed_out": TimedOut, "conflict": Conflict, "in_progress": Conflict, "unreadable": Conflict,
    "precondition_failed": PreconditionFailed, "precondition_required": PreconditionFailed, "too_large": TooLarge,
    "invalid": Invalid, "invalid_line": Invalid, "idempotency_mismatch": Invalid, "too_many": TooMany,
    "unavailable": Unavailable, "refused": Unavailable, "out_of_space": Unavailable,
    "not_installed": MissingPackage,
}  # fmt: skip
"""By the kind of the problem."""
STATUSES: dict[int, type[Failed]] = {
    400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 412: PreconditionFailed,
    413: TooLarge, 422: Invalid, 428: PreconditionFailed, 429: TooMany, 502: Unavailable, 503: Unavailable,
    504: Unavailable, 507: Unavailable,
}  # fmt: skip
"""For kinds that only a later release knows, and for what stands between us and the server."""


def of_status(status: int, kind: str, message: str, hint: str | None = None) -> Failed:
    """Return the exception for an answer with this status and this kind of problem."""
    found = KINDS.get(kind) or STATUSES.get(status, Failed)
    failed = found(kind, message, hint)
    failed.status = status
    return failed


def failure(error: Exception) -> Failed:
    """Convert any error to `Failed`; what neither caller nor machine caused is a defect, kind "internal"."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, MathragError):
        failed = KINDS.get(error.kind, Failed)(error.kind, error.message, error.hint)
        failed.others = tuple(str(other) for other in getattr(error, "others", ()))
        return failed
    if isinstance(error, OSError) and (words := explain(error)):
        return Failed("unavailable" if error.errno in NO_ROOM else "invalid", *words)
    return Failed("internal", f"{type(error).__name__}: {error}", hint="a defect of mathrag; please report it")


def require(package: str, method: str) -> Any:
    """Import a package that `method` needs, and return it.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        message = f"`{method}` needs {package}, which is not installed"
        raise MissingPackage("not_installed", message, hint=install_command("mathrag[frames]")) from error
