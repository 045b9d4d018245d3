"""Requests for label sets: draw, label, export, and compare with the judge or the grader."""

from typing import Any, TypedDict

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/labels/sets"
OPEN = {True: None, False: "false"}
"""Value of the query's field `blind`; blind is the default."""


class Labeller(TypedDict):
    """A labeller's progress."""

    labeller: str
    labels: int
    abstained: int
    same: int


class LabelSet(TypedDict):
    """A set as it is now."""

    name: str
    what: str
    job: str
    job_name: str
    purged: bool
    seed: int
    eligible: int
    tasks: int
    hash: str
    instructions: str
    scale: list[Any]
    labellers: list[Labeller]


class Task(TypedDict):
    """A task to label."""

    number: int
    item: int | None
    content: Json
    system: Any


class NextTask(TypedDict):
    """The next task of a labeller, and how many are done; the task is None when all are."""

    task: Task | None
    done: int
    tasks: int


def at(name: str) -> str:
    """Return the path of a label set."""
    return f"{PATH}/{segment(name)}"


def create(name: str, job: str, what: str, size: int, seed: int) -> Request[LabelSet]:
    """Request a new label set from an ended job; repeated, the request returns the existing set."""
    body = {"name": name, "job": job, "what": what, "size": size, "seed": seed}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S, is_idempotent=True)


def list_label_sets(limit: int | None = None) -> Request[Page[LabelSet]]:
    """Request a page of label sets, newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(name: str) -> Request[LabelSet]:
    """Request the label set as it is now."""
    return Request(path=at(name))


def next_task(name: str, *, blind: bool = True) -> Request[NextTask]:
    """Request the first task that the owner of the API key has not labelled."""
    return Request(path=f"{at(name)}/next", query={"blind": OPEN[blind]})


def give(name: str, number: int, label: Json) -> Request[Json]:
    """Request to add a label with the fields `value` or `abstained`, `blind` and `note`."""
    return Request(method="POST", path=f"{at(name)}/tasks/{number}/labels", body=label)


def export(name: str) -> Request[bytes]:
    """Request all labels, one JSON object per line."""
    return Request(path=f"{at(name)}/export", timeout_s=INDEXED_S)


def agreement(name: str, seed: int, *, blind: bool = True) -> Request[Json]:
    """Request kappa, alpha and confusion matrices, with intervals."""
    return Request(path=f"{at(name)}/agreement", query={"seed": seed, "blind": OPEN[blind]}, timeout_s=INDEXED_S)


def calibration(name: str) -> Request[Json]:
    """Request the calibration of the judge's ratings by the set's labels."""
    return Request(path=f"{at(name)}/calibration")
