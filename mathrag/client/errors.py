"""Errors of the client and the command line, each with a message and a hint."""

import errno
import os
from importlib import import_module
from typing import Any

from mathrag.errors import MathragError
from mathrag.installation import install_command

OTHER_FOLDER = "or choose another folder with --data-dir DIR or MATHRAG_DATA_DIR"
FIXES = {
    errno.EACCES: f"give this user permission (`ls -ld` shows the owner), {OTHER_FOLDER}",
    errno.EPERM: f"give this user permission (`ls -ld` shows the owner), {OTHER_FOLDER}",
    errno.EROFS: f"mount the file system for writing, {OTHER_FOLDER}",
    errno.ENOSPC: f"free disk space (`df -h` shows it), {OTHER_FOLDER}",
    errno.EDQUOT: f"free disk space (`quota` shows your limit), {OTHER_FOLDER}",
    errno.ENOTDIR: "name a folder, or move the file that has its name",
    errno.EEXIST: "name a folder, or move the file that has its name",
    errno.EISDIR: "name a file",
    errno.ENOENT: "create it, or name another one",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EMFILE: "allow this user more open files: ulimit -n 4096",
    errno.ENFILE: "allow more open files: sysctl fs.file-max",
    errno.ENOMEM: "free some memory",
}
"""Remedies by error number; an error that is not listed is a defect."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors from a missing resource: the same command may succeed later."""


def explain(error: OSError) -> tuple[str, str] | None:
    """Return the message and the remedy for an error of the operating system; None if an operator cannot fix it."""
    if error.errno == errno.ENOENT and not error.filename:
        return "the working directory no longer exists", "change to a folder that exists"
    fix = FIXES.get(error.errno or 0)
    if fix is None:
        return None
    reason = os.strerror(error.errno or 0).lower()
    return f"`{os.fsdecode(error.filename)}`: {reason}" if error.filename else reason, fix


class Failed(Exception):
    """A command or a request failed; `kind` is the API's name of the reason, `hint` says how to fix it."""

    status: int | None = None
    """HTTP status of the answer; None if there was no answer."""
    retry_after_s: float | None = None
    """Seconds after which the server accepts the request again."""
    field: str | None = None
    """Path of the invalid field, such as `params.gate.tau`."""
    line: int | None = None
    """Number of the invalid line of an upload, from 1."""
    others: tuple[str, ...] = ()
    """Messages about further invalid lines of an upload."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[type["Failed"], tuple[str, str, str | None], dict[str, object]]:
        """Support pickling, so that the error can pass between processes."""
        return type(self), (self.kind, self.message, self.hint), self.__dict__


class BadRequest(Failed):
    """A header, cursor or body cannot be read."""


class Unauthorized(Failed):
    """The server requires an API key, and the key is missing or invalid."""


class Forbidden(Failed):
    """The API key lacks the required scope."""


class NotFound(Failed):
    """No object has this name or id."""


class Conflict(Failed):
    """The name is taken, or the state does not allow it."""


class PreconditionFailed(Failed):
    """The object has changed since the client read it."""


class TooLarge(Failed):
    """The request or answer is larger than the operator, or this client, allows."""


class Invalid(Failed):
    """A value cannot be used; `field` or `line` names it."""


class TooMany(Failed):
    """More requests run at once than the operator allows; try again later."""


class Unavailable(Failed):
    """A service or the database is unavailable, or the server is overloaded; try again later."""


class Unreachable(Failed):
    """No complete answer arrived."""

    never_sent = False
    """The server certainly received nothing of the request."""
    ran_out_of_time = False
    """The server was silent for longer than the client waits."""


class Incompatible(Failed):
    """The server is not MathRAG-Gate, or its release sends answers that this client cannot read."""


class TimedOut(Failed, TimeoutError):
    """The job or experiment did not end within the caller's time limit."""


class JobFailed(Failed):
    """The job failed or was cancelled while the client waited for it."""


class MissingPackage(Failed, ImportError):
    """An optional package that this method needs is not installed."""


class Shown(Exception):
    """The request was printed instead of sent, so there is no answer."""


KINDS: dict[str, type[Failed]] = {
    "bad_request": BadRequest, "unauthorized": Unauthorized, "forbidden": Forbidden, "not_found": NotFound,
    "timed_out": TimedOut, "conflict": Conflict, "in_progress": Conflict, "unreadable": Conflict,
    "precondition_failed": PreconditionFailed, "precondition_required": PreconditionFailed, "too_large": TooLarge,
    "invalid": Invalid, "invalid_line": Invalid, "idempotency_mismatch": Invalid, "too_many": TooMany,
    "unavailable": Unavailable, "refused": Unavailable, "out_of_space": Unavailable,
    "not_installed": MissingPackage,
}  # fmt: skip
"""Exceptions by the kind of the problem."""
STATUSES: dict[int, type[Failed]] = {
    400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 412: PreconditionFailed,
    413: TooLarge, 422: Invalid, 428: PreconditionFailed, 429: TooMany, 502: Unavailable, 503: Unavailable,
    504: Unavailable, 507: Unavailable,
}  # fmt: skip
"""Exceptions by status, for kinds that only later releases know and for answers of proxies."""


def make_failed(status: int, kind: str, message: str, hint: str | None = None) -> Failed:
    """Return the exception for an answer with this status and this kind of problem."""
    found = KINDS.get(kind) or STATUSES.get(status, Failed)
    failed = found(kind, message, hint)
    failed.status = status
    return failed


def failure(error: Exception) -> Failed:
    """Convert any error to `Failed`; an error that neither the user nor the machine caused is a defect ("internal")."""
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
    """Import and return a package that `method` needs.

    Raises:
        MissingPackage: the package is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        message = f"`{method}` needs {package}, which is not installed"
        raise MissingPackage("not_installed", message, hint=install_command("mathrag[frames]")) from error
