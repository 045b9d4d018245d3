"""A connection to the database without SQLAlchemy's engine, which costs more than PostgreSQL does.

Statements, parameters, rows and errors are SQLAlchemy's all the same. A transaction begins where the one before it
ends, in the same round trip.
"""

import json
import re
from enum import StrEnum
from typing import Any, cast

import asyncpg
from sqlalchemy import TextClause
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_connection, dialect
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.exc import DBAPIError

from shared.storage.database import PINNED_PLANS

DIALECT = dialect()
DIALECT.dbapi = DRIVER = DIALECT.import_dbapi()
COUNTED = re.compile(r"(?:SELECT|UPDATE|DELETE|INSERT \d+) (\d+)")


class Mode(StrEnum):
    """How a connection is used; the value is how its transactions begin."""

    STATEMENT = ""
    TRANSACTION = "BEGIN"
    SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ"


class Rows(IteratorResult[Any]):
    """The result of a statement."""

    rowcount: int


class Prepared:
    """A statement as this connection knows it."""

    def __init__(self, statement: Any, names: list[str]) -> None:
        self.statement = statement
        self.names = names
        self.columns = SimpleResultMetaData([attribute.name for attribute in statement.get_attributes()])


class Link:
    """An open connection, lent to one session at a time."""

    def __init__(self, raw: "asyncpg.Connection[Any]", mode: Mode) -> None:
        self._raw = raw
        self._prepared: dict[str, Prepared] = {}
        self.mode = mode
        self.pid = raw.get_server_pid()
        self.file = raw._transport.get_extra_info("socket").fileno()

    @classmethod
    async def to(cls, url: str, mode: Mode) -> "Link":
        """Connect."""
        raw = await asyncpg.connect(url, server_settings={"application_name": "mathrag", **PINNED_PLANS})
        for name in ("json", "jsonb"):
            await raw.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=json.loads)
        if mode.value:
            await raw.execute(mode.value)
        return cls(raw, mode)

    async def execute(self, statement: TextClause, parameters: Any = None) -> Rows:
        """As an AsyncConnection does it.

        Raises:
            DBAPIError: PostgreSQL's.
        """
        try:
            prepared = self._prepared.get(statement.text) or await self._prepare(statement)
            records = await prepared.statement.fetch(*[parameters[name] for name in prepared.names])
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _translated(error) from error
        rows = Rows(prepared.columns, map(tuple, records))
        counted = COUNTED.match(prepared.statement.get_statusmsg())
        rows.rowcount = int(counted[1]) if counted else -1
        return rows

    async def _prepare(self, statement: TextClause) -> Prepared:
        compiled = statement.compile(dialect=DIALECT)
        prepared = Prepared(await self._raw.prepare(str(compiled)), list(compiled.positiontup or ()))
        self._prepared[statement.text] = prepared
        return prepared

    async def commit(self) -> None:
        """Make it last, and begin the next transaction."""
        await self._end("COMMIT AND CHAIN")

    async def rollback(self) -> None:
        """Undo it, and begin the next transaction."""
        await self._end("ROLLBACK AND CHAIN")

    async def _end(self, how: str) -> None:
        try:
            if self.mode is not Mode.STATEMENT:
                await self._raw.execute(how)
        except asyncpg.PostgresError as error:
            raise _translated(error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._raw.close()


def _translated(error: Exception) -> DBAPIError:
    try:
        AsyncAdapt_asyncpg_connection._handle_exception_no_connection(DRIVER, error)
    except DRIVER.Error as known:
        return cast("DBAPIError", DBAPIError.instance("simulated", {}, known, DRIVER.Error, dialect=DIALECT))
