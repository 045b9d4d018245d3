"""Serves `/jobs`: the list, a job with its result, its report and its audit; lists and jobs change live."""

import asyncio
import re
import shlex
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from anyio import to_thread
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.formatting import (
    ANOTHER_GRADER,
    explain_missing_answers,
    format_duration_range,
    format_right,
    format_share,
    take_last_line,
)
from mathrag.intervals import Graded
from mathrag.messages import format_count
from mathrag.report_lines import build_lines
from services.orchestrator.api import jobs as api_jobs
from services.orchestrator.api.jobs import JobFilters, audit_job, load_page
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.polling import POLL_S
from services.orchestrator.reports.report import report_on_job
from services.orchestrator.reports.tally import Accuracy, compute_accuracy
from services.orchestrator.reports.warnings import list_demonstration_warnings
from services.orchestrator.web.page import Visitor, as_json, go_to, make_environment, page
from shared.audit import Violation, list_invariants
from shared.pages import charts
from shared.pages.formatting import format_json
from shared.pages.lines import explain_decision
from shared.pages.pages import format_query
from shared.params import list_changes
from shared.pipelines import registry
from shared.samples import GateDecision, SampleRow
from shared.shapes import Scope
from shared.storage import jobs
from shared.storage.database import RUNNABLE, TERMINAL
from shared.storage.jobs import Job, Sort, State
from shared.storage.samples import SampleSelection, list_samples

SILENT_POLLS = int(15 / POLL_S)
"""Polls without a change after which a comment keeps the connection open."""
REST = 9
"""Pause after a drawing, as a multiple of the time that it took: an expensive page is read a tenth of the time at
most.
"""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Fragment(NamedTuple):
    """Holds the parts of a page that one poll has drawn."""

    html: str
    """`<hx-partial>` elements, each with its target."""
    last: bool = False
    """Whether this is final: nothing will change any more."""


_AGE = re.compile(r"(?<=Z\" title=\")([^\"]*)\">[^<]*</time>")
"""The words of a time, such as "5 min ago": they change by themselves, and the page's script keeps them up to date."""
Draw = Callable[[], Awaitable[Fragment]]


def stream(deps: Deps, key: Hashable, draw: Draw) -> Response:
    """Stream events with the fragments that `draw` returns, whenever they change.

    All streams of one `key` share the calls of `draw`: at most one per second, fewer if a call takes long. Every event
    holds whole fragments, so a browser that missed events is up to date after the next one. A fragment is the same for
    every viewer; buttons, which depend on the key, are outside of it.
    """
    rest_s = 0.0

    async def draw_and_rest() -> Fragment:
        nonlocal rest_s
        await asyncio.sleep(rest_s)
        began = time.monotonic()
        drawn = await draw()
        rest_s = max(REST * (time.monotonic() - began) - POLL_S, 0.0)
        return drawn

    async def stream_events() -> AsyncIterator[str]:
        last_shown, silent = "", 0
        while True:
            fragment = await deps.polls.wait_for_next(("page", key), draw_and_rest)
            silent += 1
            if (shown := _AGE.sub("", fragment.html)) != last_shown:
                last_shown, silent = shown, 0
                yield ("".join(f"data: {line}\n" for line in fragment.html.splitlines()) + "\n")
            elif silent >= SILENT_POLLS:
                silent = 0
                yield ": still here\n\n"
            if fragment.last:
                yield "event: end\ndata: \n\n"
                return

    return StreamingResponse(stream_events(), media_type="text/event-stream", headers=HEADERS)


ACTIONS = {"pause": RUNNABLE, "resume": {"paused"}, "cancel": RUNNABLE | {"paused"}, "requeue": TERMINAL}
"""Operations that make sense in each state. The functions behind them decide; this only hides what they would
refuse.
"""


class JobProgress(NamedTuple):
    """Holds the state of a job that its page shows, at one instant."""

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
            "between": format_duration_range,
            "charts": charts,
            "explain_decision": explain_decision,
        }


