"""Progress bars of a job and of an upload on a terminal."""

from collections.abc import Iterator
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mathrag.cli.output import describe_waits
from mathrag.client.jobs import Job
from mathrag.client.uploads import Sources


class ProgressBars:
    """One bar per stage, and one for the samples."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn())
        self._progress = Progress(*columns, *times, console=console)
        self._tasks: dict[str, TaskID] = {}
        self._waits: list[str] = []
        self._progress.start()

    def show(self, job: Job) -> None:
        """Move the bars, and print what the job waits for when that changes."""
        for role, stage in job.get("stages", {}).items():
            self._move(role, stage["done"], stage["total"])
        counts = job["request_counts"]
        self._move("samples", counts["total"] - counts["in_progress"], counts["total"])
        if (waiting := describe_waits(job)) != self._waits:
            self._waits = waiting
            self._progress.console.print("\n".join(waiting) or "nothing is unavailable any more", highlight=False)

    def close(self) -> None:
        """Stop updating; the bars stay on the screen."""
        self._progress.stop()

    def _move(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


EVERY = 100
"""Number of lines after which the display of an upload moves."""


class UploadBar:
    """Shows the number of lines that were sent, then that they are stored and indexed, with the time."""

    def __init__(self, console: Console, what: str, then: str) -> None:
        self._what = what
        self._then = then
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task(f"reading {what}", total=None)

    def follow(self, sources: Sources) -> Iterator[bytes]:
        """Yield the lines, and show how many were sent."""
        for line in sources:
            yield line
            if sources.sent % EVERY == 0:
                self._progress.update(self._task, description=f"sent {sources.sent:,} {self._what}")
        self._progress.update(self._task, description=f"{self._then} {sources.sent:,} {self._what}")

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line: what was stored is printed."""
        self._progress.stop()
