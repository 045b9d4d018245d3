"""`/labels`: people judge documents and answers without seeing what the system said."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.api.labels import (
    LabelRequest,
    LabelSetRequest,
    Name,
    Number,
    Seed,
    compared,
    given,
    next_task,
)
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, go_to, page, parsed
from shared.contracts.api_keys import Scope
from shared.contracts.labels import KINDS
from shared.errors import Conflict
from shared.pages.charts.whiskers import whisker
from shared.pages.pages import address
from shared.runtime.judge_calibration import LabelCalibration, calibrated
from shared.storage import job_list, label_sets, labels, pages
from shared.storage.job_list import Filters
from shared.storage.label_sets import LabelSet

router = APIRouter()
ABSTAIN = "abstain"
"""What the button sends that gives no value."""
SHADES = 5
"""Of the cells of a confusion."""

Blind = Annotated[bool, Query()]


@page(router, "/labels")
async def listed(
    visit: Visitor, deps: RequestDeps, cursor: Annotated[str | None, Query()] = None, job: Annotated[str, Query()] = ""
) -> Response:
    """Sets, newest first, with how far everybody is; `job` fills in the form that draws one."""
    found = await label_sets.listed(deps.database, pages.DEFAULT, cursor)
    ended = await job_list.listed(deps.database, pages.DEFAULT, None, Filters(state="completed"))
    return visit.show(
        "labels/list.html", title="Labels", json="/v1/labels/sets", found=found, first=cursor is not None,
        kinds=KINDS, job=job, ended=[each.name for each in ended.data],
        mine={each.name: each.of(visit.actor) for each in found.data},
    )  # fmt: skip


@page(router, "/labels", Scope.SUBMIT, method="POST")
async def create(
    visit: Visitor,
    deps: RequestDeps,
    name: Annotated[str, Form()],
    job: Annotated[str, Form()],
    what: Annotated[str, Form()],
    size: Annotated[str, Form()],
    seed: Annotated[str, Form()],
) -> Response:
    """As `POST /v1/labels/sets`."""
    asked = parsed(LabelSetRequest, {"name": name, "job": job, "what": what, "size": size, "seed": seed})
    made, _ = await label_sets.create(deps.database, asked.wanted(), visit.actor)
    return go_to(f"/labels/{made.name}")


@page(router, "/labels/{name}")
async def following(visit: Visitor, deps: RequestDeps, name: Name, *, blind: Blind = True) -> Response:
    """The first task that this visitor has not labelled."""
    found = await next_task(deps.database, name, visit.actor, blind=blind)
    return await _task(visit, deps, name, found.task, blind=blind, path=f"/v1/labels/sets/{name}/next")


@page(router, "/labels/{name}/tasks/{number}")
async def one(visit: Visitor, deps: RequestDeps, name: Name, number: Number, *, blind: Blind = True) -> Response:
    """A task to look at, or to label again."""
    async with deps.database.transaction() as connection:
        of = await label_sets.one(connection, name)
        task = await labels.task(connection, of, number, visit.actor, blind=blind)
    return await _task(visit, deps, name, task, blind=blind, path=f"/v1/labels/sets/{name}/tasks/{number}")


async def _task(
    visit: Visitor, deps: RequestDeps, name: str, task: labels.LabelTask | None, *, blind: bool, path: str
) -> Response:
    async with deps.database.transaction() as connection:
        of = await label_sets.one(connection, name)
    query = address({} if blind else {"blind": "false"})
    title = f"Task {task.number} of {name}" if task else f"Labels of {name}"
    return visit.show(
        "labels/task.html", title=title, json=path + query, of=of, task=task, blind=blind,
        query=query, mine=of.of(visit.actor), judged_by=KINDS[of.what].judged_by,
    )  # fmt: skip


@page(router, "/labels/{name}/tasks/{number}", Scope.SUBMIT, method="POST")
async def give(
    visit: Visitor,
    deps: RequestDeps,
    name: Name,
    number: Number,
    value: Annotated[str, Form()],
    note: Annotated[str, Form()] = "",
    *,
    blind: Annotated[bool, Form()] = True,
) -> Response:
    """As `POST /v1/labels/sets/{name}/tasks/{number}/labels`; the next task follows."""
    said = {"abstained": True} if value == ABSTAIN else {"value": value}
    label = parsed(LabelRequest, {**said, "note": note, "blind": blind})
    await given(deps.database, name, number, visit.actor, label)
    return go_to(f"/labels/{name}" + address({} if blind else {"blind": "false"}))


@page(router, "/labels/{name}/agreement")
async def agreement(visit: Visitor, deps: RequestDeps, name: Name, *, blind: Blind = True, seed: Seed = 0) -> Response:
    """How far people agree with the judge or the grader, and with each other."""
    found = await compared(deps.database, name, blind=blind, seed=seed)
    async with deps.database.transaction() as connection:
        of = await label_sets.one(connection, name)
        worth = await _worth(connection, of)
    query = address({"seed": seed or None, "blind": None if blind else "false"})
    return visit.show(
        "labels/agreement.html", title=f"Agreement of {name}", json=f"/v1/labels/sets/{name}/agreement{query}",
        of=of, found=found, judged_by=KINDS[of.what].judged_by, whisker=whisker,
        shades=_shades(found.majority.confusion), worth=worth,
    )  # fmt: skip


async def _worth(connection: AsyncConnection, of: LabelSet) -> LabelCalibration | None:
    """What the judge's ratings are worth; None: there are too few labels, or none of documents' reasoning."""
    try:
        return await calibrated(connection, of.name)
    except Conflict:
        return None


def _shades(confusion: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """How dark each cell is: 0 where nothing is, `SHADES` where most is."""
    most = max(max(row) for row in confusion)
    return [[-(-SHADES * count // most) if most else 0 for count in row] for row in confusion]