async def load_progress(deps: Deps, reference: str) -> JobProgress:
    """Return the current state of the job that `reference` names.

    Raises:
        NotFound: it does not exist.
        Conflict: the name is ambiguous.
    """
    async with deps.database.statement() as connection:
        row = await jobs.resolve(connection, reference)
        ended = await jobs.has_ended(connection, row)
    extraction: Mapping[str, int]
    if not ended:
        async with deps.database.snapshot() as connection:
            job = await jobs.view(connection, row)
            graded = (await jobs.count_verdicts(connection, [row])).get(row, {})
            extraction = (await jobs.count_extractions(connection, [row])).get(row, {})
            return await _make_progress(connection, row, job, graded, extraction)
    # From the cache, because nothing changes any more.
    job = await deps.job_views.get(deps.database, reference)
    graded = (await deps.verdicts.get(deps.database, [job]))[job.id]
    extraction = (await deps.extractions.get(deps.database, [job]))[job.id]
    async with deps.database.statement() as connection:
        return await _make_progress(connection, row, job, graded, extraction)


async def _make_progress(
    connection: AsyncConnection, row: int, job: Job, graded: Graded, extraction: Mapping[str, int]
) -> JobProgress:
    failures = await jobs.count_failures(connection, [row]) if job.request_counts.failed else {}
    decision = await jobs.load_decision(connection, row) if job.gate else None
    # In a thread: the first interval imports scipy, which takes a second.
    accuracy = await to_thread.run_sync(compute_accuracy, graded)
    return JobProgress(job, accuracy, extraction, failures.get(row, {}), decision)


def write_headline(job: Job, found: Accuracy, extraction: Mapping[str, int]) -> str:
    """Return a title such as "Completed: 61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    unreadable = None if job.state == "failed" else explain_missing_answers(extraction, as_json(found))
    state, counts = job.state.capitalize(), job.request_counts
    if not job.ended and job.state != "preparing":
        state += f", {counts.total - counts.in_progress} of {counts.total} done"
    parts = [f"{state}: {unreadable or _describe_outcome(job, found)}"]
    if counts.failed and job.state != "failed":
        parts.append(f"{counts.failed} failed")
    if counts.cancelled:
        parts.append(f"{counts.cancelled} cancelled")
    told = "; ".join(parts)
    return f"{told}. {ANOTHER_GRADER}." if unreadable else told


def _describe_outcome(job: Job, found: Accuracy) -> str:
    if job.state == "failed":
        return take_last_line(job.reason) or "no reason is known"
    if not found.graded:
        return "nothing was graded" if job.ended else "nothing is graded yet"
    return format_right(as_json(found), "" if job.ended else " so far")


router = APIRouter()
WRONG = 5
"""Number of wrong answers that the page of a job shows."""


@page(router, "/jobs/{job}")
async def show(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Shows the job with this id, name, or first characters of the id."""
    found = await load_progress(deps, job)
    wrong: Sequence[SampleRow] = ()
    if found.accuracy.correct < found.accuracy.graded:
        wrong = (await list_samples(deps.database, str(found.job.id), WRONG, None, SampleSelection(wrong=True))).data
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, str(found.job.id))
        warnings = await list_demonstration_warnings(connection, [row])
    params = as_json(found.job.params) or found.job.stored_params or {}
    return visit.show(
        "job/job.html", title=found.job.name, json=f"/v1/jobs/{found.job.id}", once=uuid.uuid4().hex,
        differing=dict(list_changes(params)), parameters=format_json(params),
        wrong=wrong, warnings=warnings, commands=list_commands(found.job),
        offered=found.job.pipeline in registry.list_offered(), **found.get_template_values(),
    )  # fmt: skip


@page(router, "/live/jobs/{job}")
async def stream_job(deps: RequestDeps, job: str) -> Response:
    """Streams the job's state and progress whenever they change."""
    known = await jobs.resolve_public_id(deps.database, job)

    async def draw() -> Fragment:
        found = await load_progress(deps, str(known))
        drawn = make_environment().get_template("job/live.html").render(**found.get_template_values())
        return Fragment(drawn, last=found.job.ended)

    return stream(deps, ("job", known), draw)


