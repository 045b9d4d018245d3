"""Experiments: grids of jobs."""

from typing import Literal, TypedDict

from mathrag.client.jobs import Counts
from mathrag.client.request import Json, Page, Request, once, segment

PATH = "/v1/experiments"
ENDED = ("completed", "failed", "cancelled", "purged")


class Experiment(TypedDict):
    """An experiment as it is now; `grid` has its cells where it is asked for alone."""

    id: str
    name: str
    state: str
    cells: int
    jobs: dict[str, int]
    """How many in each state."""
    request_counts: Counts
    eta_seconds: float | None
    grid: list[Json]
    created_at: str
    ended_at: str


def at(reference: str) -> str:
    """The path of an experiment, by its name, its id, or the first characters of the id."""
    return f"{PATH}/{segment(reference)}"


def plan(document: Json) -> Request[Json]:
    """What it would come to."""
    return Request(method="POST", path=f"{PATH}/plan", body=document)


def submit(document: Json, key: str | None = None) -> Request[Experiment]:
    """All its jobs; with the same key again it is the same experiment."""
    return Request(method="POST", path=PATH, body=document, headers=once(key))


def listed(limit: int) -> Request[Page[Experiment]]:
    """Newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(reference: str) -> Request[Experiment]:
    """The experiment as it is now, with every cell."""
    return Request(path=at(reference))


def change(reference: str, verb: Literal["cancel", "resume"]) -> Request[Experiment]:
    """The experiment after it was cancelled or resumed."""
    return Request(method="POST", path=f"{at(reference)}/{verb}")


def report(reference: str, measure: str | None = None) -> Request[Json]:
    """A row for each cell, and what differs; None: by accuracy."""
    return Request(path=f"{at(reference)}/report", query={"measure": measure})
