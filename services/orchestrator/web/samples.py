"""Serves `/jobs/{job}/samples`: the samples of a job, filtered by the query of the address."""

import uuid
from collections import OrderedDict

from fastapi import APIRouter, Response

from services.orchestrator.api.samples import SampleFilters
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import Visitor, page
from shared.pages.pages import format_query
from shared.rag.provenance import Ending
from shared.samples import Strategy
from shared.storage import jobs, samples
from shared.storage.database import SampleState
from shared.storage.jobs import Subjects

router = APIRouter()
CACHE_SIZE = 256
_subjects: OrderedDict[uuid.UUID, Subjects] = OrderedDict()
"""Subjects by job, cached: they never change, and counting them reads the whole dataset."""


@page(router, "/jobs/{job}/samples")
async def list_samples(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Lists the samples in dataset order."""
    filters = visit.query(SampleFilters)
    of = await deps.job_views.get(deps.database, job)
    found = await samples.list_samples(
        deps.database, str(of.id), filters.limit, filters.cursor, filters.make_selection()
    )
    query = filters.model_dump(mode="json", exclude={"cursor"}, exclude_defaults=True)
    query |= {name: str(value).lower() for name, value in query.items() if isinstance(value, bool)}
    return visit.show(
        "samples/samples.html", title=f"Samples of {of.name}", json=f"/v1/jobs/{of.id}/samples{format_query(query)}",
        job=of, found=found, query=query, first=filters.cursor is not None, subjects=await _load_subjects(deps, of.id),
        states=[state.word for state in SampleState], endings=[each.value for each in Ending],
        scorers=[each.value for each in Strategy], once=uuid.uuid4().hex,
    )  # fmt: skip


async def _load_subjects(deps: Deps, job: uuid.UUID) -> Subjects:
    if job not in _subjects:
        _subjects[job] = await jobs.load_subjects(deps.database, str(job))
        while len(_subjects) > CACHE_SIZE:
            _subjects.popitem(last=False)
    return _subjects[job]
