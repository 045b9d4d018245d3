"""Run a tuning: train epochs, and keep the best one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from services.retriever.tune import report
from services.retriever.tune.pairs import TrainingQuery
from services.retriever.tune.recall import Recall
from services.retriever.tune.report import Epoch


class QueryTuning(Protocol):
    """An embedder whose query side is trained, among the documents that it was made with."""

    def epochs(self, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery]) -> Iterator[Epoch]:
        """Train, and yield the dev part's figures before the first epoch and after each."""

    def save(self, out: Path) -> None:
        """Write the embedder as it is now."""

    def measure(self, queries: Sequence[TrainingQuery], folder: Path | None = None) -> Recall:
        """Measure R@10 of the embedder in `folder`, or as it is now; there must be a query."""


def run(tuning: QueryTuning, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery], out: Path) -> list[Epoch]:
    """Train, print a line per epoch, and write the best epoch, the first among equals.

    Raises:
        SystemExit: no epoch is better than none.
    """
    print(report.HEADING, flush=True)  # noqa: T201 - a script's progress
    passed: list[Epoch] = []
    for epoch in tuning.epochs(train, dev):
        print(report.format_epoch(epoch), flush=True)  # noqa: T201
        if passed and epoch.recall.question > find_best(passed).recall.question:
            tuning.save(out)
        passed.append(epoch)
    if not find_best(passed).number:
        raise SystemExit("no epoch improved the embedder, so nothing is written: try another --rate")
    return passed


def find_best(epochs: Sequence[Epoch]) -> Epoch:
    """Return the epoch with the highest R@10 of questions, the first among equals."""
    return max(epochs, key=lambda epoch: epoch.recall.question)
