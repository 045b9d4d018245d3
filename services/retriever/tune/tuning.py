"""The course of a tuning, whatever is tuned: epochs, and the best one kept."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from services.retriever.tune import report
from services.retriever.tune.pairs import Query
from services.retriever.tune.report import Epoch


class Tuning(Protocol):
    """An embedder whose query side is trained, among the documents that it was made with."""

    def epochs(self, train: Sequence[Query], dev: Sequence[Query]) -> Iterator[Epoch]:
        """Train; yields what the dev part says before the first epoch and after each."""

    def save(self, out: Path) -> None:
        """Write the embedder as it is now."""

    def measure(self, queries: Sequence[Query], folder: Path | None = None) -> float:
        """R@10 of the embedder in `folder`, or as it is now; there are some queries."""


def run(tuning: Tuning, train: Sequence[Query], dev: Sequence[Query], out: Path) -> list[Epoch]:
    """Train, print a line an epoch, and write the best epoch; of equals the first.

    Raises:
        SystemExit: no epoch is better than none.
    """
    print(report.HEADING, flush=True)  # noqa: T201 - a script's progress
    passed: list[Epoch] = []
    for epoch in tuning.epochs(train, dev):
        print(report.line(epoch), flush=True)  # noqa: T201
        if passed and epoch.recall > best(passed).recall:
            tuning.save(out)
        passed.append(epoch)
    if not best(passed).number:
        raise SystemExit("no epoch is better than the embedder as it was, so nothing is written: try another --rate")
    return passed


def best(epochs: Sequence[Epoch]) -> Epoch:
    """The one with the highest R@10, of equals the first."""
    return max(epochs, key=lambda epoch: epoch.recall)
