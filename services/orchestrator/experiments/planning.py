"""Plan an experiment: its cells, their jobs, and the calls that these share."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.messages import format_count
from services.orchestrator.experiments.grid import WEIGHTS, Grid, format_ratio
from services.orchestrator.scheduling import demands
from services.orchestrator.scheduling.demands import ModelCalls, Needs
from services.orchestrator.scheduling.scheduler import merge_needs
from shared.calls import DocumentRef, Lane, Request
from shared.experiments import Experiment
from shared.pipelines.binding import Bound
from shared.runtime.advance import JobSpec
from shared.runtime.submit import Draft

_REQUEST = msgspec.json.Decoder(Request)


class SizedJob(NamedTuple):
    """A job with the numbers by which its calls are multiplied."""

    spec: JobSpec
    dataset: int
    items: int
    repeats: int
    corpus: int | None
    documents: int
    """Number of documents in its corpus."""


class Slot(NamedTuple):
    """A key of the counts."""

    role: str
    model_id: int
    lane: Lane


class _SharedCalls(NamedTuple):
    """Equal calls, which are made once, by the first job that needs them."""

    slot: Slot
    identity: object
    times: int
    most: int
    """Upper bound for all jobs together; 0 if only the jobs' own counts bound it."""


def bound_calls(jobs: Sequence[SizedJob]) -> Counter[Slot]:
    """Return the upper bound of the calls of all jobs together, counting shared calls once as far as sharing can be
    known in advance.

    Each job's pipeline is run dry, for one question, on made-up replies. Three things are known without real replies:

    * A call of the first round depends on the question alone, so jobs with the same request make it once for each
      question.
    * A call that holds one document and no question, such as a judge's rating, is made at most once for each document
      of the corpus, by all jobs together.
    * For all other calls it is unknown whether two jobs make the same one, so each job counts its own.

    Stored replies, a gate that chooses rules, and equal contexts reduce the number; pipelines with loops may increase
    it.
    """
    asked: Counter[tuple[Slot, object]] = Counter()
    bounds: dict[tuple[Slot, object], int] = {}
    for number, job in enumerate(jobs):
        for each in _list_calls(number, job):
            key = (each.slot, each.identity)
            asked[key] += each.times
            bounds[key] = max(each.most, bounds.get(key, 0))
    total: Counter[Slot] = Counter()
    for key, times in asked.items():
        total[key[0]] += min(times, bounds[key]) if bounds[key] else times
    return total


def _list_calls(number: int, job: SizedJob) -> Iterator[_SharedCalls]:
    """Yield the calls of the job with this number."""
    apart = {pin.model_id for pin in job.spec.binding.pins.values() if not pin.pinned}
    for bound, first, times in _bound_each_call(job):
        request = _REQUEST.decode(bound.body)
        slot = Slot(bound.role, bound.model_id, bound.lane)
        # Replies of a model without a digest are not shared between jobs.
        whose = number if bound.model_id in apart else None
        if first:
            yield _SharedCalls(slot, (whose, job.dataset, bound.key), times, times)
        elif isinstance(request.values.get("document"), DocumentRef) and "question" not in request.values:
            values = {name: value for name, value in request.values.items() if name != "document"}
            key = msgspec.structs.replace(request, values=values).key
            yield _SharedCalls(slot, (whose, job.corpus, key), times, job.documents * job.repeats)
        else:
            yield _SharedCalls(slot, (number, bound.key), times, 0)


def _bound_each_call(job: SizedJob) -> Iterator[tuple[Bound, bool, int]]:
    """Yield each distinct call of one question, whether it is of the first round, and how many calls of its kind are
    made.
    """
    found, seen = demands.run_dry(job.spec), set[bytes]()
    again = {bound.key for calls in demands.run_dry(job.spec, 1).sample for bound in calls}
    # The calibration's items and those that control the metrics are also samples: calls that both make are made once.
    params = job.spec.params
    controls = demands.count_controls(params, job.items)
    controlled = demands.run_dry_with_control(job.spec).sample if controls else []
    for rounds, items in (
        (found.sample, job.items), (found.calibration, min(params.gate.items, job.items)), (controlled, controls)
    ):  # fmt: skip
        draws = 1
        for place, calls in enumerate(rounds):
            if rounds is found.sample and not {bound.key for bound in calls} <= again:
                # If every repeat draws a reply again, the calls that depend on it may also differ.
                draws = job.repeats
            for bound in calls:
                if bound.key not in seen:
                    seen.add(bound.key)
                    yield bound, place == 0, items * draws


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
    """Upper bound for all jobs together; calls that are known to be shared count once."""
    apart: int
    """Upper bound if the jobs shared no calls."""


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
    alone = merge_needs([demands.estimate_new(job.spec, job.items * job.repeats) for job in jobs])
    roles = sorted({slot.role for slot in apart})
    by_role = {role: RoleCalls(most=_count_role(together, role), apart=_count_role(apart, role)) for role in roles}
    calls: Counter[int] = Counter()
    for slot, count in together.items():
        calls[slot.model_id] += count
    wanted: dict[int, ModelCalls] = {
        model: msgspec.structs.replace(each, calls=calls[model]) for model, each in alone.wanted.items()
    }
    return ExperimentWork(calls=by_role, needs=msgspec.structs.replace(alone, wanted=wanted))


def _count_role(counted: Mapping[Slot, int], role: str) -> int:
    return sum(count for slot, count in counted.items() if slot.role == role)


def list_notes(asked: Experiment, grid: Grid) -> list[str]:
    """Return warnings about the figures."""
    notes = []
    if asked.grid.keys() >= set(WEIGHTS):
        ratios = [format_ratio(rrf, quality) for rrf, quality in product(*(asked.grid[name] for name in WEIGHTS))]
        known = [each for each in ratios if each is not None]
        pairs = f"of {len(ratios)} pairs of weights {len(known)} have a ratio"
        notes.append(f"{pairs}, and {len(set(known))} ratios are distinct")
    run = sum(cell.job is not None for cell in grid.cells)
    if refused := len(grid.cells) - run:
        one, several = "cell will not be run: its weights define", "cells will not be run: their weights define"
        notes.append(f"{format_count(refused, one, several)} no order")
    if shared := run - len(grid.jobs):
        sharing = format_count(shared, "cell shares", "cells share")
        notes.append(f"{sharing} the job of another cell with the same request")
    return [*notes, ONCE if asked.reuse == "all" else APART, UPPER]
