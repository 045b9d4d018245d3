"""COPY through SQLAlchemy's connection: the fastest way to store many rows, inside the transaction that is open."""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

Rows = Iterable[tuple[Any, ...]] | AsyncIterable[tuple[Any, ...]]


async def copy(connection: AsyncConnection, table: str, columns: Sequence[str], rows: Rows) -> None:
    """Append `rows` to `table`; the transaction must have begun with a statement."""
    raw = await connection.get_raw_connection()
    await raw.driver_connection.copy_records_to_table(table, columns=columns, records=rows)  # type: ignore[union-attr]
