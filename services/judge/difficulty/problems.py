"""Read the problems of MATH with their levels, and split them into a part to fit to and a held-out part."""

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
"""Number of parts, of which one is held out."""


class MathProblem(NamedTuple):
    """A problem, of which the classifier sees only the text."""

    id: str
    text: str
    subject: str
    level: int

    @property
    def hard(self) -> bool:
        """Whether its level is `HARD` or above."""
        return self.level >= HARD


class ProblemSplit(NamedTuple):
    """Separates the problems to fit to from those to measure on; no problem is in both."""

    fitted: list[MathProblem]
    held_out: list[MathProblem]


def read_problems(path: Path) -> list[MathProblem]:
    """Read the problems of a file in MATH-500's format, without those of "Level ?" (two in MATH)."""
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return [
        MathProblem(row["unique_id"], row["problem"], row["subject"], int(row["level"][-1]))
        for row in rows
        if row["level"][-1].isdigit()
    ]


def split_problems(problems: Sequence[MathProblem]) -> ProblemSplit:
    """Split every subject and level in the same proportion, deterministically by the SHA-256 of the problems' ids."""
    strata: defaultdict[tuple[str, int], list[MathProblem]] = defaultdict(list)
    for problem in problems:
        strata[problem.subject, problem.level].append(problem)
    held_out = {problem.id for stratum in strata.values() for problem in _choose_held_out(stratum)}
    return ProblemSplit(
        [problem for problem in problems if problem.id not in held_out],
        [problem for problem in problems if problem.id in held_out],
    )


def _choose_held_out(stratum: Sequence[MathProblem]) -> list[MathProblem]:
    drawn = sorted(stratum, key=lambda problem: sha256(problem.id.encode()).digest())
    return drawn[: round(len(stratum) / FOLDS)]
