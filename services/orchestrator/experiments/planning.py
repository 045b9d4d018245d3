"""Estimates an experiment before anything is created: cells, jobs, calls, loads and time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.experiments.calls import SizedJob, Slot, bound_calls
from services.orchestrator.experiments.grid import WEIGHTS, Grid, format_ratio
from services.orchestrator.scheduling import needs
from services.orchestrator.scheduling.demands import ModelCalls
from services.orchestrator.scheduling.live import merge_needs
from services.orchestrator.scheduling.needs import Needs
from shared.params import Experiment
from shared.plurals import format_count
from shared.runtime.submit import Draft

DOCUMENTS = text("SELECT id, documents FROM corpora WHERE id = ANY(:corpora)")
UPPER = (
    "calls are upper bounds: stored replies, a gate that chooses rules, and equal contexts reduce the number;"
    " pipelines with loops may increase it"
)
ONCE = "counted once: what follows from the question alone, and ratings of a document; all else counts for each job"

APART = "nothing is shared: with `reuse: none` every job computes all its calls, and every repeat draws its own"


class RoleCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    most: int
    """Upper bound for all jobs together, with shared calls counted once as far as sharing can be known."""
    apart: int
    """Upper bound if the jobs shared nothing."""


class ExperimentWork(NamedTuple):
    """The calls of all jobs together."""

    calls: dict[str, RoleCalls]
    """Calls by role."""
    needs: Needs
    """Calls by model, for the plan of loads and time."""


async def load_sizes(connection: AsyncConnection, drafts: Sequence[Draft]) -> list[SizedJob]:
    """Return the jobs with the numbers by which their calls are multiplied."""
    corpora = sorted({draft.corpus for draft in drafts if draft.corpus is not None})
    documents = {row.id: row.documents for row in await connection.execute(DOCUMENTS, {"corpora": corpora})}
    return [
        SizedJob(
            spec=draft.spec,
            dataset=draft.dataset,
            items=draft.items,
            repeats=draft.submission.repeats,
            corpus=draft.corpus,
            documents=documents.get(draft.corpus, 0),
        )
        for draft in drafts
    ]


def count_work(jobs: Sequence[SizedJob]) -> ExperimentWork:
    """Run every job's pipeline dry and count. Call it in a thread: a hundred jobs take a second."""
    together, apart = bound_calls(jobs), Counter[Slot]()
    for job in jobs:
        apart += bound_calls([job])
    alone = merge_needs([needs.estimate_new(job.spec, job.items * job.repeats) for job in jobs])
    return ExperimentWork(calls=_count_by_role(together, apart), needs=_share(alone, together))


def _count_by_role(together: Mapping[Slot, int], apart: Mapping[Slot, int]) -> dict[str, RoleCalls]:
    roles = sorted({slot.role for slot in apart})
    return {role: RoleCalls(most=_count_role(together, role), apart=_count_role(apart, role)) for role in roles}


def _count_role(counted: Mapping[Slot, int], role: str) -> int:
    return sum(count for slot, count in counted.items() if slot.role == role)


def _share(alone: Needs, together: Mapping[Slot, int]) -> Needs:
    """Return the same models in the same order, with the calls that they get from all jobs together."""
    calls: Counter[int] = Counter()
    for slot, count in together.items():
        calls[slot.model_id] += count
    wanted: dict[int, ModelCalls] = {
        model: msgspec.structs.replace(each, calls=calls[model]) for model, each in alone.wanted.items()
    }
    return msgspec.structs.replace(alone, wanted=wanted)


def list_notes(asked: Experiment, grid: Grid) -> list[str]:
    """Return what a reader must know before trusting a figure."""
    return [*_describe_weights(asked.grid), *_describe_sharing(grid), ONCE if asked.reuse == "all" else APART, UPPER]


def _describe_weights(points: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return how many distinct ratios a grid of weights has."""
    if not points.keys() >= set(WEIGHTS):
        return []
    ratios = [format_ratio(rrf, quality) for rrf, quality in product(*(points[name] for name in WEIGHTS))]
    known = [each for each in ratios if each is not None]
    return [f"of {len(ratios)} pairs of weights {len(known)} have a ratio, and {len(set(known))} ratios are distinct"]


def _describe_sharing(grid: Grid) -> list[str]:
    run = sum(cell.job is not None for cell in grid.cells)
    refused = format_count(
        len(grid.cells) - run, "cell will not be run: its weights define", "cells will not be run: their weights define"
    )
    shared = run - len(grid.jobs)
    sharing = format_count(shared, "cell shares", "cells share")
    return [
        *([f"{refused} no order"] if run < len(grid.cells) else []),
        *([f"{sharing} the job of another cell with the same request"] if shared else []),
    ]
