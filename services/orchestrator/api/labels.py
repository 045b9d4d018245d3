"""Serves `/v1/labels`: people label the material of a judge or grader without seeing its verdict; measures
agreement."""

from typing import Annotated

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Invalid
from services.orchestrator.access.identity import Actor
from services.orchestrator.api.routes import Limit, answers, json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports import label_agreement
from services.orchestrator.reports.label_agreement import LabelAgreement
from shared.fields import Stored
from shared.runtime.pins import LabelCalibration, calibrate_judge
from shared.shapes import KINDS, LONGEST_NOTE, MOST_TASKS, Scope, What, parse_label
from shared.storage import labels
from shared.storage.database import DEFAULT, Database, Page
from shared.storage.labels import ExportedLabel, Label, LabelSet, LabelSetDraft, LabelTask, NewLabel

router = APIRouter(prefix="/v1/labels/sets", tags=["labels"])


Name = Annotated[str, Path(examples=["reasoning"])]
Number = Annotated[int, Path(ge=1, le=MOST_TASKS, examples=[7], description="Number of the task, from 1.")]
Seed = Annotated[int, Query(ge=0, lt=1 << 31, description="Seed of the intervals' bootstrap resamples.")]
Blind = Annotated[bool, Query(description="`false` also shows the verdict of the judge or the grader.")]


class LabelSetRequest(BaseModel):
    """A label set to create."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, strict=True,
        json_schema_extra={"example": {"name": "reasoning", "job": "gate", "what": "documents", "size": 100}},
    )  # fmt: skip

    name: str
    """Name of the new label set."""
    job: Stored
    """Id or name of the job whose ratings or answers are labelled."""
    what: What = "documents"
    """What to label. `documents`: how well a document reasons; `relevance`: how much it helps; `answers`: whether an
    answer is right; `support`: whether the documents support a sentence of a reply; `sufficient`: whether the documents
    answer the question; `addresses`: whether a reply answers the question."""
    size: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 100
    """Maximum number of tasks."""
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Seed of the draw; another seed draws other tasks."""

    def make_draft(self) -> LabelSetDraft:
        """Return the draft from which the set is drawn."""
        return LabelSetDraft(name=self.name, what=self.what, job=self.job, size=self.size, seed=self.seed)


class LabelRequest(BaseModel):
    """A label: a value of the set's scale, or an abstention."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, strict=True, json_schema_extra={"example": {"value": 4}}
    )

    value: int | str | None = None
    """A value of the set's scale; null for an abstention."""
    abstained: bool = False
    """Set this to true, and leave out `value`, if you cannot decide."""
    blind: bool = True
    """`false` if the labeller saw the verdict of the judge or the grader."""
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""
    """Free text about the label."""

    def to_label(self, what: What) -> NewLabel:
        """Return the label after checking it.

        Raises:
            Invalid: the scale has no such value, or there is neither a value nor an abstention.
        """
        if self.abstained != (self.value is None):
            scale = ", ".join(map(str, KINDS[what].scale))
            raise Invalid("a label needs either a `value` or `abstained: true`", hint=f"one of {scale}")
        try:
            value = None if self.value is None else parse_label(what, str(self.value))
        except ValueError as error:
            raise Invalid(
                f"`value`: {error}", hint="use a value of the scale, or `abstained: true` if you cannot decide"
            ) from error
        return NewLabel(value=value, blind=self.blind, note=self.note)


class NextTask(msgspec.Struct, frozen=True, kw_only=True):
    """The next task that a labeller has not labelled."""

    task: LabelTask | None
    """The task; null if everything is labelled."""
    done: int
    """Number of tasks that this labeller has labelled or abstained from."""
    tasks: int
    """Number of tasks in the set."""


@route(
    router, "POST", "", Scope.SUBMIT, "Create a label set",
    answers(LabelSet) | answers(LabelSet, status=201), refuses=(404, 409), status_code=201,
)  # fmt: skip
async def create(request: LabelSetRequest, deps: RequestDeps, actor: Actor) -> Response:
    """Creates a label set. Its tasks are drawn from ratings or metric labels of an ended job's judge, or from its
    graded answers. Each is drawn once, the same seed draws the same tasks, and all sentences of a reply are drawn
    together. Tasks are copies, so they survive a purge of the job. Answers 200 if the same set exists.
    """
    made, new = await labels.create(deps.database, request.make_draft(), actor)
    return json(made, 201 if new else 200, {"Location": f"/v1/labels/sets/{made.name}"})


