"""`/v1/labels`: people judge documents and answers without seeing what the system said; how far both agree."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.access.identity import Actor
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports import labelled
from services.orchestrator.reports.labelled import LabelAgreement
from shared.contracts.api_keys import Scope
from shared.contracts.fields import Stored
from shared.contracts.labels import KINDS, LONGEST_NOTE, MOST_TASKS, Value, What, parsed
from shared.errors import Invalid
from shared.runtime.judge_calibration import LabelCalibration, calibrated
from shared.storage import label_sets, labels, pages
from shared.storage.database import Database
from shared.storage.label_sets import LabelSet, Wanted
from shared.storage.labels import ExportedLabel, Given, Label, LabelTask

router = APIRouter(prefix="/v1/labels/sets", tags=["labels"])

JOB = "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11"
ONE: dict[str, Any] = {
    "id": 1, "name": "reasoning", "what": "documents", "job": JOB, "job_name": "gate", "purged": False, "seed": 0,
    "size": 100, "eligible": 412, "tasks": 100, "hash": "9f2c…", "made_by": "ana", "created_at": "2026-11-23T08:00:00Z",
    "instructions": KINDS["documents"].instructions, "scale": [1, 2, 3, 4, 5],
    "labellers": [{"labeller": "ana", "labels": 41, "abstained": 1, "same": 30}],
}  # fmt: skip
LABEL: dict[str, Any] = {
    "number": 7, "labeller": "ana", "at": "2026-11-23T08:10:00Z", "blind": True, "value": 4, "abstained": False,
    "note": "",
}  # fmt: skip
TASK: dict[str, Any] = {
    "set": "reasoning", "number": 7, "item": 12, "repeat": 0,
    "content": {"question": "What is 2+3?", "document": "41d0…", "problem": "What is 1+3?", "text": "1+3=4."},
    "system": None, "label": None,
}  # fmt: skip
EXPORTED: dict[str, Any] = {
    **LABEL, "set": "reasoning", "what": "documents", "item": 12, "repeat": 0, "document": "41d0…", "answer": None,
    "system": 3, "counts": True,
}  # fmt: skip
COEFFICIENT: dict[str, Any] = {"value": 0.61, "low": 0.41, "high": 0.78}
HELD: dict[str, Any] = {
    "labeller": None, "compared": 41, "abstained": 1, "same": 30, "kappa": COEFFICIENT, "weighted_kappa": COEFFICIENT,
    "confusion": [[30, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 11, 0, 0], [0, 0, 0, 0, 0]], "note": None,
}  # fmt: skip
NO_ALPHAS: dict[str, Any] = {
    "tasks": 0, "nominal": {"value": None, "low": None, "high": None},
    "ordinal": {"value": None, "low": None, "high": None}, "interval": {"value": None, "low": None, "high": None},
    "note": "0 tasks have labels of two people: figures of agreement begin at 10",
}  # fmt: skip
AGREEMENT: dict[str, Any] = {
    "set": "reasoning", "what": "documents", "scale": [1, 2, 3, 4, 5], "blind": True, "seed": 0,
    "words": "People and the judge say the same of 30 of 41 documents; weighted kappa 0.61 (95 %: 0.41 to 0.78).",
    "tasks": 100, "labelled": 42, "labels": 41, "abstentions": 1, "ties": 0, "majority": HELD,
    "labellers": [{**HELD, "labeller": "ana"}], "people": NO_ALPHAS,
    "with_system": {"tasks": 41, "nominal": COEFFICIENT, "ordinal": COEFFICIENT, "interval": COEFFICIENT, "note": None},
    "disagreements": [{"number": 7, "item": 12, "repeat": 0, "label": 4, "system": 3}],
}  # fmt: skip
CALIBRATION: dict[str, Any] = {
    "set": "reasoning", "hash": "77ab…", "judge": "world-judge", "judge_hash": "c1d2…", "tasks": 41,
    "ratings": [
        {"rating": rating, "tasks": 8, "mean": float(rating), "worth": float(rating)} for rating in range(1, 6)
    ],
}  # fmt: skip

Name = Annotated[str, Path(examples=["reasoning"])]
Number = Annotated[int, Path(ge=1, le=MOST_TASKS, examples=[7], description="Of the task, from 1.")]
Seed = Annotated[int, Query(ge=0, lt=1 << 31, description="Of the intervals' resamples.")]
Blind = Annotated[bool, Query(description="`false` shows what the judge or the grader said, too.")]


class LabelSetRequest(BaseModel):
    """A set as it is asked for."""

    model_config = ConfigDict(
        extra="forbid", strict=True,
        json_schema_extra={"example": {"name": "reasoning", "job": "gate", "what": "documents", "size": 100}},
    )  # fmt: skip

    name: str
    job: Stored
    what: What = "documents"
    """`documents`: how well a document reasons; `relevance`: how much it helps; `answers`: whether one is right."""
    size: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 100
    """Most tasks."""
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Another one draws other tasks."""

    def wanted(self) -> Wanted:
        """The same, to be drawn."""
        return Wanted(name=self.name, what=self.what, job=self.job, size=self.size, seed=self.seed)


