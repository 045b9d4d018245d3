"""Requests for jobs and their results."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from mathrag.client.request import INDEXED_S, Json, Page, Request, Value, once, segment, without_none

PATH = "/v1/jobs"
ENDED = ("completed", "failed", "cancelled")
ROW_FORMATS = ("jsonl", "csv", "parquet")
"""Formats of results, which are also the suffixes of their files."""
Job = Json
"""A job as JSON; `answers.JobView` has its fields."""


def at(reference: str) -> str:
    """Return the path of a job, named by its id, the first characters of it, or its name."""
    return f"{PATH}/{segment(reference)}"


def submit(body: Json, key: str | None = None) -> Request[Job]:
    """Request a new job; repeated with the same key, the request returns the same job."""
    return Request(method="POST", path=PATH, body=body, headers=once(key))


def import_answers(lines: Iterable[bytes], name: str, dataset: str, **options: Value | None) -> Request[Job]:
    """Request a job that grades the answers of another system."""
    query = {"name": name, "dataset": dataset, "format": "jsonl", **options}
    return Request(method="POST", path=f"{PATH}/import", lines=lines, query=query, timeout_s=INDEXED_S)


def list_jobs(limit: int, **filters: Any) -> Request[Page[Job]]:
    """Request a page of jobs, newest first or in the order of `sort`."""
    return Request(path=PATH, query={"limit": limit, **filters})


def get(reference: str) -> Request[Job]:
    """Request the job as it is now."""
    return Request(path=at(reference))


def change(reference: str, verb: Literal["cancel", "pause", "resume"]) -> Request[Job]:
    """Request to cancel, pause or resume a job; the answer is the job afterwards."""
    return Request(method="POST", path=f"{at(reference)}/{verb}", is_idempotent=True)


def amend(
    reference: str, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
) -> Request[Job]:
    """Request to change a job's name, rank or metadata, whatever its version; None leaves a field as it is."""
    body = without_none({"name": name, "rank": rank, "metadata": None if metadata is None else dict(metadata)})
    return Request(method="PATCH", path=at(reference), body=body, headers={"If-Match": "*"}, is_idempotent=True)


def results(reference: str, *, prompts: bool = False) -> Request[bytes]:
    """Request every sample that has ended so far, as JSON lines."""
    return file(reference, "results", format="jsonl", prompts=prompts)


def requeue(reference: str, key: str | None = None) -> Request[Job]:
    """Request a new job with the same content as an ended one."""
    return Request(method="POST", path=f"{at(reference)}/requeue", headers=once(key))


def events(id_: str, last: str | None) -> Request[bytes]:
    """Request the stream of the job's changes after the event `last`."""
    headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
    return Request(path=f"{at(id_)}/events", headers=headers)


def report(reference: str) -> Request[Json]:
    """Request the report: accuracy, failures and cost."""
    return Request(path=f"{at(reference)}/report")


def plan(reference: str) -> Request[Json]:
    """Request the plan of residencies for the job's remaining calls."""
    return Request(path=f"{at(reference)}/plan")


def audit(reference: str) -> Request[Json]:
    """Request the audit of the job's rows."""
    return Request(path=f"{at(reference)}/audit")


def calibration(reference: str, trust: float, judged_by: str | None) -> Request[Json]:
    """Request the thresholds for `crag`."""
    return Request(path=f"{at(reference)}/calibration", query={"trust": str(trust), "judged_by": judged_by})


def compare(references: list[str], baseline: str | None, measure: str | None = None) -> Request[Json]:
    """Request the comparison of jobs on their common items; `measure` None means accuracy."""
    return Request(path="/v1/comparison", query={"job": references, "baseline": baseline, "measure": measure})


def file(reference: str, name: str = "", **query: Value | None) -> Request[bytes]:
    """Request the job itself, or its `report`, `results`, `provenance` or `audit`, as bytes."""
    return Request(path=f"{at(reference)}/{name}" if name else at(reference), query=query)


def results_file(reference: str, path: Path, format: str | None) -> Request[bytes]:  # noqa: A002
    """Request the results in a format, else in that of the file's name, else as Parquet."""
    named = path.suffix.lower().removeprefix(".")
    return file(reference, "results", format=format or (named if named in ROW_FORMATS else "parquet"))


def samples(reference: str, limit: int | None = None, **only: Any) -> Request[Page[Json]]:
    """Request samples in dataset order; `only` has filters such as `wrong="true"` or `ending="logic"`."""
    return Request(path=f"{at(reference)}/samples", query={"limit": limit, **only})


def sample(reference: str, index: int, repeat: int | None = None, *, prompts: bool = False) -> Request[Json]:
    """Request one sample with its calls."""
    query: dict[str, Any] = {"repeat": repeat, "prompts": "true" if prompts else None}
    return Request(path=f"{at(reference)}/samples/{index}", query=query)
