"""Watching a job: bars with an ETA per stage on a terminal, one line per change elsewhere."""

from typing import Protocol

import typer

from mathrag.cli.job_state import summary
from mathrag.client.client import Client
from mathrag.client.following import follow_job
from mathrag.client.jobs import Job


class View(Protocol):
    """Shows a job as it is now."""

    def show(self, job: Job) -> None:
        """Called with every look at it."""

    def close(self) -> None:
        """Nothing more will come."""


def watch(client: Client, job: str, view: View) -> Job:
    """Look until the job has ended; returns it as it ended."""
    try:
        for found in follow_job(client, job):
            view.show(found)
    finally:
        view.close()
    return found


def view() -> View:
    """Bars where a person watches, lines elsewhere."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        return Lines()
    from mathrag.cli.progress_bars import Bars

    return Bars(console)


class Silent:
    """Shows nothing: for --json."""

    def show(self, job: Job) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """One line per change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, job: Job) -> None:
        """The job's state and counts, if they changed."""
        line = summary(job)
        if line != self._last:
            typer.echo(line)
            self._last = line

    def close(self) -> None:
        """Nothing to tidy up."""
