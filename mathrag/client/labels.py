"""Requests for label sets: draw, label, export, and compare with the judge or the grader."""

from typing import Literal

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/labels/sets"
BLIND = {True: None, False: False}
"""Value of the query field `blind`; the default is blind."""


def make_path(name: str) -> str:
    """Return the path of a label set."""
    return f"{PATH}/{segment(name)}"


def create(
    name: str,
    job: str,
    what: Literal["documents", "relevance", "answers", "support", "sufficient", "addresses"],
    *,
    size: int = 100,
    seed: int = 0,
) -> Request[Json]:
    """Draw a set of tasks from an ended job; repeating it returns the existing set."""
    body = {"name": name, "job": job, "what": what, "size": size, "seed": seed}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S, is_idempotent=True)


def list_label_sets() -> Request[Page[Json]]:
    """List all label sets, newest first."""
    return Request(path=PATH)


def get(name: str) -> Request[Json]:
    """Fetch a set with the progress of its labellers."""
    return Request(path=make_path(name))


def next_task(name: str, *, blind: bool = True) -> Request[Json]:
    """Fetch the first task that the owner of this key has not labelled; `blind` hides the results of the system."""
    return Request(path=f"{make_path(name)}/next", query={"blind": BLIND[blind]})


def task(name: str, number: int, *, blind: bool = True) -> Request[Json]:
    """Show a task of a label set."""
    return Request(path=f"{make_path(name)}/tasks/{number}", query={"blind": BLIND[blind]})


def give(name: str, number: int, value: int | str | None, *, blind: bool = True, note: str = "") -> Request[Json]:
    """Label a task for the owner of this key; None means that the labeller cannot decide."""
    label = {"abstained": True} if value is None else {"value": value}
    return Request(
        method="POST", path=f"{make_path(name)}/tasks/{number}/labels", body={**label, "note": note, "blind": blind}
    )


def export(name: str) -> Request[bytes]:
    """Download every label of a set with its task."""
    return Request(path=f"{make_path(name)}/export", timeout_s=INDEXED_S)


def agreement(name: str, *, seed: int = 0, blind: bool = True) -> Request[Json]:
    """Measure how labellers agree with each other and with the judge or grader, with intervals, and correct a metric's
    mean.
    """
    return Request(
        path=f"{make_path(name)}/agreement", query={"seed": seed, "blind": BLIND[blind]}, timeout_s=INDEXED_S
    )


def calibration(name: str) -> Request[Json]:
    """Show how the judge's ratings map to the set's labels."""
    return Request(path=f"{make_path(name)}/calibration")
