"""Show the progress of jobs, mining and uploads, as lines or bars."""

from collections.abc import Iterable
from typing import Protocol, Self

import typer

from mathrag.cli.output import summarise
from mathrag.client.client import Client
from mathrag.client.jobs import Job
from mathrag.client.uploads import Sources
from mathrag.client.waiting import follow_job

# A job's progress: bars with an ETA per stage on a terminal, one line per change elsewhere.


class View(Protocol):
    """Shows the state of a job."""

    def show(self, job: Job) -> None:
        """Show the job's state; `watch` calls this after every poll."""

    def close(self) -> None:
        """Close the display: the job has ended, or the command was interrupted."""


def watch(client: Client, job: str, view: View) -> Job:
    """Poll the job until it has ended, and return its last state."""
    try:
        for found in follow_job(client, job):
            view.show(found)
    finally:
        view.close()
    return found


def choose_view() -> View:
    """Return bars if standard output is a terminal, otherwise lines."""
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
        """Do nothing."""


# An upload's progress: the number of sent lines, then the time of storing and indexing.


class UploadView(Protocol):
    """Shows an upload while it is sent, stored and indexed; a context."""

    def follow(self, sources: Sources) -> Iterable[bytes]:
        """Return the lines to send, and show their number while they are read."""

    def __enter__(self) -> Self:
        """Start the display."""

    def __exit__(self, *_: object) -> None:
        """Close the display: the server has answered, or the upload has failed."""


class SilentUpload:
    """Shows nothing, for --json and if standard error is not a terminal."""

    def follow(self, sources: Sources) -> Iterable[bytes]:
        """Return the lines."""
        return sources

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


def choose_upload_view(what: str, then: str, *, as_json: bool) -> UploadView:
    """Return the view of an upload on standard error.

    Args:
        what: the noun of the lines, such as "documents".
        then: the server's work after the last line, such as "storing and indexing".
        as_json: show nothing.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return SilentUpload()

    from mathrag.cli.progress_bars import UploadBar

    return UploadBar(console, what, then)
