"""Progress bars of a job, of an upload, and of a command with several steps."""

import time
from collections.abc import Iterator
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from mathrag.cli.output import describe_waits
from mathrag.client.jobs import Job
from mathrag.client.uploads import Sources
from mathrag.formatting import format_duration


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
        """Move the bars, and print the services that the job waits for when they change."""
        for role, stage in job.get("stages", {}).items():
            self._move(role, stage["done"], stage["total"])
        counts = job["request_counts"]
        self._move("samples", counts["total"] - counts["in_progress"], counts["total"])
        if (waiting := describe_waits(job)) != self._waits:
            self._waits = waiting
            self._progress.console.print("\n".join(waiting) or "all services are available again", highlight=False)

    def close(self) -> None:
        """Stop updating; the bars remain on the screen."""
        self._progress.stop()

    def _move(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


EVERY = 100
"""Number of lines between two updates of an upload's display."""


class UploadBar:
    """Shows the number of sent lines, then the time of storing and indexing."""

    def __init__(self, console: Console, what: str, then: str) -> None:
        self._what = what
        self._then = then
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task(f"reading {what}", total=None)

    def follow(self, sources: Sources) -> Iterator[bytes]:
        """Yield the lines, and show the number of sent lines."""
        for line in sources:
            yield line
            if sources.sent % EVERY == 0:
                self._progress.update(self._task, description=f"sent {sources.sent:,} {self._what}")
        self._progress.update(self._task, description=f"{self._then} {sources.sent:,} {self._what}")

    def __enter__(self) -> Self:
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line; the command then prints the result."""
        self._progress.stop()


LINE_EVERY = 0.25
"""Share of the whole time between two lines about the same step, if the output is not a terminal."""


class Steps:
    """Shows the step of a long command and the estimated time left; a context manager.

    A terminal shows one line, which is removed at the end. Any other output gets a few lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace_from: tuple[float, float] | None = None
        """Share and time at which the measurement of the pace starts; the first step is not measured."""
        self._printed = ("", 0.0)
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _TimeLeft(),
            console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=1.0, ends=None)

    def show(self, step: str, done: float) -> None:
        """Show the step; `done` is the share of the whole time that has passed, from 0 to 1."""
        now = time.monotonic()
        if self._pace_from is None and done:
            self._pace_from = (done, now)
        began_at, began = self._pace_from or (done, now)
        ends = now + (now - began) * (1 - done) / (done - began_at) if done > began_at else None
        self._progress.update(self._task, description=step, completed=done, ends=ends)
        name, printed = self._printed
        if not self._console.is_terminal and (step != name or done - printed >= LINE_EVERY):
            print(f"{done:4.0%}  {step} {format_time_left(ends)}".rstrip(), file=self._console.file, flush=True)
            self._printed = (step, done)

    def __enter__(self) -> Self:
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        self._progress.stop()


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(format_time_left(task.fields["ends"]))


def format_time_left(ends: float | None) -> str:
    """Return text such as "(about 40 s left)", for an end on the monotonic clock; "" if the end is unknown."""
    return "" if ends is None else f"(about {format_duration(max(1.0, ends - time.monotonic()))} left)"