class LabelRequest(BaseModel):
    """A label as it is given: a value of the set's scale, or an abstention."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": {"value": 4}})

    value: int | str | None = None
    abstained: bool = False
    """Instead of a value: the labeller cannot say."""
    blind: bool = True
    """`false`: the labeller was shown what the judge or the grader said."""
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""

    def given(self, what: What) -> Given:
        """The same, checked.

        Raises:
            Invalid: the scale has no such value; or there is none, and no abstention either.
        """
        if self.abstained != (self.value is None):
            raise Invalid("a label has either a `value` or `abstained: true`", hint=f"one of {_scale(what)}")
        return Given(value=self._value(what), blind=self.blind, note=self.note)

    def _value(self, what: What) -> Value | None:
        try:
            return None if self.value is None else parsed(what, str(self.value))
        except ValueError as error:
            raise Invalid(f"`value`: {error}", hint="abstain where nobody can say: `abstained: true`") from error


def _scale(what: What) -> str:
    return ", ".join(map(str, KINDS[what].scale))


class NextTask(msgspec.Struct, frozen=True, kw_only=True):
    """What this labeller has not labelled yet."""

    task: LabelTask | None
    """null: everything is labelled."""
    done: int
    """Tasks of this labeller that have a label or an abstention."""
    tasks: int


@route(
    router, "POST", "", Scope.SUBMIT, "Make a label set",
    answers(LabelSet, ONE) | answers(LabelSet, ONE, status=201), refuses=(404, 409), status_code=201,
)  # fmt: skip
async def create(request: LabelSetRequest, deps: RequestDeps, actor: Actor) -> Response:
    """Tasks drawn from what an ended job's judge rated, or from its graded answers, each document or answer once; the
    same seed draws the same. They hold copies: a purge of the job does not touch them. 200 where the same was there.
    """
    made, new = await label_sets.create(deps.database, request.wanted(), actor)
    return json(made, 201 if new else 200, {"Location": f"/v1/labels/sets/{made.name}"})


@route(
    router, "GET", "", Scope.READ, "List label sets",
    answers(pages.Page[LabelSet], {"data": [ONE], "next_cursor": None}),
)  # fmt: skip
async def listed(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first, with how far each labeller is."""
    return json(await label_sets.listed(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a label set", answers(LabelSet, ONE), refuses=(404,))
async def get(deps: RequestDeps, name: Name) -> Response:
    """What it was drawn from, its scale, and how far each labeller is."""
    async with deps.database.transaction() as connection:
        return json(await label_sets.one(connection, name))


@route(
    router, "GET", "/{name}/next", Scope.READ, "Get the next task",
    answers(NextTask, {"task": TASK, "done": 6, "tasks": 100}), refuses=(404,),
)  # fmt: skip
async def following(deps: RequestDeps, actor: Actor, name: Name, *, blind: Blind = True) -> Response:
    """The first task that the owner of this key has not labelled, without what the judge or the grader said."""
    return json(await next_task(deps.database, name, actor, blind=blind))


@route(
    router, "GET", "/{name}/tasks/{number}", Scope.READ, "Get a task",
    answers(LabelTask, {**TASK, "label": LABEL}), refuses=(404,),
)  # fmt: skip
async def task(deps: RequestDeps, actor: Actor, name: Name, number: Number, *, blind: Blind = True) -> Response:
    """With the last label that the owner of this key gave it."""
    async with deps.database.transaction() as connection:
        of = await label_sets.one(connection, name)
        return json(await labels.task(connection, of, number, actor, blind=blind))


@route(
    router, "POST", "/{name}/tasks/{number}/labels", Scope.SUBMIT, "Label a task",
    answers(Label, LABEL) | answers(Label, LABEL, status=201), refuses=(404,), status_code=201,
)  # fmt: skip
async def give(request: LabelRequest, deps: RequestDeps, actor: Actor, name: Name, number: Number) -> Response:
    """Labels are only added, and of each labeller the last one of a task counts. 200 where it was the last already."""
    return json(*await given(deps.database, name, number, actor, request))


@route(
    router, "GET", "/{name}/export", Scope.READ, "Export labels",
    answers(ExportedLabel, EXPORTED, media="application/x-ndjson"), refuses=(404,),
)  # fmt: skip
async def export(deps: RequestDeps, name: Name) -> Response:
    """Every label in the order in which they were given, one a line: who, when, blind or not, of what, which value."""
    async with deps.database.transaction() as connection:
        of = await label_sets.one(connection, name)
    return StreamingResponse(_lines(deps.database, of), media_type="application/x-ndjson")


@route(
    router, "GET", "/{name}/agreement", Scope.READ, "Compare labels with the judge",
    answers(LabelAgreement, AGREEMENT), refuses=(404,),
)  # fmt: skip
async def agreement(
    deps: RequestDeps,
    name: Name,
    *,
    blind: Annotated[bool, Query(description="`false`: labels that were not given blindly count, too.")] = True,
    seed: Seed = 0,
) -> Response:
    """Cohen's kappa of each labeller and of the majority with the judge or the grader, Krippendorff's alpha among
    people and with it, all with 95 % intervals over tasks (docs/labels.md).
    """
    return json(await compared(deps.database, name, blind=blind, seed=seed))


@route(
    router, "GET", "/{name}/calibration", Scope.READ, "Get what the judge's ratings are worth",
    answers(LabelCalibration, CALIBRATION), refuses=(404, 409),
)  # fmt: skip
async def calibration(deps: RequestDeps, name: Name) -> Response:
    """What people's blind labels say of each of the judge's ratings, made to grow with the rating. A job takes it with
    `params.gate.labels`, and keeps it however many labels follow (docs/labels.md#calibration).
    """
    async with deps.database.snapshot() as connection:
        return json(await calibrated(connection, name))


async def next_task(database: Database, name: str, labeller: str, *, blind: bool) -> NextTask:
    """What this labeller has not labelled yet.

    Raises:
        NotFound: there is no such set.
    """
    async with database.transaction() as connection:
        of = await label_sets.one(connection, name)
        done = of.of(labeller)
        found = await labels.following(connection, of, labeller, blind=blind)
    return NextTask(task=found, done=done.labels + done.abstained, tasks=of.tasks)


async def given(database: Database, name: str, number: int, labeller: str, request: LabelRequest) -> tuple[Label, int]:
    """Add the label; also the status that says whether it is new.

    Raises:
        NotFound: no such set or task.
        Invalid: the label cannot be used.
    """
    async with database.transaction() as connection:
        of = await label_sets.one(connection, name)
    label, new = await labels.give(database, of, number, labeller, request.given(of.what))
    return label, 201 if new else 200


async def compared(database: Database, name: str, *, blind: bool, seed: int) -> LabelAgreement:
    """How far people agree with the judge or the grader, and with each other.

    Raises:
        NotFound: there is no such set.
    """
    async with database.snapshot() as connection:
        of = await label_sets.one(connection, name)
        counted = await labels.counted(connection, of, blind=blind)
    return await to_thread.run_sync(lambda: labelled.agreement(of, counted, blind=blind, seed=seed))


async def _lines(database: Database, of: LabelSet) -> AsyncIterator[bytes]:
    async for batch in labels.exported(database, of):
        yield b"".join(msgspec.json.encode(each) + b"\n" for each in batch)
