"""What an audit finds, and how: a statement that selects the rows that break an invariant."""

from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.sql import fill

MINE = fill("mine AS MATERIALIZED ({CALLS_OF_JOB})")
"""A WITH item: the calls that the job's samples refer to, whoever executed them."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that break an invariant."""

    invariant: str
    """"I1": its number in the list of invariants."""
    message: str
    """What is wrong with each of the rows."""
    rows: tuple[str, ...]
    """Tables and ids: "attempts 17"."""
    items: tuple[int, ...] = ()
    """The first five items of the dataset that these rows belong to, from 0: `mathrag sample show JOB INDEX`."""
    item_count: int = 0
    """How many items there are."""
    source_changed: bool = False
    """The job ran from another source than this version has, which cannot tell whether the rows are what they were."""


class Audit(NamedTuple):
    """One job under audit: everything is read in one snapshot."""

    connection: AsyncConnection
    job: RowMapping

    async def find(self, invariant: str, message: str, statement: TextClause, **values: object) -> list[Violation]:
        """A violation with the rows that `statement` names, or nothing."""
        rows = (await self.connection.execute(statement, {"job": self.job["id"], **values})).scalars()
        named = tuple(rows)
        return [Violation(invariant=invariant, message=message, rows=named)] if named else []


def unchecked(invariant: str, error: Exception, row: str) -> Violation:
    """What could not be checked is not clean: the violation says why."""
    why = " ".join(str(getattr(error, "orig", None) or error).split())[:500]
    message = f"could not be checked: {type(error).__name__}: {why}"
    return Violation(invariant=invariant, message=message, rows=(row,))


def over_my_calls(select: str, *items: str) -> TextClause:
    """`select` with `mine`, and WITH items that build on it."""
    return text(f"WITH {', '.join((MINE, *items))} {select}")
