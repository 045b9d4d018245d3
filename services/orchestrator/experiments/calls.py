"""Bounds the number of calls of an experiment, counting shared calls once as far as sharing can be known in advance.

Each job's pipeline is run dry, for one question, on made-up replies. Three things are known without real replies:

* A call of the first round depends on the question alone, so jobs with the same request make it once for each
  question.
* A call that holds one document and no question, such as a judge's rating, is made at most once for each document of
  the corpus, by all jobs together.
* For all other calls it is unknown whether two jobs make the same one, so each job counts its own.

Stored replies, a gate that chooses rules, and equal contexts reduce the number; pipelines with loops may increase
it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from services.orchestrator.scheduling import needs
from shared.calls import DocumentRef, Lane, Request
from shared.pipelines.binding import Bound
from shared.runtime.advance import JobSpec

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
    """Return the upper bound of the calls of all jobs together."""
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
        elif _is_rating(request):
            yield _SharedCalls(slot, (whose, job.corpus, _remove_document(request)), times, job.documents * job.repeats)
        else:
            yield _SharedCalls(slot, (number, bound.key), times, 0)


def _bound_each_call(job: SizedJob) -> Iterator[tuple[Bound, bool, int]]:
    """Yield each distinct call of one question, whether it is of the first round, and how many calls of its kind are
    made.
    """
    found, seen = needs.run_dry(job.spec), set[bytes]()
    again = {bound.key for calls in needs.run_dry(job.spec, 1).sample for bound in calls}
    # The calibration's items are also samples, so calls that both make are made once.
    for rounds, items in ((found.sample, job.items), (found.calibration, min(job.spec.params.gate.items, job.items))):
        draws = 1
        for place, calls in enumerate(rounds):
            if rounds is found.sample and not {bound.key for bound in calls} <= again:
                # If every repeat draws a reply anew, the calls that depend on it may also differ.
                draws = job.repeats
            for bound in calls:
                if bound.key not in seen:
                    seen.add(bound.key)
                    yield bound, place == 0, items * draws


def _is_rating(request: Request) -> bool:
    """Return whether the request holds one document and no question."""
    return isinstance(request.values.get("document"), DocumentRef) and "question" not in request.values


def _remove_document(request: Request) -> bytes:
    values = {name: value for name, value in request.values.items() if name != "document"}
    return msgspec.structs.replace(request, values=values).key
