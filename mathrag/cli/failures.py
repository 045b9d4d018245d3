"""Exit codes and error messages of commands. The table of exit codes does not change: scripts may rely on it.

Errors go to stderr: `error: MESSAGE` and `  fix: HINT`; with --json as {"error": {"kind", "message", "hint"}}.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import msgspec
import typer

from mathrag.client.errors import Failed, Shown, failure


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    """Done."""
    FINDING = 1
    """A finding: a job failed or was cancelled, an audit or the doctor found something, lines of an upload were left
    out, nothing runs."""
    USAGE = 2
    """The command line is wrong, or the server or this installation has not what it asks for."""
    NOT_FOUND = 3
    """Nothing has this name or id."""
    INVALID = 4
    """The input is invalid; the message names the field, or file and line."""
    CONFLICT = 5
    """A conflict: the name is taken, the id ambiguous, the state another one, or another release wrote it."""
    UNREACHABLE = 6
    """Not now: the server, or something it needs, is away or has too much to do."""
    INTERNAL = 7
    """An error of ours."""
    REFUSED = 8
    """Refused: the API key is missing, not valid, or may not do this."""
    INTERRUPTED = 130
    """Interrupted; what was submitted goes on."""


CODES = {
    "usage": Exit.USAGE,
    "not_implemented": Exit.USAGE,
    "not_installed": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "bad_request": Exit.INVALID,
    "invalid": Exit.INVALID,
    "invalid_line": Exit.INVALID,
    "too_large": Exit.INVALID,
    "header_too_large": Exit.INVALID,
    "conflict": Exit.CONFLICT,
    "in_progress": Exit.CONFLICT,
    "unreadable": Exit.CONFLICT,
    "idempotency_mismatch": Exit.CONFLICT,
    "precondition_failed": Exit.CONFLICT,
    "precondition_required": Exit.CONFLICT,
    "unavailable": Exit.UNREACHABLE,
    "out_of_space": Exit.UNREACHABLE,
    "refused": Exit.UNREACHABLE,
    "unreachable": Exit.UNREACHABLE,
    "too_many": Exit.UNREACHABLE,
    "timed_out": Exit.UNREACHABLE,
    "internal": Exit.INTERNAL,
    "unauthorized": Exit.REFUSED,
    "forbidden": Exit.REFUSED,
}
"""Every kind of error there is; one that a newer server has made up counts as internal."""


SETTINGS_READERS = ("pydantic_core", "pydantic_settings", "yaml")
"""Packages whose exceptions say that settings are wrong."""


OWN = ("mathrag", "migrations", "services", "shared", "tools")
"""Our packages: a module of theirs that is missing is a defect, one of others was not installed."""


@contextmanager
def report_errors(*, as_json: bool, extra: str = "server") -> Iterator[None]:
    """Turn an error into a message on stderr and an exit code.

    `extra` is the extra that installs the packages which the command needs.
    """
    try:
        yield
    except Shown:
        raise typer.Exit(Exit.DONE) from None
    except BrokenPipeError:
        # The reader has seen enough (`| head`); flushing at exit must not complain either.
        sys.stderr.close()
        raise typer.Exit(Exit.DONE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - a defect of ours has an exit code too
        _end(_to_failure(error, extra), as_json=as_json)


def is_not_installed(error: Exception) -> bool:
    """Tell whether the error says that a third-party package is not installed."""
    return isinstance(error, ModuleNotFoundError) and _top_package(error.name or "") not in OWN


def _top_package(module: str) -> str:
    return module.partition(".")[0]


def _to_failure(error: Exception, extra: str) -> Failed:
    """Return any error as one that has a message, a hint and a kind of the table."""
    if isinstance(error, ModuleNotFoundError) and is_not_installed(error):
        from shared.extras import not_installed

        return failure(not_installed(_top_package(error.name or ""), extra))
    # Only a command that loaded settings can get these errors, so the imports below cost nothing extra.
    if _top_package(type(error).__module__) in SETTINGS_READERS:
        from mathrag.cli.config_findings import REFUSALS, explain

        if isinstance(error, REFUSALS):
            return Failed("invalid", str(explain(error)[0]), hint="mathrag config validate")
    return failure(error)


def exit_code(failed: Failed) -> Exit:
    """Return the exit code of an error; kinds that a newer server adds count as internal."""
    return CODES.get(failed.kind, Exit.INTERNAL)


def _end(failed: Failed, *, as_json: bool) -> None:
    if as_json:
        error = {"kind": failed.kind, "message": failed.message, "hint": failed.hint}
        typer.echo(msgspec.json.encode({"error": error}).decode(), err=True)
    else:
        typer.echo(f"error: {failed.message}", err=True)
        if failed.hint:
            typer.echo(f"  fix: {failed.hint}", err=True)
    raise typer.Exit(exit_code(failed)) from None
