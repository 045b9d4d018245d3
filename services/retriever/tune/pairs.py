"""Read training pairs from a file: each line has a question with a rule, its oracle documents and negatives."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST_LINES = 200_000
"""Upper bound of a file's lines."""
MOST_DOCUMENTS = 200_000
"""Upper bound of distinct documents in memory; their vectors take 290 MiB."""
Numbers = NDArray[np.int64]


class TrainingPair(msgspec.Struct, frozen=True):
    """A line of `mathrag dataset training-data --as pairs`."""

    query: str
    rule: str
    positives: tuple[str, ...]
    """The documents that the rule leads to."""
    negatives: tuple[str, ...] = ()
    """Documents of the same entity or relation that lead to no answer."""

    @property
    def text(self) -> str:
        """Return the query that is embedded: the question and the rule."""
        return f"{self.query} {self.rule}"


class NumberedDocuments:
    """Distinct texts, numbered in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """Return the texts, in the order of their numbers."""
        return list(self._numbers)

    def numbers(self, texts: Sequence[str]) -> Numbers:
        """Return the sorted numbers of the texts; new texts are added.

        Raises:
            SystemExit: there are too many.
        """
        found = sorted({self._numbers.setdefault(text, len(self._numbers)) for text in texts})
        if len(self._numbers) > MOST_DOCUMENTS:
            raise SystemExit(f"more than {MOST_DOCUMENTS} different documents: make the file shorter with --limit")
        return np.array(found, dtype=np.int64)


class TrainingQuery(NamedTuple):
    """A question with a rule; documents are given by number."""

    text: str
    question: str
    positives: Numbers
    """Documents of this rule."""
    oracle: Numbers
    """Documents of all rules of the question."""
    negatives: Numbers
    """Documents that are compared with the positive, in addition to those of the batch."""


def read(path: Path, documents: NumberedDocuments) -> list[TrainingQuery]:
    """Read the queries of a file, and add their documents to `documents`.

    Raises:
        SystemExit: a line is no pair, has no positive document, or there are none or too many.
    """
    found: list[tuple[str, str, Numbers, Numbers]] = []
    oracle: defaultdict[str, set[int]] = defaultdict(set)
    for pair in _pairs(path):
        positives = documents.numbers(pair.positives)
        oracle[pair.query].update(positives.tolist())
        found.append((pair.text, pair.query, positives, documents.numbers(pair.negatives)))
    known = {question: np.array(sorted(numbers), dtype=np.int64) for question, numbers in oracle.items()}
    return [TrainingQuery(text, question, own, known[question], negatives) for text, question, own, negatives in found]


def _pairs(path: Path) -> Iterator[TrainingPair]:
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > MOST_LINES:
                raise SystemExit(f"{path} has more than {MOST_LINES} lines: make it again with --limit")
            where = f"{path}:{number}"
            try:
                pair = msgspec.json.decode(line, type=TrainingPair)
            except msgspec.DecodeError as error:
                raise SystemExit(
                    f"{where}: {error}; lines are made by `mathrag dataset training-data NAME --as pairs`"
                ) from error
            if not pair.positives:
                raise SystemExit(f"{where}: `positives` is empty; name the documents that the rule leads to")
            yield pair
    if number == 0:
        raise SystemExit(f"{path} is empty: make it with `mathrag dataset training-data NAME --as pairs`")


def split(queries: Sequence[TrainingQuery], share: float, seed: int) -> tuple[list[TrainingQuery], list[TrainingQuery]]:
    """Split into (train, dev): about this share of the questions goes to dev, at least one, and never all.

    Raises:
        SystemExit: all pairs are of one question.
    """
    questions = list(dict.fromkeys(query.question for query in queries))
    if len(questions) == 1:
        raise SystemExit("all pairs are of one question: at least two are needed, one of them to choose the epoch")
    count = min(max(1, round(len(questions) * share)), len(questions) - 1)
    chosen = set(np.random.default_rng(seed).permutation(questions)[:count].tolist())
    return (
        [query for query in queries if query.question not in chosen],
        [query for query in queries if query.question in chosen],
    )