@page(router, "/jobs/{job}/pause", Scope.SUBMIT, method="POST")
async def pause(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Pauses the job: none of its calls is started any more."""
    await api_jobs.pause(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/resume", Scope.SUBMIT, method="POST")
async def resume(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Resumes the job where it was."""
    await api_jobs.resume(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/cancel", Scope.SUBMIT, method="POST")
async def cancel(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    await api_jobs.cancel(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/requeue", Scope.SUBMIT, method="POST")
async def requeue(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Submits the job again and shows the new job; sending the same form twice shows the same job."""
    once = (await visit.request.form()).get("once")
    accepted = await api_jobs.requeue(job, deps, visit.caller, str(once) if once else None)
    return go_to(accepted.headers["location"].removeprefix("/v1"))


def list_commands(job: Job) -> list[str]:
    """Return commands of the command line for this job."""
    name = shlex.quote(job.name)
    ended = [f"mathrag job report {name}", f"mathrag audit {name}", f"mathrag job export {name} --to {name}"]
    return ended if job.ended else [f"mathrag job watch {name}", f"mathrag job cancel {name}"]


@page(router, "/jobs")
async def list_jobs(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the jobs, newest first or as requested."""
    filters = visit.query(JobFilters)
    query = format_query(filters.model_dump(exclude_defaults=True))
    return visit.show(
        "jobs/jobs.html", title="Jobs", json=f"/v1/jobs{query}", live=f"/live/jobs{query}", states=get_args(State),
        sorts=get_args(Sort), **await _load_values(deps, filters),
    )  # fmt: skip


@page(router, "/live/jobs")
async def stream_jobs(visit: Visitor, deps: RequestDeps) -> Response:
    """Streams the rows of the same page whenever they change."""
    filters = visit.query(JobFilters)

    async def draw() -> Fragment:
        return Fragment(make_environment().get_template("jobs/live.html").render(**await _load_values(deps, filters)))

    return stream(deps, ("jobs", filters.model_dump_json()), draw)


async def _load_values(deps: Deps, filters: JobFilters) -> dict[str, Any]:
    found = await load_page(deps, filters)
    right = {job.id: format_share(as_json(job.accuracy)) for job in found.data if job.accuracy and job.accuracy.graded}
    query = filters.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return {"found": found, "right": right, "query": query, "first": filters.cursor is not None, "charts": charts}


SHOWN_ROWS = 5
"""Rows of a violation that are shown at first; the others are folded."""


@page(router, "/jobs/{job}/audit")
async def audit(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Audits the job's rows at every visit."""
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.load_without_stages(connection, [row]))[row]
    report = await audit_job(deps, found.id)
    return visit.show(
        "audit/audit.html", title=f"Audit of {found.name}", json=f"/v1/jobs/{found.id}/audit", job=found, audit=report,
        headline=write_audit_headline(report.violations), checks=list_invariants(), most=SHOWN_ROWS,
        found=Counter(each.invariant for each in report.violations),
        commands=[f"mathrag audit {shlex.quote(found.name)}"],
    )  # fmt: skip


def write_audit_headline(violations: Sequence[Violation]) -> str:
    """Return a title such as "Clean" or "2 violations: I2 and I13". Outcomes that a changed pipeline cannot replay are
    counted separately, since they may still be right.
    """
    broken = sorted({each.invariant for each in violations if not each.source_changed}, key=lambda name: int(name[1:]))
    unreplayed = sum(each.source_changed for each in violations)
    count = len(violations) - unreplayed
    parts = [f"{format_count(count, 'violation')}: {' and '.join(broken)}"] if broken else []
    if unreplayed:
        parts.append(f"{format_count(unreplayed, 'outcome')} could not be replayed: the pipeline has changed")
    return "; ".join(parts) or "Clean: the rows satisfy every invariant"


@page(router, "/jobs/{job}/report")
async def report(job: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the report, which is final once the job has ended."""
    found = as_json(await report_on_job(deps.database, job, deps.settings.models))
    return visit.show(
        "report/job.html", title=f"Report of {found['name']}", json=f"/v1/jobs/{found['id']}/report", report=found,
        lines=list(build_lines(found)), parameters=format_json(found["settings"]["params"]),
    )  # fmt: skip
