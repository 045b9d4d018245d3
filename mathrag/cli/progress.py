"""Show how jobs, mining and searches progress, as lines or bars."""

from collections.abc import Iterable
from typing import Protocol, Self

import typer

from mathrag.cli.output import summarise
from mathrag.client.client import Client
from mathrag.client.jobs import Job
from mathrag.client.uploads import Sources
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


# Show how far an upload is: what was sent, then how long it has been stored and indexed.


class UploadView(Protocol):
    """Shows an upload while it is sent, stored and indexed; a context."""

    def follow(self, sources: Sources) -> Iterable[bytes]:
        """Return the lines to send, whose number is shown as they are read."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *_: object) -> None:
        """End the display: the server has answered, or the upload has failed."""


class SilentUpload:
    """Shows nothing, for --json and where standard error is no terminal."""

    def follow(self, sources: Sources) -> Iterable[bytes]:
        """Return the lines."""
        return sources

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


def choose_upload_view(what: str, then: str, *, as_json: bool) -> UploadView:
    """Return the view of an upload of `what`, such as "documents", which the server is `then` "storing"; it is on
    standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return SilentUpload()

    from mathrag.cli.progress_bars import UploadBar

    return UploadBar(console, what, then)
