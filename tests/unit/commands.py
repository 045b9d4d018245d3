"""Commands run in this process, and servers that answer them as a test says."""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import httpx2
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from mathrag.cli.main import app

Handler = Callable[[httpx2.Request], httpx2.Response]
Server = Callable[[Handler], list[httpx2.Request]]
COUNTS = {"total": 2, "completed": 0, "failed": 0, "cancelled": 0, "in_progress": 2}
JOB: dict[str, Any] = {
    "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "first", "state": "running", "pipeline": "dense",
    "dataset": "d", "corpus": None, "reason": None, "gate": None, "request_counts": COUNTS, "stages": {},
}  # fmt: skip


def command_of(*words: str) -> Any:
    """The command that these words call, loaded, with its options."""
    found: Any = get_command(app)
    for word in words:
        _, found, _ = found.resolve_command(found.make_context("mathrag", [], resilient_parsing=True), [word])
    return found


def mathrag(*arguments: str) -> Result:
    """Run a command, in a context of its own: what it was asked to show instead of sending is not the next one's."""
    return copy_context().run(CliRunner().invoke, app, arguments)


def job(state: str, done: int = 0) -> dict[str, Any]:
    """A job in this state, with `done` of its two samples completed."""
    return {**JOB, "state": state, "request_counts": {**COUNTS, "completed": done, "in_progress": 2 - done}}


def says(value: Any, status: int = 200) -> Handler:
    """A server that always answers this."""
    return lambda _: httpx2.Response(status, json=value)


def refuses(status: int, kind: str, detail: str, hint: str | None = None) -> Handler:
    """A server that always answers with this problem."""
    return says({"type": f"urn:mathrag:{kind}", "detail": detail, "hint": hint}, status)
