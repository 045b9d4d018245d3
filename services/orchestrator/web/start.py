"""Serves `/`: the newest results, or the steps to a first result."""

from typing import NamedTuple

from fastapi import APIRouter, Response

from services.orchestrator.api.jobs import JobFilters, load_page
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages import charts
from shared.pipelines.mine_rules import MINE_RULES
from shared.pipelines.write_questions import WRITE_QUESTIONS
from shared.settings import make_shipped_models
from shared.storage import jobs
from shared.storage.corpora import list_corpora
from shared.storage.datasets import list_datasets

router = APIRouter()
WITHOUT_RESULTS = (MINE_RULES, WRITE_QUESTIONS)
NEWEST = 10
"""Number of results that are shown; the list of jobs has all."""
LOOKED_AT = 5 * NEWEST
"""Number of completed jobs among which results are looked for: a job that mines rules has none."""
LIVE = 5
"""Number of running jobs that are shown."""


class Step(NamedTuple):
    """A step on the way to the first result."""

    name: str
    done: bool
    path: str
    """Page about it."""
    words: str
    command: str
    """Command that takes the step."""


@page(router, "/")
async def start(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the newest results and the running jobs; without a result, the four steps to the first one."""
    found = await load_page(deps, JobFilters(state="completed", limit=LOOKED_AT))
    results = [(job, as_json(job.accuracy)) for job in found.data if job.pipeline not in WITHOUT_RESULTS][:NEWEST]
    async with deps.database.statement() as connection:
        live = await jobs.list_live_ids(connection, LIVE)
    running = [await deps.job_views.get(deps.database, each) for each in live]
    return visit.show(
        "start/start.html", title="Start", json=f"/v1/jobs?state=completed&limit={NEWEST}",
        results=results, running=running, charts=charts,
        steps=[] if results else await _list_steps(deps, has_job=bool(live)),
    )  # fmt: skip


async def _list_steps(deps: Deps, *, has_job: bool) -> list[Step]:
    documents = await list_corpora(deps.database, 1)
    questions = await list_datasets(deps.database, 1)
    return [
        Step(
            "Model", _has_real_model(deps), "/models/connect", "Connect a model that answers; without one, the shipped"
            " models answer, which know nothing but the demonstration.", "mathrag model connect",
        ),
        Step(
            "Documents", bool(documents.data), "/corpora", "Upload the documents that are searched.",
            "mathrag corpus create NAME --from FILE",
        ),
        Step(
            "Questions", bool(questions.data), "/datasets", "Upload questions with their right answers.",
            "mathrag dataset create NAME --from FILE",
        ),
        Step(
            "Run", has_job, "/submit", "Submit a job, which answers and grades the questions.",
            "mathrag job submit --name NAME --dataset NAME --corpus NAME --pipeline hybrid",
        ),
    ]  # fmt: skip


def _has_real_model(deps: Deps) -> bool:
    """Tell whether a model other than the shipped ones answers by default."""
    shipped = make_shipped_models().values()
    return any(deps.settings.models.get(name) not in shipped for name in deps.settings.roles.values())
