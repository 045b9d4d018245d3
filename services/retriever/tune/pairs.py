"""Training pairs from a file: a question with a rule in each line, its oracle documents and others."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST_LINES = 200_000
"""Of a file."""
MOST_DOCUMENTS = 200_000
"""Distinct ones in memory; their vectors take 290 MiB."""
Numbers = NDArray[np.int64]


class Pair(msgspec.Struct, frozen=True):
    """A line of `mathrag dataset training-data --as pairs`."""

    query: str
    rule: str
    positives: tuple[str, ...]
    """The documents that the rule leads to."""
    negatives: tuple[str, ...] = ()
    """Documents of the same entity or relation that lead to no answer."""

    @property
    def text(self) -> str:
        """What is searched for: the question and the rule."""
        return f"{self.query} {self.rule}"


class Documents:
    """Distinct texts, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """By number."""
        return list(self._numbers)

    def numbers(self, texts: Sequence[str]) -> Numbers:
        """Of the texts, sorted; new ones are added.

        Raises:
            SystemExit: there are too many.
        """
        found = sorted({self._numbers.setdefault(text, len(self._numbers)) for text in texts})
        if len(self._numbers) > MOST_DOCUMENTS:
            raise SystemExit(f"more than {MOST_DOCUMENTS} different documents: make the file shorter with --limit")
        return np.array(found, dtype=np.int64)


class Query(NamedTuple):
    """A question with a rule; documents by number."""

    text: str
    question: str
    positives: Numbers
    """Documents of this rule."""
    oracle: Numbers
    """Documents of all rules of the question."""
    negatives: Numbers
    """Documents that are compared with the positive beside those of the batch."""


def read(path: Path, documents: Documents) -> list[Query]:
    """The queries of a file, whose documents are added to `documents`.

    Raises:
        SystemExit: a line is no pair, has no positive document, or there are none or too many.
    """
    found = []
    oracle: defaultdict[str, set[int]] = defaultdict(set)
    for pair in _pairs(path):
        positives = documents.numbers(pair.positives)
        oracle[pair.query].update(positives.tolist())
        found.append((pair, positives, documents.numbers(pair.negatives)))
    known = {question: np.array(sorted(numbers), dtype=np.int64) for question, numbers in oracle.items()}
    return [
        Query(pair.text, pair.query, positives, known[pair.query], negatives) for pair, positives, negatives in found
    ]


def _pairs(path: Path) -> Iterator[Pair]:
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > MOST_LINES:
                raise SystemExit(f"{path} has more than {MOST_LINES} lines: make it again with --limit")
            yield _pair(line, f"{path}:{number}")
    if number == 0:
        raise SystemExit(f"{path} is empty: make it with `mathrag dataset training-data NAME --as pairs`")


def _pair(line: bytes, where: str) -> Pair:
    try:
        pair = msgspec.json.decode(line, type=Pair)
    except msgspec.DecodeError as error:
        raise SystemExit(
            f"{where}: {error}; lines are made by `mathrag dataset training-data NAME --as pairs`"
        ) from error
    if not pair.positives:
        raise SystemExit(f"{where}: `positives` is empty; name the documents that the rule leads to")
    return pair


def split(queries: Sequence[Query], share: float, seed: int) -> tuple[list[Query], list[Query]]:
    """(train, dev): about so large a share of the questions goes to dev, at least one, and never all.

    Raises:
        SystemExit: there is one question alone.
    """
    questions = list(dict.fromkeys(query.question for query in queries))
    if len(questions) == 1:
        raise SystemExit("the pairs are of one question alone: two are needed, one of them to choose the epoch")
    count = min(max(1, round(len(questions) * share)), len(questions) - 1)
    chosen = set(np.random.default_rng(seed).permutation(questions)[:count].tolist())
    return (
        [query for query in queries if query.question not in chosen],
        [query for query in queries if query.question in chosen],
    )
