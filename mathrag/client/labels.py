"""Label sets: drawn, labelled, exported, and compared with what the judge or the grader said."""

from typing import Any, TypedDict

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/labels/sets"
OPEN = {True: None, False: "false"}
"""How the query says whether a labeller is blind."""


class Labeller(TypedDict):
    """How far somebody is."""

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
    """What is to be labelled."""

    number: int
    item: int | None
    content: Json
    system: Any


class NextTask(TypedDict):
    """What this labeller has not labelled yet."""

    task: Task | None
    done: int
    tasks: int


def at(name: str) -> str:
    """The path of a set."""
    return f"{PATH}/{segment(name)}"


def create(name: str, job: str, what: str, size: int, seed: int) -> Request[LabelSet]:
    """Draw a set from an ended job; the same again finds what is there."""
    body = {"name": name, "job": job, "what": what, "size": size, "seed": seed}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S)


def listed(limit: int | None = None) -> Request[Page[LabelSet]]:
    """Newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(name: str) -> Request[LabelSet]:
    """The set as it is now."""
    return Request(path=at(name))


def following(name: str, *, blind: bool = True) -> Request[NextTask]:
    """The first task that the owner of this key has not labelled."""
    return Request(path=f"{at(name)}/next", query={"blind": OPEN[blind]})


def give(name: str, number: int, label: Json) -> Request[Json]:
    """Add a label: `value` or `abstained`, `blind`, `note`."""
    return Request(method="POST", path=f"{at(name)}/tasks/{number}/labels", body=label)


def exported(name: str) -> Request[bytes]:
    """Every label, one a line."""
    return Request(path=f"{at(name)}/export", timeout_s=INDEXED_S)


def agreement(name: str, seed: int, *, blind: bool = True) -> Request[Json]:
    """Kappa, alpha and confusion, with intervals."""
    return Request(path=f"{at(name)}/agreement", query={"seed": seed, "blind": OPEN[blind]}, timeout_s=INDEXED_S)


def calibration(name: str) -> Request[Json]:
    """What the judge's ratings are worth by the set's labels."""
    return Request(path=f"{at(name)}/calibration")
