"""Windows over tables to which rows are only added: each row is read once, none is missed, and each read is bounded."""

from datetime import datetime

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

# A row that is not visible yet belongs to a running transaction, and its stamp is later than that began. So all rows
# with a stamp before the oldest running transaction are visible. (Row ids do not order commits: sequences are cached.)
HORIZON = text("""
    SELECT LEAST(clock_timestamp(), min(xact_start)) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()""")


class Window:
    """Yields the rows of one table from one read to the next, by a column that the database's clock stamps.

    `table` includes its alias ("samples s"), and so does `column` ("s.ended_at").
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
        """Return the values of `condition`: from the last read to `horizon`, or to where `most` rows are reached.

        The first call only begins to watch and returns no rows.
        """
        since, self._since = self._since, self._since or horizon
        if since is None or since >= horizon:
            return None
        values = {"since": since, "until": horizon}
        further = (await connection.execute(self._next, {**values, "most": self._most})).scalar()
        self._since = values["until"] = further or horizon
        return values


async def horizon(connection: AsyncConnection) -> datetime:
    """Return the time up to which the rows are complete, for later statements, whose snapshots are younger."""
    found: datetime = (await connection.execute(HORIZON)).scalar_one()
    return found
