"""Find the files with the MATH problems of a run, and choose the questions."""

from collections.abc import Sequence
from pathlib import Path

from mathrag.errors import Invalid, NotFound
from mathrag.reading import paths
from shared.ingest.datasets import draw_stratified, read_dataset
from shared.samples import DatasetItem

CORPUS = ("train.jsonl", "train.parquet", "train-00000-of-00001.parquet", "train")
"""Names of the training set in order of preference; the last name is a folder of the original archive."""
QUESTIONS = (
    "test.jsonl", "math500.jsonl", "MATH-500.jsonl", "test.parquet", "test-00000-of-00001.parquet", "test-dev.jsonl",
    "test",
)  # fmt: skip
SEED = 1
"""Random seed for choosing questions. It is fixed, so that equal numbers of questions are the same questions."""
EXPECTED = "docs/how-to/math.md lists the files; --corpus and --questions name single files"


def find(data: Path | None, corpus: Path | None, questions: Path | None) -> tuple[Path, Path]:
    """Return the paths of corpus and questions: the given paths, or those found in the folder `data`.

    Raises:
        NotFound: a path is missing; the hint names its option.
    """
    return corpus or _find_in(data, CORPUS, "--corpus"), questions or _find_in(data, QUESTIONS, "--questions")


def _find_in(data: Path | None, names: Sequence[str], option: str) -> Path:
    if data is None:
        raise NotFound("no folder with problems is given", hint=f"add --data DIR, or {option} FILE; {EXPECTED}")
    found = next((data / name for name in names if (data / name).exists()), None)
    if found is None:
        raise NotFound(f"{data} contains none of {', '.join(names)}", hint=f"add {option} FILE; {EXPECTED}")
    return found


def choose(questions: Path, count: int) -> list[DatasetItem]:
    """Read the questions and choose `count` of them in proportion to the subjects.

    Raises:
        Invalid: the file has fewer questions, or some have no gold answer.
    """
    every = list(read_dataset(paths.dataset_lines(questions)))
    if unanswered := sum(item.gold is None for item in every):
        raise Invalid(f"{questions}: {unanswered} of its {len(every)} questions have no gold answer", hint=EXPECTED)
    if count > len(every):
        raise Invalid(
            f"--items {count}: {questions} has only {len(every)} questions", hint=f"use --items {len(every)} or less"
        )
    positions = draw_stratified([item.subject or "unknown" for item in every], count, SEED)
    return [every[position] for position in positions]
