"""Serves `/v1/jobs`: submissions, imports, changes, events and calibrations."""

import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from mathrag.errors import BadRequest, Invalid
from mathrag.messages import format_count
from mathrag.reading.answers import Layout, make_mapping
from mathrag.reading.lines import LISTED, Reader
from services.orchestrator.access.identity import Caller, RequestCaller
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import (
    UNCHANGED,
    IdempotencyKey,
    RequiredVersions,
    Seen,
    Versions,
    answers,
    json,
    make_keyed_request,
    respond_with_tag,
    route,
)
from services.orchestrator.api.uploads import BODY, Uploaded, read_batches
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.report import Report, report_on_job
from services.orchestrator.reports.tally import Accuracy, compute_accuracy
from services.orchestrator.reports.warnings import list_edit_warnings, list_warnings
from shared import audit, canonical
from shared.fields import WHOLE, Key, Stored, make_model
from shared.ingest.answers import ImportedAnswer
from shared.pipelines.imported import IMPORTED
from shared.pipelines.measured import MEASURED
from shared.runtime.answers import MeasureRequest, Submitted, load_items, submit_imported, submit_measured
from shared.runtime.lifecycle import Amendment, amend
from shared.runtime.lifecycle import cancel as cancel_job
from shared.runtime.lifecycle import pause as pause_job
from shared.runtime.lifecycle import resume as resume_job
from shared.runtime.parameters import check_metric_names, check_read, list_known_paths, parse_params
from shared.runtime.pins import TRUST, Calibrated, calibrate_crag
from shared.runtime.submit import Submission, repeat_submission, submit_once
from shared.shapes import Scope
from shared.storage import configurations, database, jobs
from shared.storage.configurations import SHIPPED, Configuration
from shared.storage.database import TERMINAL, Accepted, KeyedRequest, check_name
from shared.storage.jobs import JobFields, JobSelection, JobSnapshot, JobStateChange, Sort, Waiting

# Request bodies and filters of jobs, decoded strictly: a misspelt parameter is refused, not ignored.


class JobRequest(make_model(JobFields), BaseModel):  # type: ignore[misc]
    """A job to submit."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("JobRequest")},
    )

    params: dict[str, Any] = {}
    """Parameters, nested such as {"gate": {"tau": 0.3}}. The others come from `GET /v1/configuration` or else have
    their defaults."""
    models: dict[Key, Stored] = {}
    """Model names by role, such as {"judge": "world-judge"}."""

    def identity(self) -> dict[str, Any]:
        """Return what its idempotency key stands for. Missing fields are left out, so that keys of releases without
        these fields still match; the first release already had `corpus`.
        """
        return {name: value for name, value in self if value is not None or name == "corpus"}

    def submission(self, holding: Configuration = SHIPPED) -> Submission:
        """Return the request after checking it; parameters that it does not set are taken from `holding`.

        Raises:
            Invalid: a field cannot be used; the message names it.
        """
        fields = self.model_dump(exclude={"params"}) | {"name": check_name(self.name)}
        params = parse_params(self.params, holding.params)
        check_read(self.params, [(self.pipeline, params)])
        if not (params.rrf_weight or params.quality_weight):
            problem = "`params.rrf_weight`: is 0, and so is `quality_weight`, so nothing would order the documents"
            raise Invalid(problem, hint="set at least one of them above 0")
        given = frozenset(list_known_paths(self.params))
        return Submission(params=params, given=given, configuration=holding.version, **fields)


class MeasureBody(BaseModel):
    """What to measure of an ended job."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"params": {"metrics": {"names": ["faithfulness"]}}}},
    )

    name: str | None = None
    """Name of the new job; by default the name of the ended job followed by `-measured`."""
    params: dict[str, Any] = {}
    """Parameters of the group `metrics`; all others are taken from the ended job."""
    models: dict[Key, Stored] = {}
    """Model names by role; only the role `judge` is used."""

    def make_request(self, holding: Configuration, submitted_by: str | None) -> MeasureRequest:
        """Return the request after checking it; parameters that it does not set are taken from `holding`.

        Raises:
            Invalid: a field cannot be used; the message names it.
        """
        if others := sorted(self.params.keys() - {"metrics"}):
            problem = f"`params.{others[0]}`: cannot be changed, because the answers exist already"
            raise Invalid(problem, hint="set only parameters of `params.metrics`")
        return MeasureRequest(
            metrics=parse_params(self.params, holding.params).metrics,
            given=frozenset(list_known_paths(self.params)),
            name=None if self.name is None else check_name(self.name),
            models=self.models,
            configuration=holding.version,
            submitted_by=submitted_by,
        )


