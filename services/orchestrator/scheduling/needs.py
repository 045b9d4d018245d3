"""Which calls a job makes, of which models and in which order, at most: its pipeline is run dry, for one question.

Of a job that runs, what is open is counted, and what is to come follows from where its samples are. Replies that are
shared, and a gate that chooses rules, make it fewer calls; pipelines with loops may make it more.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.demands import Wanted
from shared.contracts.calls import Lane
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.pipelines.binding import Bound
from shared.runtime.jobs import JobSpec
from shared.runtime.price import MadeUp, dry_rounds
from shared.storage.sql import sql

Calls = Counter[tuple[int, Lane]]
"""By model and lane."""
ITEM = Item(ordinal=0, question="?")

LIVE = sql("""
    SELECT kind, position, count(*) AS samples FROM samples WHERE job_id = :job AND state IN {LIVE}
    GROUP BY kind, position""")
# A call belongs to no job, so it counts for every job that waits for it.
OPEN = sql("""
    SELECT c.model_id, c.role, count(*) AS calls FROM (
        SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        WHERE s.job_id = :job AND s.state = {WAITING}) mine
    JOIN calls c ON c.id = mine.call_id AND NOT c.failed
    WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} c.id) GROUP BY c.model_id, c.role""")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks of models."""

    wanted: dict[int, Wanted]
    order: tuple[int, ...]
    """Models as one question needs them, one after another."""


class Dry(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one question, round by round; a round waits for the replies of the one before."""

    calibration: tuple[Calls, ...]
    sample: tuple[Calls, ...]


class Rounds(NamedTuple):
    """The same, call by call."""

    calibration: list[list[Bound]]
    sample: list[list[Bound]]


def rounds(job: JobSpec, repeat: int = 0) -> Rounds:
    """The job's pipeline on made-up replies; a gate that was decided stays as it is."""
    library = MadeUp()
    calibration: list[list[Bound]] = []
    if job.installed().prepare is not None and job.prepared is None:
        prepare = job.prepare([ITEM], library)
        calibration = list(dry_rounds(job, prepare))
        job = msgspec.structs.replace(job, prepared=prepare.result)
    return Rounds(calibration, list(dry_rounds(job, job.start(ITEM, repeat, library), repeat)))


def dry(job: JobSpec) -> Dry:
    """How many calls that are, each once."""
    found = rounds(job)
    return Dry(calibration=_counted(found.calibration), sample=_counted(found.sample))


def _counted(made: Iterable[list[Bound]]) -> tuple[Calls, ...]:
    """Each call once: asked again it is answered already."""
    seen: set[bytes] = set()
    counted = []
    for round_ in made:
        new = {bound.key: bound for bound in round_ if bound.key not in seen}
        seen |= new.keys()
        counted.append(Counter((bound.model_id, bound.lane) for bound in new.values()))
    return tuple(counted)


def of_new(job: JobSpec, samples: int) -> Needs:
    """Of a job that is not submitted."""
    found = dry(job)
    calls = _times(found.calibration, job.params.gate.items) + _times(found.sample, samples)
    return _needs(found, calls, job.params)


async def of_live(connection: AsyncConnection, row: int, job: JobSpec, samples: int) -> Needs:
    """Of the job with this row id: what is left of it."""
    found = await to_thread.run_sync(dry, job)
    left: Calls = Counter()
    for opened in await connection.execute(OPEN, {"job": row}):
        left[opened.model_id, _lane(opened.role)] += opened.calls
    for there in await connection.execute(LIVE, {"job": row}):
        if there.kind == "prepare":
            left += _times(found.calibration[there.position :], job.params.gate.items) + _times(found.sample, samples)
        else:
            left += _times(found.sample[there.position :], there.samples)
    return _needs(found, left, job.params)


def _times(counted: Iterable[Calls], times: int) -> Calls:
    total: Calls = Counter()
    for calls in counted:
        for key, n in calls.items():
            total[key] += n * times
    return total


def _lane(role: str) -> Lane:
    return Lane.GENERATE if role == "generate" else Lane.JUDGE


def _needs(found: Dry, calls: Calls, params: Params) -> Needs:
    """Models without calls are left out; a model of two lanes counts for the one that comes first."""
    judged = params.grading.decoding.max_tokens if params.grading.grader == "rubric" else 0
    tokens = {Lane.JUDGE: max(params.judge.max_tokens, judged), Lane.GENERATE: params.generate.max_tokens}
    wanted: dict[int, Wanted] = {}
    for (model, lane), n in sorted(calls.items(), key=lambda each: list(Lane).index(each[0][1])):
        wanted[model] = Wanted(lane=lane, calls=n, tokens=tokens[lane]).beside(wanted.get(model))
    order = [
        model for counted in (*found.calibration, *found.sample) for model, _ in sorted(counted) if model in wanted
    ]
    return Needs(wanted=wanted, order=_without_repeats([*order, *(model for model in wanted if model not in order)]))


def _without_repeats(order: list[int]) -> tuple[int, ...]:
    return tuple(model for n, model in enumerate(order) if n == 0 or order[n - 1] != model)
