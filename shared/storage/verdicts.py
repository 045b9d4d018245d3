"""Values of samples by a measure, added up as counts of items: PostgreSQL matches what jobs have in common.

Two items are the same where question and gold answer are, wherever they stand in whichever dataset; an item that stands
in a dataset twice is one. So jobs of any length come as a few rows.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.measures import ACCURACY, EXACT, Measure, Measured
from shared.statistics.shares import Graded, Table
from shared.storage.sql import fill
from shared.storage.stored import decoded

COLUMNS = {ACCURACY: "correct", EXACT: "strict"}
"""Measures that outcomes have a column for; the others are read from the outcomes themselves."""
UNIT = 1_000_000
"""Scores are whole numbers of 1 / UNIT, so that those that differ by rounding only are equal."""
OUTCOMES = text("""
    SELECT o.sample_id, o.outcome FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item'""")
SHARES = "SELECT job_id, total, n, count(*) AS items FROM by_item GROUP BY job_id, total, n"
COMMON = """
    SELECT p.one, p.other, a.total, a.n, b.total AS other_total, b.n AS other_n, count(*) AS items
    FROM unnest(CAST(:ones AS bigint[]), CAST(:others AS bigint[])) AS p (one, other)
    JOIN by_item a ON a.job_id = p.one JOIN by_item b ON b.job_id = p.other AND b.hash = a.hash
    GROUP BY 1, 2, 3, 4, 5, 6"""
REPEATS = "SELECT job_id, repeat, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, repeat"


def _statements(value: str, source: str) -> dict[str, TextClause]:
    """What is asked of the samples' values, which are whole numbers."""
    values = fill(f"""
        WITH by_sample AS (
            SELECT s.job_id, s.repeat, i.hash, {value} AS value
            FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {{ASKED_BY_SAMPLE}} JOIN {source}
            WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND {value} IS NOT NULL),
        by_item AS MATERIALIZED (
            SELECT job_id, hash, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, hash)
        """)  # noqa: S608 - parts of this module alone
    return {asked: text(values + asked) for asked in (SHARES, COMMON, REPEATS)}


_FROM_COLUMNS = {
    name: _statements(f"CAST(o.{column} AS integer)", "outcomes o ON o.sample_id = s.id")
    for name, column in COLUMNS.items()
}
_GIVEN = _statements(
    "v.value", "unnest(CAST(:samples AS bigint[]), CAST(:values AS integer[])) AS v (sample, value) ON v.sample = s.id"
)


class Readings(NamedTuple):
    """What the samples of jobs are worth by a measure."""

    jobs: list[int]
    measure: Measure
    given: dict[str, list[int]]
    """Of a measure without a column: `samples` with a value, and their `values`."""

    @property
    def unit(self) -> int:
        """How many make 1."""
        return UNIT if self.measure.has_degrees else 1

    def mean(self, total: int, n: int) -> Fraction:
        """Of an item's answers; of a score rounded to a UNIT, too, so that tests can add up whole numbers."""
        return Fraction(total, n) if self.unit == 1 else Fraction(round(total / n), UNIT)

    async def rows(self, connection: AsyncConnection, asked: str, **parameters: Any) -> Sequence[Any]:
        """What one of this module's questions answers."""
        statement = _FROM_COLUMNS.get(self.measure.name, _GIVEN)[asked]
        return (await connection.execute(statement, {"jobs": self.jobs, **self.given, **parameters})).all()


async def readings(connection: AsyncConnection, jobs: Sequence[int], measure: Measure) -> Readings:
    """The values of these jobs' samples; an outcome that this release cannot read has none."""
    numbers = sorted(set(jobs))
    if measure.name in COLUMNS:
        return Readings(numbers, measure, {})
    found = Readings(numbers, measure, {"samples": [], "values": []})
    async for row in await connection.stream(OUTCOMES, {"jobs": numbers}):
        outcome, _ = decoded(row.outcome, Measured, "")
        value = None if outcome is None else measure.value(outcome)
        if value is not None:
            found.given["samples"].append(row.sample_id)
            found.given["values"].append(round(value * found.unit))
    return found


async def shares(connection: AsyncConnection, of: Readings) -> dict[int, Graded]:
    """By job, how many of its items are worth how much in how many answers; nothing where nothing has a value yet."""
    found: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in await of.rows(connection, SHARES):
        found[row.job_id][row.total, row.n] = row.items
    return dict(found)


async def graded(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Graded]:
    """The same by verdict: how many items were answered right how often."""
    return await shares(connection, await readings(connection, jobs, Measure(ACCURACY)))


async def common(
    connection: AsyncConnection, of: Readings, pairs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Table]:
    """By pair of jobs, the items that both have a value for, by their mean values."""
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    found: defaultdict[tuple[int, int], Counter[tuple[Fraction, Fraction]]] = defaultdict(Counter)
    for row in await of.rows(connection, COMMON, ones=ones, others=others):
        found[row.one, row.other][of.mean(row.total, row.n), of.mean(row.other_total, row.other_n)] += row.items
    return dict(found)


async def repeats(connection: AsyncConnection, of: Readings) -> dict[int, dict[int, tuple[float, int]]]:
    """By job and repeat, what its answers are worth together, and how many have a value."""
    found: defaultdict[int, dict[int, tuple[float, int]]] = defaultdict(dict)
    for row in await of.rows(connection, REPEATS):
        found[row.job_id][row.repeat] = row.total / of.unit, row.n
    return dict(found)
