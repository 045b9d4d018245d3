"""Comparisons of jobs."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from mathrag.client import jobs
from mathrag.client.answers import ChangedSample, Comparison, SideBySide
from mathrag.client.operations import C, Group, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request, Value

PATH = "/v1/comparison"


class HasId(Protocol):
    """A job as an object."""

    @property
    def id(self) -> str:
        """The id by which the API finds the job."""
        ...


def compare(
    references: Sequence[str | HasId], *, baseline: str | None = None, measure: str | None = None
) -> Request[Any]:
    """Compare jobs on the items that they have in common, with intervals and tests.

    Args:
        references: at least two jobs, as objects or by id or name.
        baseline: the job that all others are compared with; None compares each pair.
        measure: "accuracy" (the default), "exact", "score" or "answer@K".
    """
    return jobs.compare(list(map(reference_of, references)), baseline, measure)


def samples(
    left: str | HasId, right: str | HasId, *, only: Literal["changed", "gained", "lost"] = "changed"
) -> Request[Any]:
    """List the samples that exactly one of two jobs has right; "gained" are those that `left` has right."""
    query: dict[str, Value] = {
        "left": reference_of(left),
        "right": reference_of(right),
        "only": only,
        "limit": MOST_OF_A_PAGE,
    }
    return Request(path=f"{PATH}/samples", query=query)


def sample(left: str | HasId, right: str | HasId, index: int, *, repeat: int = 0) -> Request[Any]:
    """Fetch sample `index` of the left job beside the right job's sample of the same question."""
    return Request(
        path=f"{PATH}/samples/{index}",
        query={"left": reference_of(left), "right": reference_of(right), "repeat": repeat},
    )


def reference_of(job: str | HasId) -> str:
    """Return the id or name by which the API finds a job."""
    return job if isinstance(job, str) else job.id


class Comparisons(Group[C]):
    """Comparisons of jobs."""

    compare = Operation(compare, Comparison)
    samples = Listing(samples, ChangedSample)
    sample = Operation(sample, SideBySide)
