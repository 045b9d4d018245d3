"""Verdicts of jobs as counts of items: what they have in common is matched and added up by PostgreSQL.

Two items are the same where question and gold answer are, wherever they stand in whichever dataset; an item that stands
in a dataset twice is one. So jobs of any length come as a few rows.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.statistics.shares import Graded, Table
from shared.storage.sql import fill

VERDICTS = fill("""
    WITH verdicts AS MATERIALIZED (
        SELECT s.job_id, i.hash, count(*) FILTER (WHERE o.correct) AS correct, count(*) AS graded
        FROM samples s JOIN jobs j ON j.id = s.job_id
        JOIN items i ON {ASKED_BY_SAMPLE} JOIN outcomes o ON o.sample_id = s.id
        WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND o.correct IS NOT NULL GROUP BY s.job_id, i.hash)""")
SHARES = text(f"""{VERDICTS}
    SELECT job_id, correct, graded, count(*) AS items FROM verdicts GROUP BY job_id, correct, graded""")  # noqa: S608
COMMON = text(f"""{VERDICTS}
    SELECT p.one, p.other, a.correct, a.graded, b.correct AS other_correct, b.graded AS other_graded, count(*) AS items
    FROM unnest(CAST(:ones AS bigint[]), CAST(:others AS bigint[])) AS p (one, other)
    JOIN verdicts a ON a.job_id = p.one JOIN verdicts b ON b.job_id = p.other AND b.hash = a.hash
    GROUP BY 1, 2, 3, 4, 5, 6""")  # noqa: S608
REPEATS = text("""
    SELECT s.job_id, s.repeat, count(*) FILTER (WHERE o.correct) AS correct, count(*) AS graded
    FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND o.correct IS NOT NULL GROUP BY s.job_id, s.repeat""")


async def shares(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Graded]:
    """By job, how many of its items were answered right how often; nothing where nothing has a verdict yet."""
    found: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in await connection.execute(SHARES, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.correct, row.graded] = row.items
    return dict(found)


async def common(connection: AsyncConnection, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Table]:
    """By pair of jobs, the items that both have a verdict for, by the shares of right answers."""
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    values = {"jobs": sorted({*ones, *others}), "ones": ones, "others": others}
    found: defaultdict[tuple[int, int], Counter[tuple[Fraction, Fraction]]] = defaultdict(Counter)
    for row in await connection.execute(COMMON, values):
        share = Fraction(row.correct, row.graded), Fraction(row.other_correct, row.other_graded)
        found[row.one, row.other][share] += row.items
    return dict(found)


async def repeats(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, dict[int, tuple[int, int]]]:
    """By job and repeat, its (right, graded) answers."""
    found: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in await connection.execute(REPEATS, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.repeat] = row.correct, row.graded
    return dict(found)
