"""Requests for jobs and their results."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, Unpack, cast

from mathrag.client.request import (
    INDEXED_S,
    JobFilters,
    Json,
    Page,
    Request,
    SampleFilters,
    Value,
    make_idempotency_header,
    segment,
    without_none,
)

PATH = "/v1/jobs"
COMPARISON = "/v1/comparison"
ENDED = ("completed", "failed", "cancelled")
RowFormat = Literal["jsonl", "csv", "parquet"]
"""Format of results, which is also the suffix of the file."""
Job = Json
"""A job as JSON; `answers.JobView` has its fields."""
TRUST = 0.9
"""Default share of the server."""


class HasId(Protocol):
    """A job as an object."""

    @property
    def id(self) -> str:
        """The job's id."""
        ...


def make_path(reference: str) -> str:
    """Return the path of a job, which is given by its id, the first characters of its id, or its name."""
    return f"{PATH}/{segment(reference)}"


def submit(body: Json, key: str | None = None) -> Request[Job]:
    """Submit a job; a repeated request with the same key returns the same job."""
    return Request(method="POST", path=PATH, body=body, headers=make_idempotency_header(key))


def import_answers(lines: Iterable[bytes], name: str, dataset: str, **options: Value | None) -> Request[Job]:
    """Import and grade answers from another system."""
    query = {"name": name, "dataset": dataset, "format": "jsonl", **options}
    return Request(method="POST", path=f"{PATH}/import", lines=lines, query=query, timeout_s=INDEXED_S)


def list_jobs(**filters: Unpack[JobFilters]) -> Request[Page[Job]]:
    """List the jobs, newest first unless `sort` is given."""
    return Request(path=PATH, query=cast("Mapping[str, Value | None]", filters))


def get(job: str) -> Request[Job]:
    """Fetch the current state of a job by its id, the first characters of its id, or its name."""
    return Request(path=make_path(job))


def change(
    job: str, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
) -> Request[Job]:
    """Change a job's name, rank or metadata in any state; omitted fields are kept."""
    body = without_none({"name": name, "rank": rank, "metadata": None if metadata is None else dict(metadata)})
    return Request(method="PATCH", path=make_path(job), body=body, headers={"If-Match": "*"}, is_idempotent=True)


def cancel(job: str) -> Request[Job]:
    """Cancel a job: none of its remaining calls start."""
    return Request(method="POST", path=f"{make_path(job)}/cancel", is_idempotent=True)


def pause(job: str) -> Request[Job]:
    """Pause a job: no new calls start until you resume it."""
    return Request(method="POST", path=f"{make_path(job)}/pause", is_idempotent=True)


def resume(job: str) -> Request[Job]:
    """Resume a paused job."""
    return Request(method="POST", path=f"{make_path(job)}/resume", is_idempotent=True)


def requeue(job: str, *, key: str | None = None) -> Request[Job]:
    """Submit an ended job again as a new job, which reuses the completed calls."""
    return Request(method="POST", path=f"{make_path(job)}/requeue", headers=make_idempotency_header(key))


def measure(
    job: str | HasId,
    metrics: Sequence[str],
    *,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    models: Mapping[str, str] | None = None,
    key: str | None = None,
) -> Request[Job]:
    """Measure the answers of a completed job by a new job that only calls the judge model.

    Args:
        job: the job, as an object, id or name.
        metrics: metrics to measure, such as `["faithfulness"]`.
        name: name of the new job; None derives one from the measured job's name.
        params: parameters of the group `metrics`, such as `{"metrics": {"unit": "claims"}}`.
        models: names of models by role, such as `{"judge": "world-judge"}`.
        key: idempotency key; the same key returns the same job, None submits a new one.
    """
    nested = dict(params or {})
    nested["metrics"] = {**cast("Mapping[str, object]", nested.get("metrics", {})), "names": list(metrics)}
    body = without_none({"name": name, "params": nested, "models": dict(models or {})})
    return Request(
        method="POST", path=f"{make_path(reference_of(job))}/measure", body=body, headers=make_idempotency_header(key)
    )


def events(job: str, last: str | None) -> Request[bytes]:
    """Open the stream of the job's changes after the event `last`."""
    headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
    return Request(path=f"{make_path(job)}/events", headers=headers)


def report(job: str) -> Request[Json]:
    """Fetch the report: accuracy with its interval, failures and cost."""
    return Request(path=f"{make_path(job)}/report")


