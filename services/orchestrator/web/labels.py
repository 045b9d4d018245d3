"""Serves `/labels`: people label the material of a judge or grader without seeing its verdict."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Response

from mathrag.errors import Conflict
from services.orchestrator.api.labels import (
    LabelRequest,
    LabelSetRequest,
    Name,
    Number,
    Seed,
    add_label,
    load_next_task,
    measure_agreement,
)
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, go_to, page, parse_as
from shared.pages.charts import draw_whisker
from shared.pages.pages import format_query
from shared.runtime.pins import calibrate_judge
from shared.shapes import KINDS, Scope
from shared.storage import database, jobs, labels
from shared.storage.jobs import JobSelection

router = APIRouter()
ABSTAIN = "abstain"
"""Value that the button for abstention sends."""
SHADES = 5
"""Number of shades for the cells of a confusion matrix."""

Blind = Annotated[bool, Query()]


@page(router, "/labels")
async def list_sets(
    visit: Visitor, deps: RequestDeps, cursor: Annotated[str | None, Query()] = None, job: Annotated[str, Query()] = ""
) -> Response:
    """Lists the label sets, newest first, with the progress of each labeller; `job` prefills the form for a new set."""
    found = await labels.list_label_sets(deps.database, database.DEFAULT, cursor)
    ended = await jobs.list_jobs(deps.database, database.DEFAULT, None, JobSelection(state="completed"))
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
    """Creates a set as `POST /v1/labels/sets` does."""
    request = parse_as(LabelSetRequest, {"name": name, "job": job, "what": what, "size": size, "seed": seed})
    made, _ = await labels.create(deps.database, request.make_draft(), visit.actor)
    return go_to(f"/labels/{made.name}")


@page(router, "/labels/{name}")
async def show_next_task(visit: Visitor, deps: RequestDeps, name: Name, *, blind: Blind = True) -> Response:
    """Shows the first task that this visitor has not labelled."""
    found = await load_next_task(deps.database, name, visit.actor, blind=blind)
    return await _show_task(visit, deps, name, found.task, blind=blind, path=f"/v1/labels/sets/{name}/next")


@page(router, "/labels/{name}/tasks/{number}")
async def show_task(visit: Visitor, deps: RequestDeps, name: Name, number: Number, *, blind: Blind = True) -> Response:
    """Shows a task, which can be labelled again."""
    async with deps.database.transaction() as connection:
        of = await labels.get_set(connection, name)
        task = await labels.find_task(connection, of, number, visit.actor, blind=blind)
    return await _show_task(visit, deps, name, task, blind=blind, path=f"/v1/labels/sets/{name}/tasks/{number}")


async def _show_task(
    visit: Visitor, deps: RequestDeps, name: str, task: labels.LabelTask | None, *, blind: bool, path: str
) -> Response:
    async with deps.database.transaction() as connection:
        of = await labels.get_set(connection, name)
    query = format_query({} if blind else {"blind": "false"})
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
    """Adds a label as `POST /v1/labels/sets/{name}/tasks/{number}/labels` does, then shows the next task."""
    verdict = {"abstained": True} if value == ABSTAIN else {"value": value}
    label = parse_as(LabelRequest, {**verdict, "note": note, "blind": blind})
    await add_label(deps.database, name, number, visit.actor, label)
    return go_to(f"/labels/{name}" + format_query({} if blind else {"blind": "false"}))


@page(router, "/labels/{name}/agreement")
async def agreement(visit: Visitor, deps: RequestDeps, name: Name, *, blind: Blind = True, seed: Seed = 0) -> Response:
    """Shows how far people agree with the judge or the grader, and with each other."""
    found = await measure_agreement(deps.database, name, blind=blind, seed=seed)
    async with deps.database.snapshot() as connection:
        of = await labels.get_set(connection, name)
        # The calibration of the judge's ratings; None if there are too few labels, or if they do not rate the
        # documents' reasoning.
        try:
            worth = await calibrate_judge(connection, of.name)
        except Conflict:
            worth = None
    query = format_query({"seed": seed or None, "blind": None if blind else "false"})
    most = max(max(row) for row in found.majority.confusion)
    shades = [[-(-SHADES * count // most) if most else 0 for count in row] for row in found.majority.confusion]
    return visit.show(
        "labels/agreement.html", title=f"Agreement of {name}", json=f"/v1/labels/sets/{name}/agreement{query}",
        of=of, found=found, judged_by=KINDS[of.what].judged_by, whisker=draw_whisker,
        shades=shades, worth=worth,
    )  # fmt: skip
