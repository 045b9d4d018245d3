"""Writes results as a typed Parquet file and sends it row group by row group."""

import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from anyio import to_thread

from shared.storage.provenance import ResultRow

GROUP = 5000
"""Rows of a row group: the most that is held in memory, and the unit that a reader may skip."""


class Outlet(io.RawIOBase):
    """A file that only grows: what is written is taken away and sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True: the file is for writing alone."""
        return True

    def write(self, data: Any) -> int:
        """Keep a copy of the data, because the caller reuses its buffer."""
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """Return the number of bytes written so far, taken or not."""
        return self._size

    def take(self) -> bytes:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


async def write_parquet(batches: AsyncIterator[list[ResultRow]]) -> AsyncIterator[bytes]:
    """Yield a whole Parquet file; without rows it still has its schema."""
    # The import takes half a second and 60 MiB, so only requests for Parquet pay for it.
    from pyarrow.parquet import ParquetWriter

    outlet, columns = Outlet(), make_schema()
    writer = await to_thread.run_sync(ParquetWriter, outlet, columns)
    async for group in _regroup_rows(batches):
        await to_thread.run_sync(_write, writer, columns, group)
        yield outlet.take()
    await to_thread.run_sync(writer.close)
    yield outlet.take()


async def _regroup_rows(batches: AsyncIterator[list[ResultRow]]) -> AsyncIterator[list[ResultRow]]:
    group: list[ResultRow] = []
    async for batch in batches:
        group += batch
        if len(group) >= GROUP:
            yield group
            group = []
    if group:
        yield group


def _write(writer: Any, columns: Any, rows: Sequence[ResultRow]) -> None:
    import pyarrow as pa

    writer.write_batch(pa.RecordBatch.from_pylist([msgspec.structs.asdict(row) for row in rows], schema=columns))


def make_schema() -> Any:
    """Return the columns of the other formats with their types."""
    import pyarrow as pa

    whole = {"index": pa.int32(), "repeat": pa.int16(), "duplicates": pa.int32()}
    took = {"prompt_tokens": pa.int64(), "completion_tokens": pa.int64(), "seconds": pa.float64()}
    judged = {"judged": pa.list_(pa.string()), "ratings": pa.list_(pa.int8())}
    flags = dict.fromkeys(("truncated", "correct", "strict", "unscored"), pa.bool_())
    others = {"context": pa.list_(pa.string()), "ended_at": pa.timestamp("us", tz="UTC")}
    types = {**whole, **flags, **others, **took, **judged, "score": pa.float64()}
    required = {
        *took,
        *judged,
        "index",
        "repeat",
        "question",
        "state",
        "truncated",
        "context",
        "duplicates",
        "unscored",
    }
    return pa.schema(
        [pa.field(name, types.get(name, pa.string()), name not in required) for name in ResultRow.__struct_fields__]
    )
