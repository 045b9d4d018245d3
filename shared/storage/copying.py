"""COPY many rows through SQLAlchemy's connection, inside its open transaction."""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any

from asyncpg import DiskFullError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.outages import out_of_space_error

Rows = Iterable[tuple[Any, ...]] | AsyncIterable[tuple[Any, ...]]


async def copy(connection: AsyncConnection, table: str, columns: Sequence[str], rows: Rows) -> None:
    """Append `rows` to `table`; the transaction must have begun with a statement.

    Raises:
        OutOfSpace: the disk of PostgreSQL is full.
    """
    raw: Any = await connection.get_raw_connection()
    try:
        await raw.driver_connection.copy_records_to_table(table, columns=columns, records=rows)
    except DiskFullError as error:
        raise out_of_space_error() from error
