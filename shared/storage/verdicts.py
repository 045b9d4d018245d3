"""Add up the samples' values of a measure by item in PostgreSQL, so that jobs of any length yield few rows.

The figures of one job count every line of its dataset as an item, like its report. In pairs of jobs two items are the
same if question and gold answer are equal, in any dataset and at any position; an item that a dataset lists twice is
one observation there.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.measures import ACCURACY, EXACT, Measure, Measured
from shared.statistics.shares import Graded, Table
from shared.storage.decoding import try_decode
from shared.storage.sql import fill_names

COLUMNS = {ACCURACY: "correct", EXACT: "strict"}
"""Measures with a column in `outcomes`; the others are read from the encoded outcomes."""
UNIT = 1_000_000
"""Scores are integers in units of 1 / UNIT, so that scores that differ only by rounding are equal."""
OUTCOMES = text("""
    SELECT o.sample_id, o.outcome FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item'""")
SHARES = """
    SELECT job_id, total, n, count(*) AS items
    FROM (SELECT job_id, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, ordinal) by_item
    GROUP BY job_id, total, n"""
COMMON = """,
        by_question AS MATERIALIZED (
            SELECT job_id, hash, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, hash)
    SELECT p.one, p.other, a.total, a.n, b.total AS other_total, b.n AS other_n, count(*) AS items
    FROM unnest(CAST(:ones AS bigint[]), CAST(:others AS bigint[])) AS p (one, other)
    JOIN by_question a ON a.job_id = p.one JOIN by_question b ON b.job_id = p.other AND b.hash = a.hash
    GROUP BY 1, 2, 3, 4, 5, 6"""
QUESTIONS = "SELECT job_id, count(DISTINCT hash) AS questions FROM by_sample GROUP BY job_id"
# Only items with a value in every repeat that has any: the others would make repeats differ by their questions.
REPEATS = """,
        by_job AS (SELECT job_id, count(DISTINCT repeat) AS repeats FROM by_sample GROUP BY job_id),
        counted AS (SELECT *, count(*) OVER (PARTITION BY job_id, ordinal) AS values_of_item FROM by_sample)
    SELECT c.job_id, c.repeat, sum(c.value) AS total, count(*) AS n
    FROM counted c JOIN by_job b ON b.job_id = c.job_id AND b.repeats = c.values_of_item
    GROUP BY c.job_id, c.repeat"""
EXTRACTIONS = text("""
    SELECT s.job_id, o.extraction, count(*) AS answers FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' GROUP BY s.job_id, o.extraction ORDER BY s.job_id, o.extraction""")


def _statements(value: str, source: str) -> dict[str, TextClause]:
    """Build the statements over the samples' integer values."""
    values = fill_names(f"""
        WITH by_sample AS (
            SELECT s.job_id, s.ordinal, s.repeat, i.hash, {value} AS value
            FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {{ASKED_BY_SAMPLE}} JOIN {source}
            WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND {value} IS NOT NULL)""")  # noqa: S608 - parts of this module alone
    return {asked: text(values + asked) for asked in (SHARES, COMMON, QUESTIONS, REPEATS)}


_FROM_COLUMNS = {
    name: _statements(f"CAST(o.{column} AS integer)", "outcomes o ON o.sample_id = s.id")
    for name, column in COLUMNS.items()
}
_GIVEN = _statements(
    "v.value", "unnest(CAST(:samples AS bigint[]), CAST(:values AS integer[])) AS v (sample, value) ON v.sample = s.id"
)


class SampleValues(NamedTuple):
    """The values of jobs' samples by a measure."""

    jobs: list[int]
    measure: Measure
    given: dict[str, list[int]]
    """For a measure without a column, the `samples` with a value and their `values`."""

    @property
    def unit(self) -> int:
        """The integer that stands for a value of 1."""
        return UNIT if self.measure.has_degrees else 1

    def mean(self, total: int, n: int) -> Fraction:
        """Return the mean value of an item's answers; scores are rounded to a UNIT, so that tests add integers."""
        return Fraction(total, n) if self.unit == 1 else Fraction(round(total / n), UNIT)

    async def rows(self, connection: AsyncConnection, asked: str, **parameters: Any) -> Sequence[Any]:
        """Run one of this module's statements."""
        statement = _FROM_COLUMNS.get(self.measure.name, _GIVEN)[asked]
        return (await connection.execute(statement, {"jobs": self.jobs, **self.given, **parameters})).all()


async def load_values(connection: AsyncConnection, jobs: Sequence[int], measure: Measure) -> SampleValues:
    """Load the values of these jobs' samples; outcomes that this release cannot read have none."""
    numbers = sorted(set(jobs))
    if measure.name in COLUMNS:
        return SampleValues(numbers, measure, {})
    found = SampleValues(numbers, measure, {"samples": [], "values": []})
    async for row in await connection.stream(OUTCOMES, {"jobs": numbers}):
        outcome, _ = try_decode(row.outcome, Measured, "")
        value = None if outcome is None else measure.value(outcome)
        if value is not None:
            found.given["samples"].append(row.sample_id)
            found.given["values"].append(round(value * found.unit))
    return found


async def count_shares(connection: AsyncConnection, of: SampleValues) -> dict[int, Graded]:
    """Count each job's items by (total value, number of answers); jobs without values are left out."""
    found: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in await of.rows(connection, SHARES):
        found[row.job_id][row.total, row.n] = row.items
    return dict(found)


async def count_verdicts(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Graded]:
    """Count each job's items by (correct answers, number of answers)."""
    return await count_shares(connection, await load_values(connection, jobs, Measure(ACCURACY)))


async def count_common(
    connection: AsyncConnection, of: SampleValues, pairs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Table]:
    """Count, for each pair of jobs, the items with a value in both, by the two mean values."""
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    found: defaultdict[tuple[int, int], Counter[tuple[Fraction, Fraction]]] = defaultdict(Counter)
    for row in await of.rows(connection, COMMON, ones=ones, others=others):
        found[row.one, row.other][of.mean(row.total, row.n), of.mean(row.other_total, row.other_n)] += row.items
    return dict(found)


async def count_questions(connection: AsyncConnection, of: SampleValues) -> dict[int, int]:
    """Count each job's different items that have a value; jobs without values are left out."""
    return {row.job_id: row.questions for row in await of.rows(connection, QUESTIONS)}


async def sum_repeats(connection: AsyncConnection, of: SampleValues) -> dict[int, dict[int, tuple[float, int]]]:
    """Return (sum of values, number of values) by job and repeat, over the items with a value in every repeat that has
    any.
    """
    found: defaultdict[int, dict[int, tuple[float, int]]] = defaultdict(dict)
    for row in await of.rows(connection, REPEATS):
        found[row.job_id][row.repeat] = row.total / of.unit, row.n
    return dict(found)


async def count_extractions(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, dict[str, int]]:
    """Count the answers of these jobs (row ids) by how the final answer was found in them."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(EXTRACTIONS, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.extraction] = row.answers
    return dict(found)
