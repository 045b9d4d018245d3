"""What an experiment would come to, before anything of it is made: cells, jobs, calls, loads, time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.experiments.calls import Sized, Slot, at_most
from services.orchestrator.experiments.grid import WEIGHTS, Grid, ratio
from services.orchestrator.scheduling import needs
from services.orchestrator.scheduling.demands import Wanted
from services.orchestrator.scheduling.live import merged
from services.orchestrator.scheduling.needs import Needs
from shared.contracts.experiments import Experiment
from shared.runtime.drafting import Draft

DOCUMENTS = text("SELECT id, documents FROM corpora WHERE id = ANY(:corpora)")
UPPER = (
    "calls are upper ends: replies that are stored already, a gate that chooses rules and equal contexts make it fewer;"
    " pipelines with loops may make it more"
)
ONCE = "counted once: what follows from the question alone, and ratings of a document; all else counts for each job"

APART = "nothing is shared: with `reuse: none` every job computes all its calls, and every repeat draws its own"


class RoleCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    most: int
    """Of all jobs together, with what they share counted once as far as it can be known."""
    apart: int
    """If the jobs shared nothing."""


class Work(NamedTuple):
    """What all jobs ask together."""

    calls: dict[str, RoleCalls]
    """By role."""
    needs: Needs
    """Of models, for the plan of loads and time."""


async def sized(connection: AsyncConnection, drafts: Sequence[Draft]) -> list[Sized]:
    """The jobs with what their calls are multiplied by."""
    corpora = sorted({draft.corpus for draft in drafts if draft.corpus is not None})
    documents = {row.id: row.documents for row in await connection.execute(DOCUMENTS, {"corpora": corpora})}
    return [
        Sized(
            spec=draft.spec,
            dataset=draft.dataset,
            items=draft.items,
            repeats=draft.submission.repeats,
            corpus=draft.corpus,
            documents=documents.get(draft.corpus, 0),
        )
        for draft in drafts
    ]


def work(jobs: Sequence[Sized]) -> Work:
    """Every job's pipeline is run dry; a hundred jobs take a second, so this belongs into a thread."""
    together, apart = at_most(jobs), Counter[Slot]()
    for job in jobs:
        apart += at_most([job])
    alone = merged([needs.of_new(job.spec, job.items * job.repeats) for job in jobs])
    return Work(calls=_by_role(together, apart), needs=_shared(alone, together))


def _by_role(together: Mapping[Slot, int], apart: Mapping[Slot, int]) -> dict[str, RoleCalls]:
    roles = sorted({slot.role for slot in apart})
    return {role: RoleCalls(most=_of(together, role), apart=_of(apart, role)) for role in roles}


def _of(counted: Mapping[Slot, int], role: str) -> int:
    return sum(count for slot, count in counted.items() if slot.role == role)


def _shared(alone: Needs, together: Mapping[Slot, int]) -> Needs:
    """The same models in the same order, with as many calls as they get together."""
    calls: Counter[int] = Counter()
    for slot, count in together.items():
        calls[slot.model_id] += count
    wanted: dict[int, Wanted] = {
        model: msgspec.structs.replace(each, calls=calls[model]) for model, each in alone.wanted.items()
    }
    return msgspec.structs.replace(alone, wanted=wanted)


def notes(asked: Experiment, grid: Grid) -> list[str]:
    """What a reader must know before believing a figure."""
    return [*_weights(asked.grid), *_sharing(grid), ONCE if asked.reuse == "all" else APART, UPPER]


def _weights(points: Mapping[str, Sequence[Any]]) -> list[str]:
    """How many ratios a grid of weights has."""
    if not points.keys() >= set(WEIGHTS):
        return []
    ratios = [ratio(rrf, quality) for rrf, quality in product(*(points[name] for name in WEIGHTS))]
    known = [each for each in ratios if each is not None]
    return [f"of {len(ratios)} pairs of weights {len(known)} have a ratio, and {len(set(known))} ratios are distinct"]


def _sharing(grid: Grid) -> list[str]:
    run = sum(cell.job is not None for cell in grid.cells)
    refused = [] if run == len(grid.cells) else [f"{len(grid.cells) - run} cells will not be run: they have no order"]
    shared = run - len(grid.jobs)
    return refused + ([f"{shared} cells share the job of another cell: they ask the same"] if shared else [])
