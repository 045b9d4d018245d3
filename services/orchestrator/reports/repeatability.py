"""Whether a judge says the same again: ratings that one job asked for several times, by other draws of its seed.

There are such where a calibration rates its documents more than once (`gate.repeats`), and where a job with
`judge.per_repeat` or `reuse: none` repeats its items. Nothing else is asked for them, and the gate decides by the first
ratings as ever.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.replies import Rated, Reply
from shared.contracts.requests import Request
from shared.statistics.agreement import weighted_kappa
from shared.statistics.intervals import Interval, wilson
from shared.storage import jobs
from shared.storage.sql import sql

RATINGS = 5
CALLS = sql("""
    WITH mine AS ({CALLS_OF_JOB})
    SELECT c.request, a.reply FROM mine JOIN calls c ON c.id = mine.call_id AND c.role = 'judge'
    JOIN attempts a ON {ACCEPTED_FOR} c.id""")
MOST = 500
"""Calls that are looked at in one go."""

_REQUEST = msgspec.json.Decoder(Request)
_REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Repeatability(msgspec.Struct, frozen=True, kw_only=True):
    """How far the judge repeats its ratings (of one document, by one rubric, for one question)."""

    documents: int
    """Rated at least twice."""
    draws: int
    """Ratings of a document, at most."""
    temperature: float
    same: Interval
    """Share of the documents whose ratings are all the same, with Wilson's 95 % interval."""
    agreement: float | None
    """Share of pairs of ratings that are the same, mean over documents; None: no document was rated twice."""
    difference: float | None
    """Mean absolute difference of a pair, in steps of the scale from 1 to 5, mean over documents."""
    kappa: float | None
    """Cohen's, weighted quadratically, over all pairs; None where all ratings are the same."""
    unrated: int
    """Documents that some reply holds no rating of; it is in no other figure."""
    table: list[list[int]]
    """Pairs by rating (from 1): [earlier draw][later draw]."""


class Ratings:
    """Collects what was asked several times."""

    def __init__(self) -> None:
        self._draws: defaultdict[bytes, dict[int, int | None]] = defaultdict(dict)

    def add(self, calls: Iterable[tuple[Request, Reply]]) -> None:
        """Count these judge calls in, in whatever order they come; ratings of replies are left out."""
        for request, reply in calls:
            if "document" not in request.values:
                continue
            key = replace(request, draw=0).key
            self._draws[key][request.draw] = reply.rating if isinstance(reply, Rated) else None

    def figures(self, temperature: float) -> Repeatability | None:
        """What they add up to; None where nothing was asked twice."""
        several = [[draws[draw] for draw in sorted(draws)] for draws in self._draws.values() if len(draws) > 1]
        if not several:
            return None
        known = [[rating for rating in ratings if rating is not None] for ratings in several]
        rated = [ratings for ratings in known if len(ratings) > 1]
        apart = [[abs(one - other) for one, other in combinations(ratings, 2)] for ratings in rated]
        table = _table(rated)
        return Repeatability(
            documents=len(rated),
            draws=max(map(len, several)),
            temperature=temperature,
            same=wilson(sum(not any(steps) for steps in apart), len(rated)),
            agreement=_mean([fmean(step == 0 for step in steps) for steps in apart]),
            difference=_mean([fmean(steps) for steps in apart]),
            kappa=weighted_kappa(table),
            unrated=sum(None in ratings for ratings in several),
            table=table,
        )


async def repeatability(connection: AsyncConnection, job: int, asked: jobs.Job) -> Repeatability | None:
    """Of the job with this row id; None where it asks for nothing twice."""
    if asked.params is None:
        return None
    anew = asked.repeats > 1 and (asked.reuse == "none" or asked.params.judge.per_repeat)
    if not anew and asked.params.gate.repeats == 1:
        return None
    ratings = Ratings()
    async for rows in (await connection.stream(CALLS, {"job": job})).partitions(MOST):
        calls = [(_REQUEST.decode(row.request), _REPLY.decode(row.reply)) for row in rows]
        await to_thread.run_sync(ratings.add, calls)
    return await to_thread.run_sync(ratings.figures, asked.params.judge.temperature)


def _table(rated: Sequence[Sequence[int]]) -> list[list[int]]:
    counts = Counter(pair for ratings in rated for pair in combinations(ratings, 2))
    scale = range(1, RATINGS + 1)
    return [[counts[one, other] for other in scale] for one in scale]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
