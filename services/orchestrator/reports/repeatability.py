"""Measures whether a judge repeats its ratings when one job asks for them several times with other seeds.

Such ratings exist if a calibration rates its documents more than once (`gate.repeats`), and if a job with
`judge.per_repeat` or `reuse: none` repeats its items. No calls are made for this figure, and the gate always decides
by the first ratings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.intervals import Interval, wilson
from shared.calls import Request
from shared.replies import Rated, Reply
from shared.statistics.agreement import compute_weighted_kappa
from shared.storage import jobs
from shared.storage.database import sql

RATINGS = 5
CALLS = sql("""
    WITH mine AS ({CALLS_OF_JOB})
    SELECT c.request, a.reply FROM mine JOIN calls c ON c.id = mine.call_id AND c.role = 'judge'
    JOIN attempts a ON {ACCEPTED_FOR} c.id""")
MOST = 500
"""Number of calls read at a time."""

_REQUEST = msgspec.json.Decoder(Request)
_REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Repeatability(msgspec.Struct, frozen=True, kw_only=True):
    """How consistently the judge rates the same document by the same rubric for the same question."""

    documents: int
    """Number of documents that were rated at least twice."""
    draws: int
    """Largest number of ratings of one document."""
    temperature: float
    """Sampling temperature of the judge model."""
    same: Interval
    """Share of documents whose ratings are all equal, with Wilson's 95 % interval."""
    agreement: float | None
    """Share of a document's pairs of ratings that are equal, as a mean over documents; null if no document was rated
    twice."""
    difference: float | None
    """Mean absolute difference of a pair of ratings, in steps of the scale from 1 to 5, as a mean over documents; null
    if no document was rated twice."""
    kappa: float | None
    """Cohen's kappa with quadratic weights over all pairs; null if all ratings are equal."""
    unrated: int
    """Number of documents with a reply without a rating; no other figure counts them."""
    table: list[list[int]]
    """Number of pairs by rating (from 1) as `[earlier draw][later draw]`."""


class Ratings:
    """Collects the ratings that were requested several times."""

    def __init__(self) -> None:
        self._draws: defaultdict[bytes, dict[int, int | None]] = defaultdict(dict)

    def add(self, calls: Iterable[tuple[Request, Reply]]) -> None:
        """Count these judge calls, in any order; ratings of replies are left out."""
        for request, reply in calls:
            if "document" not in request.values:
                continue
            key = replace(request, draw=0).key
            self._draws[key][request.draw] = reply.rating if isinstance(reply, Rated) else None

    def figures(self, temperature: float) -> Repeatability | None:
        """Return the figures; None if nothing was rated twice."""
        several = [[draws[draw] for draw in sorted(draws)] for draws in self._draws.values() if len(draws) > 1]
        if not several:
            return None
        known = [[rating for rating in ratings if rating is not None] for ratings in several]
        rated = [ratings for ratings in known if len(ratings) > 1]
        apart = [[abs(one - other) for one, other in combinations(ratings, 2)] for ratings in rated]
        counts = Counter(pair for ratings in rated for pair in combinations(ratings, 2))
        scale = range(1, RATINGS + 1)
        table = [[counts[one, other] for other in scale] for one in scale]
        return Repeatability(
            documents=len(rated),
            draws=max(map(len, several)),
            temperature=temperature,
            same=wilson(sum(not any(steps) for steps in apart), len(rated)),
            agreement=_compute_mean([fmean(step == 0 for step in steps) for steps in apart]),
            difference=_compute_mean([fmean(steps) for steps in apart]),
            kappa=compute_weighted_kappa(table),
            unrated=sum(None in ratings for ratings in several),
            table=table,
        )


def rates_repeatedly(job: jobs.Job) -> bool:
    """Tell whether the job has the same documents rated several times."""
    if job.params is None:
        return False
    repeated = job.repeats > 1 and (job.reuse == "none" or job.params.judge.per_repeat)
    return repeated or job.params.gate.repeats > 1


async def load_repeatability(connection: AsyncConnection, job: int, asked: jobs.Job) -> Repeatability | None:
    """Return the repeatability of the job with this row id; None if it has no document rated twice."""
    if asked.params is None or not rates_repeatedly(asked):
        return None
    ratings = Ratings()
    async for rows in (await connection.stream(CALLS, {"job": job})).partitions(MOST):
        calls = [(_REQUEST.decode(row.request), _REPLY.decode(row.reply)) for row in rows]
        await to_thread.run_sync(ratings.add, calls)
    return await to_thread.run_sync(ratings.figures, asked.params.judge.temperature)


def _compute_mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
