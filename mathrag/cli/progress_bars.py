"""Progress bars of a job on a terminal, with an ETA for each stage."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mathrag.cli.output import describe_waits
from mathrag.client.jobs import Job


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
