"""Uploads: JSON lines, spooled to disk as they arrive, then read in batches in a worker thread.

The database sees an upload only when all of it is here, so a slow client holds no transaction open.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import IO, TypeVar

from anyio import to_thread
from fastapi import Request
from msgspec.structs import replace

from shared.errors import TooLarge
from shared.ingest.corpora import CorpusRecord, read_corpus_line
from shared.ingest.datasets import DatasetItem, read_dataset_line
from shared.ingest.lines import MAX_LINE_BYTES, EmptyText
from shared.ingest.unique import UniqueIds

LARGEST = 256 << 20
"""Bytes of one upload."""
BATCH = 1000
SOURCE = "upload"
"""What errors call the body; a client knows the file."""
JSONL = {"requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}
"""For OpenAPI: FastAPI cannot see that the body is read as a stream."""

T = TypeVar("T")
Record = TypeVar("Record", CorpusRecord, DatasetItem)


@asynccontextmanager
async def spooled(request: Request) -> AsyncIterator[IO[bytes]]:
    """The whole body, on disk.

    Raises:
        TooLarge: it is longer than an upload may be; said as soon as it is known.
    """
    if int(request.headers.get("content-length", "0")) > LARGEST:
        raise _too_large()
    with tempfile.TemporaryFile() as file:
        async for chunk in request.stream():
            if file.tell() + len(chunk) > LARGEST:
                raise _too_large()
            await to_thread.run_sync(file.write, chunk)
        file.seek(0)
        yield file


def _too_large() -> TooLarge:
    return TooLarge(f"an upload may have {LARGEST >> 20} MiB", hint="split it into several")


def numbered(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1.

    Raises:
        TooLarge: a line is longer than a line may be.
    """
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        if len(raw.rstrip(b"\r\n")) > MAX_LINE_BYTES:
            raise TooLarge(f"{SOURCE}, line {number}: a line may have {MAX_LINE_BYTES >> 20} MiB", hint="split it")
        if raw.strip():
            yield number, raw


class Reader:
    """Reads an upload's lines into records; counts the empty ones that it was told to leave out."""

    def __init__(self, file: IO[bytes], *, skip_empty: bool) -> None:
        self._lines = numbered(file)
        self._skip = skip_empty
        self._ids = UniqueIds()
        self.skipped = 0

    def corpus(self) -> AsyncIterator[list[CorpusRecord]]:
        """Batches of documents; one without an id gets its line number."""
        return _batches(self._records(_read_document, lambda record: record.external_id))

    def dataset(self) -> AsyncIterator[list[DatasetItem]]:
        """Batches of items."""
        return _batches(self._records(read_dataset_line, lambda item: item.custom_id))

    def _records(
        self, read: Callable[[bytes, str, int], Record], identifier: Callable[[Record], str | None]
    ) -> Iterator[Record]:
        for line, raw in self._lines:
            try:
                record = read(raw, SOURCE, line)
            except EmptyText:
                if not self._skip:
                    raise
                self.skipped += 1
                continue
            self._ids.check(identifier(record), SOURCE, line)
            yield record


def _read_document(raw: bytes, source: str, line: int) -> CorpusRecord:
    record = read_corpus_line(raw, source, line)
    return record if record.external_id is not None else replace(record, external_id=str(line))


async def _batches(records: Iterator[T]) -> AsyncIterator[list[T]]:
    def following() -> list[T]:
        return list(islice(records, BATCH))

    while batch := await to_thread.run_sync(following):
        yield batch
