"""Loads the state of a job that its page shows, and draws again while the job runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.deps import Deps
from services.orchestrator.reports.tally import Accuracy, compute_accuracy
from services.orchestrator.web.page import as_json
from shared.pages import formatting
from shared.pages.charts import bars, gate
from shared.samples import GateDecision
from shared.statistics.intervals import Graded
from shared.storage import jobs as stored_jobs
from shared.storage.database import RUNNABLE, TERMINAL
from shared.storage.jobs import Job

PAUSABLE = RUNNABLE
RESUMABLE = frozenset({"paused"})
CANCELLABLE = RUNNABLE | RESUMABLE
ACTIONS = {"pause": PAUSABLE, "resume": RESUMABLE, "cancel": CANCELLABLE, "requeue": TERMINAL}
"""Operations that make sense in each state. The functions behind them decide; this only hides what they would
refuse.
"""


class JobProgress(NamedTuple):
    """Holds what the page of a job shows of its state at one instant."""

    job: Job
    accuracy: Accuracy
    """Accuracy over the samples that have ended so far."""
    extraction: Mapping[str, int]
    """Number of answers by how the final answer was found in them."""
    failures: dict[str, int]
    """Number of failed samples by kind."""
    decision: GateDecision | None

    def get_template_values(self) -> dict[str, Any]:
        """Return the values that the templates of a job's state need."""
        return {
            "job": self.job,
            "headline": write_headline(self.job, self.accuracy, self.extraction),
            "accuracy": as_json(self.accuracy),
            "failures": self.failures,
            "actions": [action for action, states in ACTIONS.items() if self.job.state in states],
            "decision": self.decision,
            "took": (self.job.ended_at - self.job.created_at).total_seconds() if self.job.ended_at else None,
            "between": formatting.format_duration_range,
            "bars": bars,
            "gate": gate,
        }


async def load_progress(deps: Deps, reference: str) -> JobProgress:
    """Return the current state of the job that `reference` names.

    Raises:
        NotFound: there is none.
        Conflict: there are several.
    """
    async with deps.database.statement() as connection:
        row = await stored_jobs.resolve(connection, reference)
        ended = await stored_jobs.has_ended(connection, row)
    return await _load_ended(deps, reference, row) if ended else await _load_running(deps, row)


async def _load_running(deps: Deps, row: int) -> JobProgress:
    """Read everything in one snapshot of the database."""
    async with deps.database.snapshot() as connection:
        job = await stored_jobs.view(connection, row)
        graded = await stored_jobs.count_verdicts(connection, [row])
        extraction = await stored_jobs.count_extractions(connection, [row])
        return await _make_progress(connection, row, job, graded.get(row, {}), extraction.get(row, {}))


async def _load_ended(deps: Deps, reference: str, row: int) -> JobProgress:
    """Return the state of an ended job from the cache, because nothing changes any more."""
    job = await deps.job_views.get(deps.database, reference)
    graded = await deps.verdicts.get(deps.database, [job])
    extraction = await deps.extractions.get(deps.database, [job])
    async with deps.database.statement() as connection:
        return await _make_progress(connection, row, job, graded[job.id], extraction[job.id])


async def _make_progress(
    connection: AsyncConnection, row: int, job: Job, graded: Graded, extraction: Mapping[str, int]
) -> JobProgress:
    failures = await stored_jobs.count_failures(connection, [row]) if job.request_counts.failed else {}
    decision = await stored_jobs.load_decision(connection, row) if job.gate else None
    # In a thread: the first interval imports scipy, which takes a second.
    accuracy = await to_thread.run_sync(compute_accuracy, graded)
    return JobProgress(job, accuracy, extraction, failures.get(row, {}), decision)


def write_headline(job: Job, found: Accuracy, extraction: Mapping[str, int]) -> str:
    """Return a title such as "Completed: 61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    unreadable = None if job.state == "failed" else formatting.explain_missing_answers(extraction, as_json(found))
    told = "; ".join([f"{_state(job)}: {unreadable or _describe_outcome(job, found)}", *_list_troubles(job)])
    return f"{told}. {formatting.ANOTHER_GRADER}." if unreadable else told


def _state(job: Job) -> str:
    if job.ended or job.state == "preparing":
        return job.state.capitalize()
    counts = job.request_counts
    return f"{job.state.capitalize()}, {counts.total - counts.in_progress} of {counts.total} done"


def _describe_outcome(job: Job, found: Accuracy) -> str:
    if job.state == "failed":
        return formatting.take_last_line(job.reason) or "no reason is known"
    if not found.graded:
        return "nothing was graded" if job.ended else "nothing is graded yet"
    return formatting.format_right(as_json(found), "" if job.ended else " so far")


def _list_troubles(job: Job) -> list[str]:
    counts = job.request_counts
    failed = [f"{counts.failed} failed"] if counts.failed and job.state != "failed" else []
    cancelled = [f"{counts.cancelled} cancelled"] if counts.cancelled else []
    return [*failed, *cancelled]
