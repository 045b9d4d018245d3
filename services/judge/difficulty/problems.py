"""Problems of MATH with their levels, and which of them the classifier is fitted to."""

import json
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

HARD = 4
"""The first level that is hard. Levels 1 to 3 against 4 and 5 is how easy-to-hard generalisation is studied on MATH
(Sun et al. 2024, "Easy-to-Hard Generalization"), and it splits the training part nearly in half (47 to 53 %), so that
a probability of 1/2 means something and no class is learned from few examples."""
FOLDS = 5
"""One of so many parts is held out."""


class Problem(NamedTuple):
    """A problem as the classifier knows it: all it sees is the text."""

    id: str
    text: str
    subject: str
    level: int

    @property
    def hard(self) -> bool:
        """Whether its level is `HARD` or above."""
        return self.level >= HARD


class Split(NamedTuple):
    """Problems to fit to, and problems to measure on."""

    fitted: list[Problem]
    held_out: list[Problem]


def read(path: Path) -> list[Problem]:
    """The problems of a file in MATH-500's format; those of "Level ?" (two in MATH) are left out."""
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return [
        Problem(row["unique_id"], row["problem"], row["subject"], int(row["level"][-1]))
        for row in rows
        if row["level"][-1].isdigit()
    ]


def split(problems: Sequence[Problem]) -> Split:
    """Every subject and level is split alike, by the SHA-256 of the problems' ids: no random generator, no order."""
    strata: defaultdict[tuple[str, int], list[Problem]] = defaultdict(list)
    for problem in problems:
        strata[problem.subject, problem.level].append(problem)
    held_out = {problem.id for stratum in strata.values() for problem in _held_out(stratum)}
    return Split(
        [problem for problem in problems if problem.id not in held_out],
        [problem for problem in problems if problem.id in held_out],
    )


def _held_out(stratum: Sequence[Problem]) -> list[Problem]:
    drawn = sorted(stratum, key=lambda problem: sha256(problem.id.encode()).digest())
    return drawn[: round(len(stratum) / FOLDS)]
