"""Show how jobs, mining and searches progress, as lines or bars."""

from typing import Protocol

import typer

from mathrag.cli.output import summarise
from mathrag.client.client import Client
from mathrag.client.jobs import Job
from mathrag.client.waiting import follow_job

# Show a job's progress: bars with an ETA per stage on a terminal, one line per change elsewhere.


class View(Protocol):
    """Shows a job as it is now."""

    def show(self, job: Job) -> None:
        """Show the job as it is now; called after every poll."""

    def close(self) -> None:
        """End the display; the job has ended, or the command was interrupted."""


def watch(client: Client, job: str, view: View) -> Job:
    """Follow the job until it has ended, and return its last state."""
    try:
        for found in follow_job(client, job):
            view.show(found)
    finally:
        view.close()
    return found


def choose_view() -> View:
    """Return bars if standard output is a terminal, else lines."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        return ProgressLines()

    from mathrag.cli.progress_bars import ProgressBars

    return ProgressBars(console)


class Silent:
    """Shows nothing, for --json."""

    def show(self, job: Job) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ProgressLines:
    """Prints one line per change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, job: Job) -> None:
        """Print the job's state and counts if they have changed."""
        line = summarise(job)
        if line != self._last:
            typer.echo(line)
            self._last = line

    def close(self) -> None:
        """Do nothing: lines leave nothing to clean up."""
