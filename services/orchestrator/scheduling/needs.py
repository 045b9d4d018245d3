"""Bounds the calls of a job by model and order: its pipeline is run dry, for one question.

For a running job, open calls are counted, and later ones are derived from the positions of its samples. Shared
replies, and a gate that chooses rules, reduce the number; pipelines with loops may increase it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.demands import ModelCalls
from shared.calls import Lane
from shared.params import Params
from shared.pipelines.binding import Bound
from shared.runtime.advance import JobSpec
from shared.runtime.price import MadeUpLibrary, dry_rounds
from shared.samples import Item
from shared.storage.database import sql

Calls = Counter[tuple[int, Lane]]
"""Number of calls by model and lane."""
ITEM = Item(ordinal=0, question="?")

LIVE = sql("""
    SELECT kind, position, count(*) AS samples FROM samples WHERE job_id = :job AND state IN {LIVE}
    GROUP BY kind, position""")
# Calls do not belong to jobs, so a call counts for every job that waits for it.
OPEN = sql("""
    SELECT c.model_id, c.role, count(*) AS calls FROM (
        SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        WHERE s.job_id = :job AND s.state = {WAITING}) mine
    JOIN calls c ON c.id = mine.call_id AND NOT c.failed
    WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} c.id) GROUP BY c.model_id, c.role""")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that a job needs from models."""

    wanted: dict[int, ModelCalls]
    order: tuple[int, ...]
    """Models in the order in which one question needs them."""


class DryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one question's calls, round by round; a round waits for the replies of the one before."""

    calibration: tuple[Calls, ...]
    sample: tuple[Calls, ...]


class Rounds(NamedTuple):
    """The calls of one question, round by round."""

    calibration: list[list[Bound]]
    sample: list[list[Bound]]


def run_dry(job: JobSpec, repeat: int = 0) -> Rounds:
    """Run the job's pipeline on made-up replies; a decision of the gate that exists is kept."""
    library = MadeUpLibrary()
    calibration: list[list[Bound]] = []
    if job.find_pipeline().prepare is not None and job.prepared is None:
        prepare = job.prepare([ITEM], library)
        calibration = list(dry_rounds(job, prepare))
        job = msgspec.structs.replace(job, prepared=prepare.result)
    return Rounds(calibration, list(dry_rounds(job, job.start(ITEM, repeat, library), repeat)))


def count_dry(job: JobSpec) -> DryCounts:
    """Count the distinct calls of each round."""
    found = run_dry(job)
    return DryCounts(calibration=_count_distinct(found.calibration), sample=_count_distinct(found.sample))


def _count_distinct(made: Iterable[list[Bound]]) -> tuple[Calls, ...]:
    """Count each distinct call once, since its repetition is answered from storage."""
    seen: set[bytes] = set()
    counted = []
    for round_ in made:
        new = {bound.key: bound for bound in round_ if bound.key not in seen}
        seen |= new.keys()
        counted.append(Counter((bound.model_id, bound.lane) for bound in new.values()))
    return tuple(counted)


def estimate_new(job: JobSpec, samples: int) -> Needs:
    """Return the needs of a job that is not submitted."""
    found = count_dry(job)
    calls = _multiply_calls(found.calibration, job.params.gate.items) + _multiply_calls(found.sample, samples)
    return _make_needs(found, calls, job.params)


async def estimate_live(connection: AsyncConnection, row: int, job: JobSpec, samples: int) -> Needs:
    """Return the remaining needs of the job with this row id."""
    found = await to_thread.run_sync(count_dry, job)
    left: Calls = Counter()
    for opened in await connection.execute(OPEN, {"job": row}):
        left[opened.model_id, _choose_lane(opened.role)] += opened.calls
    for there in await connection.execute(LIVE, {"job": row}):
        if there.kind == "prepare":
            left += _multiply_calls(found.calibration[there.position :], job.params.gate.items) + _multiply_calls(
                found.sample, samples
            )
        else:
            left += _multiply_calls(found.sample[there.position :], there.samples)
    return _make_needs(found, left, job.params)


def _multiply_calls(counted: Iterable[Calls], times: int) -> Calls:
    total: Calls = Counter()
    for calls in counted:
        for key, n in calls.items():
            total[key] += n * times
    return total


def _choose_lane(role: str) -> Lane:
    return Lane.GENERATE if role == "generate" else Lane.JUDGE


def _make_needs(found: DryCounts, calls: Calls, params: Params) -> Needs:
    """Leave out models without calls; a model in two lanes counts for the one that comes first."""
    judged = params.grading.decoding.max_tokens if params.grading.grader == "rubric" else 0
    tokens = {Lane.JUDGE: max(params.judge.max_tokens, judged), Lane.GENERATE: params.generate.max_tokens}
    wanted: dict[int, ModelCalls] = {}
    for (model, lane), n in sorted(calls.items(), key=lambda each: list(Lane).index(each[0][1])):
        wanted[model] = ModelCalls(lane=lane, calls=n, tokens=tokens[lane]).combine(wanted.get(model))
    order = [
        model for counted in (*found.calibration, *found.sample) for model, _ in sorted(counted) if model in wanted
    ]
    return Needs(wanted=wanted, order=_drop_repeats([*order, *(model for model in wanted if model not in order)]))


def _drop_repeats(order: list[int]) -> tuple[int, ...]:
    return tuple(model for n, model in enumerate(order) if n == 0 or order[n - 1] != model)