@route(router, "GET", "", Scope.READ, "List label sets", answers(Page[LabelSet]), name="listed")
async def list_label_sets(deps: RequestDeps, limit: Limit = DEFAULT, cursor: str | None = None) -> Response:
    """Lists the label sets, newest first, with the progress of each labeller."""
    return json(await labels.list_label_sets(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a label set", answers(LabelSet), refuses=(404,))
async def get(deps: RequestDeps, name: Name) -> Response:
    """Returns the source of a label set, its scale, and the progress of each labeller."""
    async with deps.database.transaction() as connection:
        return json(await labels.get_set(connection, name))


@route(
    router, "GET", "/{name}/next", Scope.READ, "Get the next task",
    answers(NextTask), refuses=(404,),
    name="following",
)  # fmt: skip
async def get_next_task(deps: RequestDeps, actor: Actor, name: Name, *, blind: Blind = True) -> Response:
    """Returns the first task that the owner of this key has not labelled, without the verdict of the judge or the
    grader.
    """
    return json(await load_next_task(deps.database, name, actor, blind=blind))


@route(router, "GET", "/{name}/tasks/{number}", Scope.READ, "Get a task", answers(LabelTask), refuses=(404,))
async def task(deps: RequestDeps, actor: Actor, name: Name, number: Number, *, blind: Blind = True) -> Response:
    """Returns a task with the last label that the owner of this key gave it."""
    async with deps.database.transaction() as connection:
        of = await labels.get_set(connection, name)
        return json(await labels.find_task(connection, of, number, actor, blind=blind))


@route(
    router, "POST", "/{name}/tasks/{number}/labels", Scope.SUBMIT, "Label a task",
    answers(Label) | answers(Label, status=201), refuses=(404,), status_code=201,
)  # fmt: skip
async def give(request: LabelRequest, deps: RequestDeps, actor: Actor, name: Name, number: Number) -> Response:
    """Adds a label. Labels are never overwritten; each labeller's last label of a task counts. Answers 200 if the
    label equals the last one.
    """
    return json(*await add_label(deps.database, name, number, actor, request))


@route(
    router, "GET", "/{name}/export", Scope.READ, "Export labels",
    answers(ExportedLabel, media="application/x-ndjson"), refuses=(404,),
)  # fmt: skip
async def export(deps: RequestDeps, name: Name) -> Response:
    """Exports every label as one line, in the order in which the labels were given, with labeller, time, task and
    value.
    """
    async with deps.database.transaction() as connection:
        of = await labels.get_set(connection, name)
    lines = (
        b"".join(msgspec.json.encode(each) + b"\n" for each in batch)
        async for batch in labels.stream_labels(deps.database, of)
    )
    return StreamingResponse(lines, media_type="application/x-ndjson")


@route(
    router, "GET", "/{name}/agreement", Scope.READ, "Compare labels with the judge",
    answers(LabelAgreement), refuses=(404,),
)  # fmt: skip
async def agreement(
    deps: RequestDeps,
    name: Name,
    *,
    blind: Annotated[bool, Query(description="`false` also counts labels that were not given blindly.")] = True,
    seed: Seed = 0,
) -> Response:
    """Returns Cohen's kappa of each labeller and of the majority with the judge or the grader, and Krippendorff's
    alpha among people, with and without the judge or the grader. All have 95 % intervals over tasks. If the judge
    labelled for a metric, people's labels also correct the metric's mean (docs/how-to/labels.md).
    """
    return json(await measure_agreement(deps.database, name, blind=blind, seed=seed))


@route(
    router, "GET", "/{name}/calibration", Scope.READ, "Calibrate the judge's ratings",
    answers(LabelCalibration), refuses=(404, 409),
)  # fmt: skip
async def calibration(deps: RequestDeps, name: Name) -> Response:
    """Returns a calibrated value for each rating of the judge, from people's blind labels. The value never falls as
    the rating grows. A job uses the calibration with `params.gate.labels`, and keeps it even if more labels follow
    (docs/how-to/labels.md#calibration).
    """
    async with deps.database.snapshot() as connection:
        return json(await calibrate_judge(connection, name))


async def load_next_task(database: Database, name: str, labeller: str, *, blind: bool) -> NextTask:
    """Return the first task that this labeller has not labelled.

    Raises:
        NotFound: the set does not exist.
    """
    async with database.transaction() as connection:
        of = await labels.get_set(connection, name)
        done = of.of(labeller)
        found = await labels.find_next_task(connection, of, labeller, blind=blind)
    return NextTask(task=found, done=done.labels + done.abstained, tasks=of.tasks)


async def add_label(
    database: Database, name: str, number: int, labeller: str, request: LabelRequest
) -> tuple[Label, int]:
    """Add the label, and return it with the status that says whether it is new.

    Raises:
        NotFound: the set or the task does not exist.
        Invalid: the label cannot be used.
    """
    async with database.transaction() as connection:
        of = await labels.get_set(connection, name)
    label, new = await labels.add_label(database, of, number, labeller, request.to_label(of.what))
    return label, 201 if new else 200


async def measure_agreement(database: Database, name: str, *, blind: bool, seed: int) -> LabelAgreement:
    """Measure how far people agree with the judge or the grader, and with each other.

    Raises:
        NotFound: the set does not exist.
    """
    async with database.snapshot() as connection:
        of = await labels.get_set(connection, name)
        counted = await labels.count_labels(connection, of, blind=blind)
        scores = await labels.load_judge_scores(connection, of) if KINDS[of.what].metric else None
    return await to_thread.run_sync(
        lambda: label_agreement.compute_agreement(of, counted, scores, blind=blind, seed=seed)
    )