class JobChange(make_model(Amendment), BaseModel):  # type: ignore[misc]
    """Fields of a job to change; those that are left out stay."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"rank": 10, "metadata": {"run": "paper-table-2"}}},
    )

    def make_amendment(self) -> Amendment:
        """Return the change after checking it.

        Raises:
            Invalid: the name cannot be used.
        """
        if self.name is not None:
            check_name(self.name)
        return Amendment(**self.model_dump())


class JobFilters(make_model(JobSelection), BaseModel):  # type: ignore[misc]
    """Which jobs to list, and which page of them."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    sort: Sort = "newest"
    """Order of the list; `state` lists running jobs first, followed by failed and cancelled ones."""
    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    """Upper bound of the rows on a page."""
    cursor: str | None = None
    """The `next_cursor` of the previous page; without it, the first page."""

    def make_selection(self) -> JobSelection:
        """Return the filters without the page."""
        return JobSelection(**self.model_dump(exclude={"limit", "cursor", "sort"}))


# A job as the API shows it, with the addresses of everything that belongs to it.


class Links(msgspec.Struct, frozen=True, kw_only=True, rename={"itself": "self"}):
    """Addresses of the resources of a job."""

    itself: str
    """Address of the job."""
    events: str
    """Address of the job's event stream."""
    samples: str
    """Address of the job's samples."""
    results: str
    """Address of the job's results."""
    report: str
    """Address of the job's report."""
    provenance: str
    """Address of the job's provenance."""


