"""`mathrag down` and `mathrag status`: stop and show the embedded stack on this machine."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import Exit, report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.client import stack_state
from mathrag.client.data_dir import data_dir as configured_data_dir
from mathrag.stack import disk_space, lock

STOP_S = 120.0
POLL_S = 0.1

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory of the stack (default: .mathrag).")]


def down(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Stop the stack that `mathrag up` started; its data are kept."""
    with report_errors(as_json=as_json):
        directory = resolve_directory(data_dir)
        pid = lock.find_holder(directory)
        if pid is not None:
            if not as_json:
                typer.echo(f"Stopping {directory} ...")
            _end(pid, directory)
        if as_json:
            print_json({"stopped": pid is not None, "data_dir": str(directory)})
        elif pid is None:
            typer.echo(f"Nothing runs on {directory}.")
        else:
            typer.echo(f"Stopped. The data stay in {directory}; `mathrag up` continues there.")


def _end(pid: int, directory: Path) -> None:
    # A killed supervisor takes its children along (parent-death signal); committed data are safe even then.
    for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while lock.find_holder(directory) == pid and time.monotonic() < deadline:
            time.sleep(POLL_S)


def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the processes of the stack, their ports and restarts; exits with 1 when nothing runs."""
    with report_errors(as_json=as_json):
        directory = resolve_directory(data_dir)
        running = lock.find_holder(directory) is not None
        last = stack_state.read(directory) if running else None
        warning = disk_space.check_space(directory) if running else None
        if as_json:
            print_json({"running": running, "data_dir": str(directory), "warning": warning, "stack": last})
        elif running:
            typer.echo(_make_table(last) if last else f"Starting on {directory}.")
            typer.echo(f"\nwarning: {warning}; the table may be old" if warning else "", nl=bool(warning))
        else:
            typer.echo(f"Nothing runs on {directory}. Start it with `mathrag up`.")
        raise typer.Exit(Exit.DONE if running else Exit.FINDING)


def resolve_directory(given: Path | None) -> Path:
    """Return the given data directory, or the configured one, as an absolute path."""
    return (given or configured_data_dir()).absolute()


def _make_table(now: stack_state.State) -> str:
    title = f"{now.phase} at {now.url} (supervisor {now.pid})"
    return "\n".join(
        [title, "", _format_row("NAME", "PHASE", "PID", "PORT", "RESTARTS"), *map(_format_child, now.children)]
    )


def _format_child(child: stack_state.ChildState) -> str:
    return _format_row(child.name, child.phase, child.pid or "-", child.port or "-", child.restarts)


def _format_row(name: str, phase: str, pid: object, port: object, restarts: object) -> str:
    return f"  {name:<14}{phase:<14}{pid!s:>8}{port!s:>8}{restarts!s:>10}"