def audit(job: str) -> Request[Json]:
    """Check a job's rows against the invariants."""
    return Request(path=f"{make_path(job)}/audit")


def plan(job: str) -> Request[Json]:
    """Fetch the plan of a job: devices and times of the remaining calls."""
    return Request(path=f"{make_path(job)}/plan")


def calibration(job: str, *, trust: float = TRUST, judged_by: str | None = None) -> Request[Json]:
    """Calibrate crag's thresholds on a job whose lists have gold documents, or labels by the judge of another job."""
    return Request(path=f"{make_path(job)}/calibration", query={"trust": trust, "judged_by": judged_by})


def samples(job: str, **filters: Unpack[SampleFilters]) -> Request[Page[Json]]:
    """List all samples in dataset order, in any state."""
    return Request(path=f"{make_path(job)}/samples", query=cast("Mapping[str, Value | None]", filters))


def sample(job: str, index: int, *, repeat: int = 0, prompts: bool = False) -> Request[Json]:
    """Fetch a sample with all its calls; `prompts` adds the prompts of models."""
    return Request(path=f"{make_path(job)}/samples/{index}", query={"repeat": repeat, "prompts": prompts or None})


def note(
    job: str, index: int, *, thumb: Literal["up", "down", "none"] | None = None, note: str | None = None,
    repeat: int = 0,
) -> Request[list[Json]]:  # fmt: skip
    """Change your thumb or note on a sample; omitted fields are kept, `none` or an empty note removes them."""
    body, path = without_none({"thumb": thumb, "note": note}), f"{make_path(job)}/samples/{index}/note"
    return Request(method="PATCH", path=path, query={"repeat": repeat}, body=body, is_idempotent=True)


def results(job: str, *, prompts: bool = False) -> Request[bytes]:
    """Yield every ended sample, with the texts of the models; `prompts` adds the generator's prompts."""
    return results_file(job, prompts=prompts)


def results_file(
    job: str,
    *,
    format: RowFormat = "jsonl",  # noqa: A002 - the API's name
    prompts: bool = False,
) -> Request[bytes]:
    """Download the results as the bytes of a file."""
    return file(job, "results", format=format, prompts=prompts or None)


def results_for(job: str, path: Path, format: RowFormat | None) -> Request[bytes]:  # noqa: A002
    """Download the results in `format`, by default that of the file's suffix, or Parquet."""
    named: dict[str, RowFormat] = {".jsonl": "jsonl", ".csv": "csv"}
    return results_file(job, format=format or named.get(path.suffix.lower(), "parquet"))


def provenance(job: str) -> Request[bytes]:
    """Download the hash-chained records of an ended job as JSON lines."""
    return file(job, "provenance")


def file(job: str, name: str = "", **query: Value | None) -> Request[bytes]:
    """Download the job itself, or its `report`, `results`, `provenance` or `audit`, as bytes."""
    return Request(path=f"{make_path(job)}/{name}" if name else make_path(job), query=query)


def compare(
    references: Sequence[str | HasId], *, baseline: str | HasId | None = None, measure: str | None = None
) -> Request[Json]:
    """Compare jobs on their common items, with intervals and tests. `client.compare` also waits for the jobs.

    Args:
        references: at least two jobs, as objects, ids or names.
        baseline: the job that all others are compared with; None compares each pair.
        measure: "accuracy" (the default), "exact", "score", "answer@K", or a metric's score such as "faithfulness".
    """
    jobs = list(map(reference_of, references))
    against = None if baseline is None else reference_of(baseline)
    return Request(path=COMPARISON, query={"job": jobs, "baseline": against, "measure": measure})


def changed_samples(
    left: str | HasId, right: str | HasId, *, only: Literal["changed", "gained", "lost"] = "changed"
) -> Request[Page[Json]]:
    """List the samples that exactly one of two jobs answered right; "gained" means that `left` did."""
    query = {"left": reference_of(left), "right": reference_of(right), "only": only}
    return Request(path=f"{COMPARISON}/samples", query=query)


def compared_sample(left: str | HasId, right: str | HasId, index: int, *, repeat: int = 0) -> Request[Json]:
    """Fetch sample `index` of the left job and the right job's sample of the same question."""
    return Request(
        path=f"{COMPARISON}/samples/{index}",
        query={"left": reference_of(left), "right": reference_of(right), "repeat": repeat},
    )


def reference_of(job: str | HasId) -> str:
    """Return the id or name of a job."""
    return job if isinstance(job, str) else job.id
