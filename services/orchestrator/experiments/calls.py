"""How many calls an experiment makes at most, with what its jobs share counted once as far as that can be known.

Each job's pipeline is run dry, for one question, on made-up replies. What is known without real ones:

* A call of the first round follows from the question alone, so jobs that ask it alike make it once for each question.
* A call that holds one document and no question, such as a judge's rating, is made at most once for each document of
  the corpus, by all jobs together.
* Of everything else it is not known whether two jobs will ask the same: it counts for each job.

Replies that are stored already, a gate that chooses rules and equal contexts make it fewer calls; pipelines with loops
may make it more.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from services.orchestrator.scheduling import needs
from shared.contracts.calls import Lane
from shared.contracts.requests import DocumentRef, Request
from shared.pipelines.binding import Bound
from shared.runtime.jobs import JobSpec

_REQUEST = msgspec.json.Decoder(Request)


class Sized(NamedTuple):
    """A job with what its calls are multiplied by."""

    spec: JobSpec
    dataset: int
    items: int
    repeats: int
    corpus: int | None
    documents: int
    """Of its corpus."""


class Slot(NamedTuple):
    """What is counted apart."""

    role: str
    model_id: int
    lane: Lane


class _Asked(NamedTuple):
    """Calls that are the same call: whoever asks first has it made."""

    slot: Slot
    identity: object
    times: int
    most: int
    """However many jobs ask; 0: no bound but the jobs' own."""


def at_most(jobs: Sequence[Sized]) -> Counter[Slot]:
    """Calls of all jobs together."""
    asked: Counter[tuple[Slot, object]] = Counter()
    bounds: dict[tuple[Slot, object], int] = {}
    for number, job in enumerate(jobs):
        for each in _asked(number, job):
            key = (each.slot, each.identity)
            asked[key] += each.times
            bounds[key] = max(each.most, bounds.get(key, 0))
    total: Counter[Slot] = Counter()
    for key, times in asked.items():
        total[key[0]] += min(times, bounds[key]) if bounds[key] else times
    return total


def _asked(number: int, job: Sized) -> Iterator[_Asked]:
    """What the job with this number asks."""
    apart = {pin.model_id for pin in job.spec.binding.pins.values() if not pin.pinned}
    for bound, first, times in _calls(job):
        request = _REQUEST.decode(bound.body)
        slot = Slot(bound.role, bound.model_id, bound.lane)
        # A model without a digest answers each job anew.
        whose = number if bound.model_id in apart else None
        if first:
            yield _Asked(slot, (whose, job.dataset, bound.key), times, times)
        elif _rates(request):
            yield _Asked(slot, (whose, job.corpus, _without_document(request)), times, job.documents * job.repeats)
        else:
            yield _Asked(slot, (number, bound.key), times, 0)


def _calls(job: Sized) -> Iterator[tuple[Bound, bool, int]]:
    """Each distinct call of one question, whether it is of the first round, and how often one like it is made."""
    found, seen = needs.rounds(job.spec), set[bytes]()
    again = {bound.key for calls in needs.rounds(job.spec, 1).sample for bound in calls}
    # The calibration's items are among the samples': what both ask is asked once.
    for rounds, items in ((found.sample, job.items), (found.calibration, min(job.spec.params.gate.items, job.items))):
        draws = 1
        for place, calls in enumerate(rounds):
            if rounds is found.sample and not {bound.key for bound in calls} <= again:
                # What follows from a reply that every repeat draws anew may differ in every repeat, too.
                draws = job.repeats
            for bound in calls:
                if bound.key not in seen:
                    seen.add(bound.key)
                    yield bound, place == 0, items * draws


def _rates(request: Request) -> bool:
    """Whether it holds one document and no question."""
    return isinstance(request.values.get("document"), DocumentRef) and "question" not in request.values


def _without_document(request: Request) -> bytes:
    values = {name: value for name, value in request.values.items() if name != "document"}
    return msgspec.structs.replace(request, values=values).key