class JobView(jobs.Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job with links to its resources."""

    links: Links
    """Addresses of related resources."""
    accuracy: Accuracy | None = None
    """Accuracy as in the job's report; missing until the job has ended."""
    warnings: tuple[str, ...] = ()
    """Warnings about the submission; only in its response."""


def make_view(job: jobs.Job, warnings: Sequence[str] = (), found: Accuracy | None = None) -> JobView:
    """Return `job` with its links; `found` is its accuracy."""
    at = f"/v1/jobs/{job.id}"
    parts = ("events", "samples", "results", "report", "provenance")
    links = Links(itself=at, **{part: f"{at}/{part}" for part in parts})
    return JobView(links=links, accuracy=found, warnings=tuple(warnings), **msgspec.structs.asdict(job))


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


# Serves `/v1/jobs`: submits, shows, changes, pauses, cancels, requeues, reports on and audits jobs.

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
POLL_S = "1"
REPLAYED = "Idempotency-Replayed"
"""Header of an answer that repeats an earlier one."""

JOB = answers(JobView)
ACCEPTED = answers(JobView, status=202)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking the invariants of a job."""

    clean: bool
    """Whether no invariant is violated."""
    violations: list[audit.Violation]
    """The violations, by invariant."""
    source_changed: str | None = None
    """Message that the job's pipeline has changed since the job ran; missing if it has not. The audit is still clean
    if a replay gives the same outcomes."""


@route(router, "POST", "", Scope.SUBMIT, "Submit a job", ACCEPTED, refuses=(404, 409, 429), status_code=202)
async def submit(request: JobRequest, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Submits a job. 202 means that the job is committed to the database and survives the loss of every other
    service. Poll the address in `Location`.

    `warnings` names edited source files that run only after a restart (docs/how-to/operations.md#edited-source-files),
    items whose relation no rule predicts (docs/how-to/knowledge-graphs.md#rulerag), items without an expected
    answer, textual answers that are graded as mathematics, and gold documents that the corpus does not have.

    With an `Idempotency-Key` you can safely repeat the request (docs/how-to/api.md#idempotency). For at least 24
    hours, the same key with the same body answers with the same job. The same key with another body gets 422. A
    repetition while the first request is still being processed gets 409.
    """
    submission = request.submission(await configurations.load_newest(deps.database))
    return await _submit(deps, caller, submission, make_keyed_request(key, "POST /v1/jobs", request.identity()))


@route(
    router, "POST", "/{job}/requeue", Scope.SUBMIT, "Requeue a job", ACCEPTED, refuses=(404, 409, 429), status_code=202
)
async def requeue(job: str, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Submits a new job with the request of a job that has ended. Jobs share replies, so only failed calls are
    computed again (docs/how-to/api.md#pause-and-requeue).

    Answers 409 if the job has not ended.
    """
    public_id = await jobs.resolve_public_id(deps.database, job)
    submission = await repeat_submission(deps.database, public_id)
    return await _submit(deps, caller, submission, make_keyed_request(key, "requeue", str(public_id)))


@route(
    router, "POST", "/{job}/measure", Scope.SUBMIT, "Measure a job", ACCEPTED, refuses=(404, 409, 429), status_code=202
)
async def measure(
    job: str, body: MeasureBody, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey
) -> Response:
    """Measures the answers of a completed job by a new job of the pipeline `measured`, which calls only the judge
    model and does not change the completed job. Failed samples are left out. Grades are reused, and so are metric
    calls that any job has made before (docs/how-to/imports.md#measure-a-job-later).

    Answers 409 if the job has not completed, or has no answers.
    """
    public_id = await jobs.resolve_public_id(deps.database, job)
    request = body.make_request(await configurations.load_newest(deps.database), caller.name)
    asked = [str(public_id), body.model_dump(exclude_none=True)]
    keyed = make_keyed_request(key, "measure", asked)
    accepted = await submit_measured(deps.database, deps.settings, public_id, request, keyed)
    return await _answer_accepted(deps, accepted, MEASURED)


async def _submit(deps: Deps, caller: Caller, submission: Submission, request: KeyedRequest | None) -> Response:
    submission = msgspec.structs.replace(submission, submitted_by=caller.name)
    accepted = await submit_once(deps.database, deps.settings, submission, request)
    return await _answer_accepted(deps, accepted, submission.pipeline)


async def _answer_accepted(deps: Deps, accepted: Accepted, pipeline: str) -> Response:
    deps.wake()
    headers = {"Location": f"/v1/jobs/{accepted.job}", "Retry-After": POLL_S}
    warnings = await to_thread.run_sync(list_edit_warnings, [pipeline])
    warnings += await list_warnings(deps.database, job=accepted.job)
    repeat_submission = {REPLAYED: "true"} if accepted.replayed else {}
    return await _answer(deps, accepted.job, 202, headers | repeat_submission, warnings)


async def _resolve_own(deps: Deps, job: str, caller: Caller) -> uuid.UUID:
    """Find the public id of a job that the caller wants to change.

    Raises:
        NotFound, Conflict: as `jobs.resolve` raises them.
        Forbidden: it is another key's, and the caller is not an operator.
    """
    public_id = await jobs.resolve_public_id(deps.database, job)
    caller.check_owns(await jobs.list_submitters(deps.database, job=public_id), f"job {job}")
    return public_id


async def _answer(
    deps: Deps, job: uuid.UUID, status: int = 200, headers: dict[str, str] | None = None, warnings: Sequence[str] = ()
) -> Response:
    deps.job_views.forget()
    found = await jobs.get(deps.database, str(job))
    return respond_with_tag(make_view(found, warnings), version=found.version, status=status, headers=headers)


@route(router, "GET", "", Scope.READ, "List jobs", answers(database.Page[JobView]) | UNCHANGED, name="listed")
async def list_jobs(deps: RequestDeps, seen: Seen, filters: Annotated[JobFilters, Query()]) -> Response:
    """Lists the jobs, newest first or as `sort` says. A cursor is valid only with the filters and the order of its
    page; otherwise it answers 400.
    """
    return respond_with_tag(await load_page(deps, filters), seen=seen)


async def load_page(deps: Deps, filters: JobFilters) -> database.Page[JobView]:
    """Return a page of the list."""
    found = await jobs.list_jobs(deps.database, filters.limit, filters.cursor, filters.make_selection(), filters.sort)
    return await page(deps, found)


@route(router, "GET", "/{job}", Scope.READ, "Get a job", JOB | UNCHANGED, refuses=(404, 409))
async def get(job: str, deps: RequestDeps, seen: Seen) -> Response:
    """Returns the state, counts, calls by stage, estimate and links of a job. With `If-None-Match` it answers 304
    if nothing has changed (docs/how-to/api.md#tags).

    The state may be 0.1 s old, and the progress 0.5 s, or some seconds for a very large job.
    """
    found = await deps.job_views.get(deps.database, job)
    known = await load_accuracies(deps, [found])
    return respond_with_tag(
        make_view(found, found=known.get(found.id)),
        version=found.version,
        seen=seen,
        headers=None if found.ended else {"Retry-After": POLL_S},
    )


@route(router, "PATCH", "/{job}", Scope.SUBMIT, "Change a job", JOB, refuses=(404, 409, 412, 428))
async def change(
    job: str, request: JobChange, deps: RequestDeps, caller: RequestCaller, versions: RequiredVersions
) -> Response:
    """Changes `name`, `rank` and `metadata` of a job in any state; the rank also applies to its queued calls. Requires
    `If-Match`: another version answers 412, a missing header 428 (docs/how-to/api.md#tags).
    """
    public_id = await _resolve_own(deps, job, caller)
    await amend(deps.database, public_id, request.make_amendment(), versions)
    return await _answer(deps, public_id)


@route(
    router, "POST", "/{job}/cancel", Scope.SUBMIT, "Cancel a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def cancel(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Cancels a job and answers 202 with the state `cancelling`. No new calls start; calls in flight may finish.
    The samples end in batches, 300,000 in about a minute. A second request changes nothing. A job that has ended
    answers 409.
    """
    public_id = await _resolve_own(deps, job, caller)
    await cancel_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(router, "POST", "/{job}/pause", Scope.SUBMIT, "Pause a job", ACCEPTED, refuses=(404, 409, 412), status_code=202)
async def pause(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Pauses a job. No new calls start; calls in flight may finish. A second request changes nothing. A job that
    has ended answers 409 (docs/how-to/api.md#pause-and-requeue).
    """
    public_id = await _resolve_own(deps, job, caller)
    await pause_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(
    router, "POST", "/{job}/resume", Scope.SUBMIT, "Resume a job", ACCEPTED, refuses=(404, 409, 412), status_code=202
)
async def resume(job: str, deps: RequestDeps, caller: RequestCaller, versions: Versions) -> Response:
    """Resumes a paused job at the point where it was paused. A job that is not paused does not change. A job that
    has ended answers 409 (docs/how-to/api.md#pause-and-requeue).
    """
    public_id = await _resolve_own(deps, job, caller)
    await resume_job(deps.database, public_id, versions)
    deps.wake()
    return await _answer(deps, public_id, 202)


@route(router, "GET", "/{job}/report", Scope.READ, "Report", answers(Report), refuses=(404, 409))
async def report(job: str, deps: RequestDeps) -> Response:
    """Returns the accuracy with its interval, the failures, the decisions of the methods, loads, calls made and reused,
    time by stage, and cost (docs/how-to/api.md#reports). The report is final once the job has ended.
    """
    return json(await report_on_job(deps.database, job, deps.settings.models))


@route(router, "GET", "/{job}/audit", Scope.READ, "Check the invariants", answers(Audit), refuses=(404, 409))
async def check(job: str, deps: RequestDeps) -> Response:
    """Checks the invariants of a job from its rows in the database (docs/reference/invariants.md).
    `source_changed` is set if the source of the pipeline has changed since the job ran.
    """
    return json(await audit_job(deps, await jobs.resolve_public_id(deps.database, job)))


async def audit_job(deps: Deps, job: uuid.UUID) -> Audit:
    """Audit the job with this id in its current state."""
    violations = await audit.check_in_thread(deps.database, job)
    changed = await audit.describe_changed_pipeline(deps.database, job)
    return Audit(clean=not violations, violations=violations, source_changed=changed)


# Serves `/v1/jobs/{job}/events`: the changes of a job, as server-sent events.
#
# An event's id encodes everything that its reader has seen by then. A client that reconnects with it, to any process,
# continues exactly there, and the server stores nothing for a client.

events_router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
_EVENT_ID = re.compile(r"(?P<version>\d{1,9})\.(?P<gate>[01])\.(?P<progress>[0-9a-f]{16}|-)")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the stream: three lines, followed by an empty one."""

    event: Literal["state", "gate", "progress"]
    """Type of the event."""
    data: str
    """JSON object: a change of state, the gate's decision, or the progress of the job."""
    id: str
    """Id of the event; send it as `Last-Event-ID` to continue after it."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the job; none of its counts of finished work ever falls."""

    request_counts: jobs.RequestCounts
    stages: dict[str, jobs.StageCount]
    unserved: tuple[str, ...]
    """Models that the job's calls wait for and that no guard serves in the version of the job's submission."""
    waiting: tuple[Waiting, ...]
    """Services that the job's calls need and that are unavailable."""


class StreamPosition(NamedTuple):
    """The events that a client has received so far."""

    version: int = 0
    """Version of the job's last change."""
    gate: bool = False
    progress: str = "-"
    """Digest of the last progress."""

    def __str__(self) -> str:
        return f"{self.version}.{self.gate:d}.{self.progress}"


def parse_event_id(last_event_id: str | None) -> StreamPosition:
    """Parse a Last-Event-ID into the state that its client has seen.

    Raises:
        BadRequest: the id was not issued by this service.
    """
    if last_event_id is None:
        return StreamPosition()
    found = _EVENT_ID.fullmatch(last_event_id)
    if found is None:
        raise BadRequest(
            "`Last-Event-ID`: was not issued by this service",
            hint="send the `id` of the last event, or leave the header out to start from the beginning",
        )
    return StreamPosition(int(found["version"]), found["gate"] == "1", found["progress"])


class StreamMessage(NamedTuple):
    """An event, and the state that its client has seen after it."""

    seen: StreamPosition
    event: ServerSentEvent


def list_messages(snapshot: JobSnapshot, seen: StreamPosition) -> Iterator[StreamMessage]:
    """Yield the messages for a client that has seen `seen`; the job's end comes last."""
    fresh = [change for change in snapshot.changes if change.version > seen.version]
    for change in (change for change in fresh if change.state not in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _make_message("state", change, seen)
    if snapshot.job.gate is not None and not seen.gate:
        seen = seen._replace(gate=True)
        yield _make_message("gate", snapshot.job.gate, seen)
    job = snapshot.job
    stages = job.stages or {}
    progress = Progress(request_counts=job.request_counts, stages=stages, unserved=job.unserved, waiting=job.waiting)
    digest = canonical.digest(progress).hex()[:16]
    if digest != seen.progress:
        seen = seen._replace(progress=digest)
        yield _make_message("progress", progress, seen)
    for change in (change for change in fresh if change.state in TERMINAL):
        seen = seen._replace(version=change.version)
        yield _make_message("state", change, seen)


def _make_message(name: str, data: JobStateChange | jobs.Gate | Progress, seen: StreamPosition) -> StreamMessage:
    return StreamMessage(seen, ServerSentEvent(event=name, raw_data=msgspec.json.encode(data).decode(), id=str(seen)))


async def _check_watch(
    job: str,
    deps: RequestDeps,
    last_event_id: Annotated[
        str | None,
        Header(description="Id of the last event received; the stream continues after it.", examples=["2.0.-"]),
    ] = None,
) -> tuple[JobSnapshot, StreamPosition]:
    """Check the request before the stream begins, so that an error can still be answered with a status.

    Raises:
        HTTPException: with 204, which ends a browser's reconnects, if the client has seen the end of the job.
    """
    seen = parse_event_id(last_event_id)
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    snapshot = await jobs.take_snapshot(deps.database, row)
    if seen.version > snapshot.job.version:
        raise BadRequest(
            "`Last-Event-ID`: belongs to another job", hint="leave the header out to start from the beginning"
        )
    if snapshot.job.ended and not any(list_messages(snapshot, seen)):
        raise HTTPException(204)
    return snapshot, seen


RESPONSES: dict[int | str, Any] = {
    **answers(Event, media="text/event-stream"),
    204: {"description": "The job has ended, and the client has seen all events: it stops reconnecting."},
}


@route(
    events_router, "GET", "/{job}/events", Scope.READ, "Watch a job",
    RESPONSES, refuses=(404, 409, 429), response_class=EventSourceResponse,
)  # fmt: skip
async def events(
    watched: Annotated[tuple[JobSnapshot, StreamPosition], Depends(_check_watch)], deps: RequestDeps
) -> AsyncIterator[ServerSentEvent]:
    """Streams server-sent events until the job ends (docs/how-to/api.md#events): `state` for every change,
    `progress` when counts have changed, `gate` when the gate has decided. The final state comes last.

    A comment every 15 seconds keeps the connection open. With `Last-Event-ID` the stream continues exactly after
    that event. After the last event of a job that has ended, the answer is 204, which makes a browser stop
    reconnecting.
    """
    snapshot, seen = watched
    while True:
        for message in list_messages(snapshot, seen):
            seen = message.seen
            yield message.event
        if snapshot.job.ended:
            return
        snapshot = await deps.polls.wait_for_next(
            ("job", snapshot.row), partial(jobs.take_snapshot, deps.database, snapshot.row)
        )


# Serves `GET /v1/jobs/{job}/calibration`: thresholds for `crag`, estimated from labelled or judged retrieval lists.

Trust = Annotated[
    float,
    Query(
        ge=0.5,
        lt=1,
        description="Minimum share of relevant lists among those that score at least `upper`, and of irrelevant lists"
        " among those that score below `lower`.",
    ),
]

JudgedBy = Annotated[
    str | None, Query(description="Job over the same dataset and corpus whose judge decides which lists are relevant.")
]


@route(
    router, "GET", "/{job}/calibration", Scope.READ, "Calibrate CRAG's thresholds",
    answers(Calibrated), refuses=(404, 409),
)  # fmt: skip
async def calibration(job: str, deps: RequestDeps, trust: Trust = TRUST, judged_by: JudgedBy = None) -> Response:
    """Returns `upper` and `lower` for the evaluator of a `crag` job, with 95 % intervals
    (docs/how-to/retrieval.md#calibration). Its lists must be labelled, either by the dataset's gold documents or by the
    judge of `judged_by`.
    """
    async with deps.database.transaction() as connection:
        return json(await calibrate_crag(connection, job, trust, judged_by))


# Serves `POST /v1/jobs/import`: turns another system's answers into a job that grades them.

imports_router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@route(
    imports_router, "POST", "/import", Scope.SUBMIT, "Import answers", answers(JobView, status=202),
    refuses=(404, 409, 429), status_code=202, openapi_extra=BODY, name="create",
)  # fmt: skip
async def import_answers(
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["theirs"], description="Name of the job.")],
    dataset: Annotated[str, Query(examples=["math-500"], description="Dataset whose items were answered.")],
    upload: Uploaded,
    caller: RequestCaller,
    first_repeat: Annotated[int, Query(ge=0, le=1000, description="Number of an item's first repeat.")] = 0,
    grader: Annotated[str | None, Query(description="Grader of the answers; by default the dataset's.")] = None,
    layout: Annotated[
        Layout | None, Query(description="Program that wrote the log, if the body is one; replaces `format`.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        Query(max_length=20, description="Metric to measure, such as `faithfulness`; repeat it for several."),
    ] = None,
    model: Annotated[
        list[str] | None,
        Query(
            max_length=20, description="Model of a role, such as `judge=world-judge`; by default the configured one."
        ),
    ] = None,
) -> Response:
    """Imports the answers of another system, as JSON lines, CSV or the log of a program, as a job of the pipeline
    `imported`. Its samples are graded like those of any other job (docs/how-to/imports.md). 202 means that all
    answers are stored; the grading continues after the response.

    Items are identified by `id`, by the exact `question`, or by `index`; the answer is in `answer` or `text`. An
    empty answer is wrong. An item gets no sample if it has no line, or if its line says that the other system
    failed (`error`); `warnings` names these items. An unusable line rejects the whole upload; with `on_error=skip`
    the service leaves out these lines and names them in `warnings`.

    `contexts` has the texts of the system's prompt as a list, which metrics read
    (docs/how-to/imports.md#documents).
    """
    columns = make_mapping(upload.pairs, first_repeat)
    holding = await configurations.load_newest(deps.database)
    asked: dict[str, Any] = {"grading": {"grader": grader}} if grader else {}
    params = parse_params(asked | ({"metrics": {"names": metric}} if metric else {}), holding.params)
    check_metric_names(params.metrics)
    submission = Submission(
        name=check_name(name),
        dataset=dataset,
        pipeline=IMPORTED,
        params=params,
        configuration=holding.version,
        models=_parse_models(model or ()),
        submitted_by=caller.name,
    )
    items = await load_items(deps.database, dataset)
    async with upload.read_answers(items, columns, layout) as reader, aclosing(read_batches(reader)) as records:
        submitted = await submit_imported(deps.database, deps.settings, submission, items, records)
    deps.wake()
    deps.job_views.forget()
    found = await jobs.get(deps.database, str(submitted.job))
    headers = {"Location": f"/v1/jobs/{submitted.job}"}
    warnings = await list_warnings(deps.database, job=submitted.job)
    warnings += _list_import_warnings(submitted, reader)
    return respond_with_tag(make_view(found, warnings), version=found.version, status=202, headers=headers)


def _parse_models(pairs: Sequence[str]) -> dict[str, str]:
    found = {role: name for role, _, name in (pair.partition("=") for pair in pairs)}
    if not all(found.values()):
        raise Invalid(
            f"`model`: {next(pair for pair in pairs if not pair.partition('=')[2])!r} is not of the form ROLE=NAME",
            hint="write ROLE=NAME, such as judge=world-judge",
        )
    return found


def _list_import_warnings(submitted: Submitted, reader: Reader[ImportedAnswer]) -> list[str]:
    warnings = []
    if submitted.missing:
        items = format_count(submitted.missing, "item of the dataset has", "items of the dataset have")
        warnings.append(f"{items} no answer and will not be part of the job")
    if submitted.empty:
        places = "; ".join(f"upload, line {line}" for line in submitted.empty[:LISTED])
        answers = format_count(len(submitted.empty), "answer is empty and counts", "answers are empty and count")
        warnings.append(f"{answers} as wrong: {places}")
    if by_order := submitted.matched.get("order"):
        answers = format_count(by_order, "answer was", "answers were")
        warnings.append(
            f"{answers} matched by order, because neither id nor question is in the dataset; compare some of them with "
            "their items"
        )
    if reader.skipped:
        lines = format_count(reader.skipped, "line without an answer was", "lines without an answer were")
        warnings.append(f"{lines} left out, because the other system failed")
    if reader.rejected:
        lines = format_count(reader.rejected, "unusable line was", "unusable lines were")
        warnings.append(f"{lines} left out")
    return [*warnings, *map(str, (*reader.skips, *reader.rejections))]
