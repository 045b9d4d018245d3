"""A job as the API shows it, with the addresses of everything that belongs to it."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from anyio import to_thread

from services.orchestrator.api.submissions import EXAMPLE as SUBMISSION
from services.orchestrator.deps import Deps
from services.orchestrator.reports.tally import Accuracy, compute_accuracy
from shared.pipelines import registry
from shared.storage import database, jobs

_ID = "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11"
_PARAMS: dict[str, Any] = {
    "candidates": 10, "context_size": 1, "rrf_k": 60, "rrf_weight": 0.1, "quality_weight": 0.9,
    "gate": {"tau": 0.45, "items": 50, "top": 5, "max_documents": 200, "min_pairs": 30, "on_unusable": "fail"},
    "generate": {"temperature": 0.0, "max_tokens": 512}, "judge": {"temperature": 0.1, "max_tokens": 10},
    "anchors": {}, "seed": 0,
}  # fmt: skip
EXAMPLE: dict[str, Any] = {
    **SUBMISSION, "params": _PARAMS,
    "id": _ID, "state": "running", "reuse": "all", "rank": 100, "version": 2, "requeued_from": None, "reason": None,
    "request_counts": {"total": 500, "completed": 120, "failed": 0, "cancelled": 0, "in_progress": 380, "unparsed": 0},
    "stages": {"judge": {"done": 4100, "total": 4100}, "generate": {"done": 120, "total": 500}},
    "created_at": "2026-11-21T08:00:00Z", "running_at": "2026-11-21T08:00:07Z", "ended_at": None,
    "eta_seconds": 95, "eta_between": [79, 115], "chain": None,
    "reached": {"preparing": "2026-11-21T08:00:00Z", "running": "2026-11-21T08:00:07Z"},
    "gate": {"strategy": "judge", "reason": "rho = 0.312 <= tau = 0.45: judge", "tau": 0.45, "rho": 0.312,
             "low": 0.17, "high": 0.44, "pairs": 171, "asked": 173, "unparsed": 2},
    "links": {
        "self": f"/v1/jobs/{_ID}",
        **{part: f"/v1/jobs/{_ID}/{part}" for part in ("events", "samples", "results", "report", "provenance")},
    },
}  # fmt: skip
"""Example of a job; a test validates it against the schema."""


class Links(msgspec.Struct, frozen=True, kw_only=True, rename={"itself": "self"}):
    """Addresses of what belongs to a job."""

    itself: str
    events: str
    samples: str
    results: str
    report: str
    provenance: str


class JobView(jobs.Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job with the addresses of what belongs to it."""

    links: Links
    accuracy: Accuracy | None = None
    """Accuracy as in the job's report; missing until the job has ended."""
    warnings: tuple[str, ...] = ()
    """Things to know before waiting for the job; only in the answer to its submission."""


def make_view(job: jobs.Job, warnings: Sequence[str] = (), found: Accuracy | None = None) -> JobView:
    """Return `job` with its links; `found` is its accuracy."""
    at = f"/v1/jobs/{job.id}"
    parts = ("events", "samples", "results", "report", "provenance")
    links = Links(itself=at, **{part: f"{at}/{part}" for part in parts})
    return JobView(links=links, accuracy=found, warnings=tuple(warnings), **msgspec.structs.asdict(job))


def list_edit_warnings(pipelines: Iterable[str]) -> list[str]:
    """Return a warning for each source file of these pipelines that was edited after this process had imported it."""
    changed = {change.file: change for name in pipelines for change in registry.list_changed_files(name)}
    return [
        f"{change.file} was edited after the service had imported it (imported {_shorten(change.imported)}, on disk"
        f" {_shorten(change.on_disk)}): the imported version runs; restart the service"
        " (`mathrag down`, `mathrag up`) to run the file"
        for change in changed.values()
    ]


def _shorten(hash_: str | None) -> str:
    return hash_[:12] if hash_ else "no such file"


async def load_accuracies(deps: Deps, found: Sequence[jobs.Job]) -> dict[uuid.UUID, Accuracy]:
    """Return the accuracy of those jobs that have ended, in two statements at most."""
    graded = await deps.verdicts.get(deps.database, found)
    # In a thread: the first interval imports scipy, which takes a second.
    return await to_thread.run_sync(lambda: {job: compute_accuracy(items) for job, items in graded.items()})


async def page(deps: Deps, found: database.Page[jobs.Job]) -> database.Page[JobView]:
    """Return every job of a page with its links and, if it has ended, its accuracy."""
    known = await load_accuracies(deps, found.data)
    return database.Page(
        data=[make_view(job, found=known.get(job.id)) for job in found.data], next_cursor=found.next_cursor
    )
