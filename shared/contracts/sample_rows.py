"""A sample as lists, files and reports show it."""

from datetime import datetime

import msgspec


class SampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a job: the question and how it ended."""

    index: int
    """Position of the item in the dataset, from 0."""
    repeat: int
    custom_id: str | None
    question: str
    gold: str | None
    subject: str | None
    level: str | None
    state: str
    answer: str | None
    extraction: str | None
    truncated: bool
    correct: bool | None
    """Verdict of the job's grader; null if there is no gold answer, or no verdict."""
    strict: bool | None
    """Verdict of the strict rules; with a grader other than `math`, whether the answer equals a gold answer by
    characters."""
    grading_failure: str | None
    failure: str | None
    detail: str | None
    context: tuple[str, ...]
    """Hashes of the documents in the prompt, in order."""
    duplicates: int
    """Number of near-duplicates of the question that retrieval left out."""
    unscored: bool
    """Whether scoring was asked for and no candidate has a quality."""
    ended_at: datetime | None
    ending: str | None = None
    """`correct`, or what was wrong (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None = None
    """The rule that decided `ending`, with the facts that it used."""
    truncated_by: str | None = None
    """What ended a truncated text: `length`, `repetition`, `broken_byte`, `cut` or `content_filter`."""
    score: float | None = None
    """The degree by which `correct` was decided, if the grader has degrees: token F1, F1 of a set, or a rating from 1
    to 5."""
