"""Requests for experiments, which are grids of jobs."""

from typing import Literal, TypedDict

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
    request_counts: dict[str, int]
    eta_seconds: float | None
    grid: list[Json]
    created_at: str
    ended_at: str


def at(reference: str) -> str:
    """Return the path of an experiment, named by its name, its id, or the first characters of the id."""
    return f"{PATH}/{segment(reference)}"


def plan(document: Json) -> Request[Json]:
    """Request the numbers of jobs, samples and calls and the time of an experiment, without submitting it."""
    return Request(method="POST", path=f"{PATH}/plan", body=document, is_idempotent=True)


def submit(document: Json, key: str | None = None) -> Request[Experiment]:
    """Submit all jobs of an experiment; a second request with the same key returns the same experiment."""
    return Request(method="POST", path=PATH, body=document, headers=once(key))


def list_experiments(limit: int) -> Request[Page[Experiment]]:
    """Request a page of experiments, newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(reference: str) -> Request[Experiment]:
    """Request the present state of an experiment, with every cell."""
    return Request(path=at(reference))


def change(reference: str, verb: Literal["cancel", "resume"]) -> Request[Experiment]:
    """Cancel or resume an experiment and return its state after that."""
    return Request(method="POST", path=f"{at(reference)}/{verb}", is_idempotent=True)


def report(reference: str, measure: str | None = None) -> Request[Json]:
    """Request the report: a row for each cell, and comparisons; `measure` None means accuracy."""
    return Request(path=f"{at(reference)}/report", query={"measure": measure})
