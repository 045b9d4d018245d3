"""How a job stands: what its page shows, and what is drawn again while it runs."""

from typing import Any, NamedTuple

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.deps import Deps
from services.orchestrator.reports.tally import Accuracy, accuracy
from services.orchestrator.web.page import as_json
from shared.contracts.samples import GateDecision
from shared.pages import words
from shared.pages.charts import funnel, gate
from shared.statistics.shares import Graded
from shared.storage import costs, decisions, jobs, verdicts
from shared.storage.jobs import Job
from shared.storage.states import RUNNABLE, TERMINAL

PAUSABLE = RUNNABLE
RESUMABLE = frozenset({"paused"})
CANCELLABLE = RUNNABLE | RESUMABLE
ACTIONS = {"pause": PAUSABLE, "resume": RESUMABLE, "cancel": CANCELLABLE, "requeue": TERMINAL}
"""What may be done in which states: the functions behind it decide, this only hides what they would refuse."""


class Standing(NamedTuple):
    """A job at one instant."""

    job: Job
    accuracy: Accuracy
    """Of the samples that have ended so far."""
    failures: dict[str, int]
    """Failed samples by kind."""
    decision: GateDecision | None

    def shown(self) -> dict[str, Any]:
        """What the templates of a job's state need."""
        return {
            "job": self.job,
            "headline": headline(self.job, self.accuracy),
            "accuracy": as_json(self.accuracy),
            "failures": self.failures,
            "actions": [action for action, states in ACTIONS.items() if self.job.state in states],
            "decision": self.decision,
            "took": (self.job.ended_at - self.job.created_at).total_seconds() if self.job.ended_at else None,
            "between": words.seconds_between,
            "funnel": funnel,
            "gate": gate,
        }


async def standing(deps: Deps, reference: str) -> Standing:
    """The one job that `reference` stands for, now.

    Raises:
        NotFound, Conflict: there is none, or there are several.
    """
    async with deps.database.statement() as connection:
        row = await jobs.resolve(connection, reference)
        ended = await jobs.has_ended(connection, row)
    return await _ended(deps, reference, row) if ended else await _running(deps, row)


async def _running(deps: Deps, row: int) -> Standing:
    """All of one instant."""
    async with deps.database.snapshot() as connection:
        job = await jobs.view(connection, row)
        graded = await verdicts.graded(connection, [row])
        return await _standing(connection, row, job, graded.get(row, {}))


async def _ended(deps: Deps, reference: str, row: int) -> Standing:
    """Nothing changes any more: what was counted once is shown again."""
    job = await deps.job_views.get(deps.database, reference)
    graded = await deps.verdicts.get(deps.database, [job])
    async with deps.database.statement() as connection:
        return await _standing(connection, row, job, graded[job.id])


async def _standing(connection: AsyncConnection, row: int, job: Job, graded: Graded) -> Standing:
    failures = await costs.failures(connection, [row]) if job.request_counts.failed else {}
    decision = await decisions.decision(connection, row) if job.gate else None
    # In a thread: the interval imports scipy once, which takes a second.
    return Standing(job, await to_thread.run_sync(accuracy, graded), failures.get(row, {}), decision)


def headline(job: Job, found: Accuracy) -> str:
    """Such as "Completed: 61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    return "; ".join([f"{_state(job)}: {_outcome(job, found)}", *_troubles(job)])


def _state(job: Job) -> str:
    if job.ended or job.state == "preparing":
        return job.state.capitalize()
    counts = job.request_counts
    return f"{job.state.capitalize()}, {counts.total - counts.in_progress} of {counts.total} done"


def _outcome(job: Job, found: Accuracy) -> str:
    if job.state == "failed":
        return words.last_line(job.reason) or "no reason is known"
    if not found.graded:
        return "nothing was graded" if job.ended else "nothing is graded yet"
    value, low, high = (100 * share for share in (found.value or 0.0, found.low, found.high))
    so_far = "" if job.ended else " so far"
    return f"{value:.1f} % right{so_far} ({low:.1f} to {high:.1f}), {found.correct} of {found.graded}"


def _troubles(job: Job) -> list[str]:
    counts = job.request_counts
    failed = [f"{counts.failed} failed"] if counts.failed and job.state != "failed" else []
    cancelled = [f"{counts.cancelled} cancelled"] if counts.cancelled else []
    return [*failed, *cancelled]
