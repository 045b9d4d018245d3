"""Windows over rows that are only ever added: each row is seen once, none is missed, and a look has bounded cost."""

from datetime import datetime

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

# Rows that nobody can see yet belong to a transaction that runs now, and are stamped after its begin. So everything
# that is stamped before the oldest one is there for good. (Row ids say nothing of the sort: sequences are cached.)
HORIZON = text("""
    SELECT LEAST(clock_timestamp(), min(xact_start)) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()""")


class Window:
    """One table's rows from one look to the next, by a column that the database's own clock stamps.

    `table` has its alias ("samples s"), `column` too ("s.ended_at").
    """

    def __init__(self, table: str, column: str, *, most: int) -> None:
        self.condition = f"{column} >= :since AND {column} < :until"
        """For the WHERE of a statement that reads the window."""
        self._since: datetime | None = None
        self._most = most
        self._next: TextClause = text(
            f"SELECT {column} FROM {table} WHERE {column} >= :since AND {column} < :until"  # noqa: S608
            f" ORDER BY {column} OFFSET :most LIMIT 1"
        )

    async def advance(self, connection: AsyncConnection, horizon: datetime) -> dict[str, datetime] | None:
        """The values of `condition`: from the last look to `horizon`, or to where `most` rows are reached.

        The first look begins to watch, and sees nothing.
        """
        since, self._since = self._since, self._since or horizon
        if since is None or since >= horizon:
            return None
        values = {"since": since, "until": horizon}
        further = (await connection.execute(self._next, {**values, "most": self._most})).scalar()
        self._since = values["until"] = further or horizon
        return values


async def horizon(connection: AsyncConnection) -> datetime:
    """Until when the rows are complete, for statements after this one: their snapshots are younger."""
    found: datetime = (await connection.execute(HORIZON)).scalar_one()
    return found
