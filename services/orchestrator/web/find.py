"""Serves `/find`: the search box of every page, which finds jobs, samples, documents and settings."""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from services.orchestrator.api import pipelines
from services.orchestrator.api.configuration import list_settings
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import GROUPS, Visit, Visitor, page
from shared.pages.pages import format_query
from shared.pipelines import registry
from shared.shapes import Scope
from shared.storage import database
from shared.storage.corpora import list_corpora
from shared.storage.datasets import list_datasets
from shared.storage.jobs import Job, JobSelection, list_jobs
from shared.storage.samples import SampleSelection, list_samples

router = APIRouter()
MOST = 10
"""Number of hits of each kind."""
SEARCHED = 3
"""Number of the newest jobs whose samples are searched."""
WINDOW = 10_000
"""Upper bound of the samples that are searched in each of them; the list of a job's samples searches all."""


class FindQuery(BaseModel):
    """What to find."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=100, pattern=r"^[^\x00]*$")] = ""


class Hit(NamedTuple):
    """Something that was found."""

    name: str
    path: str
    words: str = ""


@page(router, "/find")
async def find(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists pages, jobs, samples, documents and settings whose name or text contains the words."""
    text = visit.query(FindQuery).text
    found = await _find(visit, deps, text) if text else {}
    return visit.show(
        "find/find.html", title="Find", text=text, found={kind: hits for kind, hits in found.items() if hits}
    )


async def _find(visit: Visit, deps: Deps, text: str) -> dict[str, list[Hit]]:
    """Find `text`, ignoring case."""
    word = text.casefold()
    links = [link for links in GROUPS.values() for link in links if visit.may(link.scope)]
    jobs = (await list_jobs(deps.database, MOST, None, JobSelection(name_contains=text))).data
    newest = (await list_jobs(deps.database, SEARCHED, None, JobSelection(state="completed"))).data
    corpora = (await list_corpora(deps.database, database.LARGEST)).data
    datasets = (await list_datasets(deps.database, database.LARGEST)).data
    collections = [
        *(Hit(each.name, f"/corpora/{each.name}", "corpus") for each in corpora),
        *(Hit(each.name, f"/datasets/{each.name}", "dataset") for each in datasets),
    ]
    return {
        "Pages": [Hit(link.name, link.path) for link in links if word in link.name.casefold()],
        "Jobs": [Hit(job.name, f"/jobs/{job.id}", f"{job.pipeline}, {job.state}") for job in jobs],
        f"Samples of the newest {SEARCHED} results": [
            hit for job in newest for hit in await _find_samples(deps, job, text)
        ],
        "Corpora and datasets": [each for each in collections if word in each.name.casefold()][:MOST],
        "Documents": [
            Hit(
                f"Search {each.name}",
                f"/search{format_query({'corpus': each.name, 'q': text})}",
                "for these words",
            )
            for each in corpora[:MOST]
        ],
        "Settings": _find_settings(visit, deps, word)[:MOST],
    }


async def _find_samples(deps: Deps, job: Job, text: str) -> list[Hit]:
    found = await list_samples(deps.database, str(job.id), SEARCHED, None, SampleSelection(text=text), WINDOW)
    hits = [
        Hit(
            f"{job.name}, sample {each.index}",
            f"/jobs/{job.id}/samples/{each.index}{format_query({'repeat': each.repeat or None})}", each.question[:200],
        )
        for each in found.data
    ]  # fmt: skip
    if found.next_cursor:
        hits.append(Hit(f"All samples of {job.name}", f"/jobs/{job.id}/samples{format_query({'text': text})}"))
    return hits


def _find_settings(visit: Visit, deps: Deps, word: str) -> list[Hit]:
    """Find parameters of jobs, and, for operators, settings of the service."""
    found = []
    for each in pipelines.parameters():
        if word in each.path.casefold() or word in each.help.casefold():
            reader = next((name for name in registry.list_offered() if not registry.get(name).ignores(each.path)), None)
            found.append(Hit(each.path, f"/pipelines/{reader}" if reader else "/configuration", each.help))
    settings = list_settings(deps.settings) if visit.may(Scope.OPERATE) else []
    found += [
        Hit(each.name, "/configuration", "setting of the service") for each in settings if word in each.name.casefold()
    ]
    return sorted(found, key=lambda each: (not each.name.casefold().startswith(word), word not in each.name.casefold()))
