"""The samples of a job: one by one as the API lists them, or as a table of those that have ended."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, TYPE_CHECKING, Any

from anyio import to_thread

from mathrag.client import jobs
from mathrag.client.answers import SampleRow
from mathrag.client.filters import SampleFilters
from mathrag.client.operations import aentries_of, entries_of
from mathrag.client.packages import require
from mathrag.client.request import MOST_OF_A_PAGE, Request

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection

IN_MEMORY = 16 << 20
"""Bytes of a table that are not put on disk on their way."""
Places = set[tuple[int, int]]
"""Index and repeat of samples."""


class Samples:
    """Samples of a job; each iteration and each table sends new requests.

    Iteration yields all samples that match the filters, whatever their state. A table has those that have ended, with
    texts, tokens and seconds of the models.
    """

    def __init__(self, client: "Connection", job: str, filters: SampleFilters) -> None:
        self._client = client
        self._job = job
        self._filters = filters

    def __iter__(self) -> Iterator[SampleRow]:
        return entries_of(self._client, listing(self._job, self._filters), SampleRow)

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        require("pyarrow", "to_arrow")
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            for piece in self._client.stream(parquet(self._job), retries=self._client.retries):
                file.write(piece)
            table = read(file)
        return only(table, {(each.index, each.repeat) for each in self}) if self._filters else table

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas data frame."""
        require("pandas", "to_pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars data frame."""
        polars = require("polars", "to_polars")
        return polars.from_arrow(self.to_arrow())


class AsyncSamples:
    """Samples for the asynchronous client, like `Samples`; tables are awaited."""

    def __init__(self, client: "AsyncConnection", job: str, filters: SampleFilters) -> None:
        self._client = client
        self._job = job
        self._filters = filters

    def __aiter__(self) -> AsyncIterator[SampleRow]:
        return aentries_of(self._client, listing(self._job, self._filters), SampleRow)

    async def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        require("pyarrow", "to_arrow")
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            async for piece in self._client.stream(parquet(self._job), retries=self._client.retries):
                file.write(piece)
            table = await to_thread.run_sync(read, file)
        return only(table, {(each.index, each.repeat) async for each in self}) if self._filters else table

    async def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas data frame."""
        require("pandas", "to_pandas")
        return (await self.to_arrow()).to_pandas()

    async def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars data frame."""
        polars = require("polars", "to_polars")
        return polars.from_arrow(await self.to_arrow())


def listing(job: str, filters: SampleFilters) -> Request[Any]:
    """Return the request for a job's samples."""
    return jobs.samples(job, MOST_OF_A_PAGE, **filters)


def parquet(job: str) -> Request[bytes]:
    """Return the request for the job's results as Parquet."""
    return jobs.file(job, "results", format="parquet")


def read(file: IO[bytes]) -> "pa.Table":
    """Read the table in a Parquet file."""
    from pyarrow import parquet as pq

    file.seek(0)
    return pq.read_table(file)


def only(table: "pa.Table", places: Places) -> "pa.Table":
    """Return the rows of these samples."""
    rows = zip(table["index"].to_pylist(), table["repeat"].to_pylist(), strict=True)
    return table.filter([row in places for row in rows])
