"""What lists of jobs and samples can be narrowed by."""

from typing import Literal, TypedDict


class JobFilters(TypedDict, total=False):
    """Which jobs a list holds."""

    state: str
    pipeline: str
    dataset: str
    corpus: str
    name: str
    name_contains: str
    experiment: str
    submitted_by: str
    sort: Literal["newest", "name", "state"]


class SampleFilters(TypedDict, total=False):
    """Which samples a list holds; `differing`, `wrong` and `moved` as docs/how-to/api.md says."""

    state: Literal["ready", "waiting", "completed", "failed", "cancelled"]
    correct: bool
    ending: str
    subject: str
    level: str
    scored_by: str
    moved: bool
    text: str
    differing: bool
    wrong: bool
