"""Jobs and what came out of them."""

from collections.abc import Iterable
from typing import Any, Literal, NotRequired, TypedDict

from mathrag.client.request import INDEXED_S, Json, Page, Request, Value, once, segment

PATH = "/v1/jobs"
ENDED = ("completed", "failed", "cancelled")


class Counts(TypedDict):
    """Samples of a job."""

    total: int
    completed: int
    failed: int
    cancelled: int
    in_progress: int


class Stage(TypedDict):
    """Calls of a role."""

    done: int
    total: int


class Waiting(TypedDict):
    """A server that is away."""

    what: str
    since: str
    next_try: str


class Job(TypedDict):
    """A job as it is now."""

    id: str
    name: str
    state: str
    pipeline: str
    dataset: str
    corpus: str | None
    reason: str | None
    request_counts: Counts
    gate: Json | None
    limit: NotRequired[int | None]
    stages: NotRequired[dict[str, Stage]]
    waiting: NotRequired[list[Waiting]]
    unserved: NotRequired[list[str]]
    unreadable: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class Audit(TypedDict):
    """What an audit of a job found."""

    clean: bool
    violations: list[Json]


def at(reference: str) -> str:
    """The path of a job, by its id, the first characters of it, or its name."""
    return f"{PATH}/{segment(reference)}"


def submit(body: Json, key: str | None = None) -> Request[Job]:
    """A new job; with the same key again it is the same job."""
    return Request(method="POST", path=PATH, body=body, headers=once(key))


def import_answers(lines: Iterable[bytes], name: str, dataset: str, **options: Value | None) -> Request[Job]:
    """A job that grades what another system answered."""
    query = {"name": name, "dataset": dataset, "format": "jsonl", **options}
    return Request(method="POST", path=f"{PATH}/import", lines=lines, query=query, timeout_s=INDEXED_S)


def listed(limit: int, **filters: str | None) -> Request[Page[Job]]:
    """Newest first, or as `sort` says."""
    return Request(path=PATH, query={"limit": limit, **filters})


def get(reference: str) -> Request[Job]:
    """The job as it is now."""
    return Request(path=at(reference))


def change(reference: str, verb: Literal["cancel", "pause", "resume"]) -> Request[Job]:
    """The job after it was cancelled, paused or resumed."""
    return Request(method="POST", path=f"{at(reference)}/{verb}")


def requeue(reference: str, key: str | None = None) -> Request[Job]:
    """A new job that asks for the same."""
    return Request(method="POST", path=f"{at(reference)}/requeue", headers=once(key))


def events(id_: str, last: str | None) -> Request[bytes]:
    """The stream of its changes, from after the event `last`."""
    headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
    return Request(path=f"{at(id_)}/events", headers=headers)


def report(reference: str) -> Request[Json]:
    """Accuracy, failures and cost."""
    return Request(path=f"{at(reference)}/report")


def plan(reference: str) -> Request[Json]:
    """Residencies for what is left of it."""
    return Request(path=f"{at(reference)}/plan")


def audit(reference: str) -> Request[Audit]:
    """Whether its rows keep the invariants."""
    return Request(path=f"{at(reference)}/audit")


def calibration(reference: str, trust: float, judged_by: str | None) -> Request[Json]:
    """Thresholds for `crag`."""
    return Request(path=f"{at(reference)}/calibration", query={"trust": str(trust), "judged_by": judged_by})


def compare(references: list[str], baseline: str | None, measure: str | None = None) -> Request[Json]:
    """Which jobs differ on the items that they have in common; None: by accuracy."""
    return Request(path="/v1/comparison", query={"job": references, "baseline": baseline, "measure": measure})


def file(reference: str, name: str = "", **query: str | None) -> Request[bytes]:
    """The job itself, or its `report`, `results`, `provenance` or `audit`, as bytes to keep."""
    return Request(path=f"{at(reference)}/{name}" if name else at(reference), query=query)


def samples(reference: str, limit: int | None = None, **only: str) -> Request[Page[Json]]:
    """In dataset order; `only`: the list's filters, such as `wrong="true"` or `ending="logic"`."""
    return Request(path=f"{at(reference)}/samples", query={"limit": limit, **only})


def sample(reference: str, index: int, repeat: int | None = None, *, prompts: bool = False) -> Request[Json]:
    """One sample with its calls."""
    query: dict[str, Any] = {"repeat": repeat, "prompts": "true" if prompts else None}
    return Request(path=f"{at(reference)}/samples/{index}", query=query)
