"""Files that clients of OpenAI's API upload and are handed: content in chunks, written once, kept until they expire."""

import uuid
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Invalid, NotFound
from shared.storage.database import Database
from shared.storage.quota import Tally, start_tally

CHUNK = 1 << 20
"""Bytes of a chunk; the last one of a file has fewer."""
KEPT_S = 30 * 24 * 3600
"""Seconds that a file is kept unless its owner says otherwise: OpenAI's 30 days."""
Purpose = Literal["batch", "batch_output"]
Order = Literal["asc", "desc"]

COLUMNS = "public_id AS id, name, purpose, bytes, created_at, expires_at"
UNEXPIRED = "expires_at > clock_timestamp()"
INSERT_CHUNK = text("INSERT INTO file_chunks (file, ordinal, content) VALUES (:file, :ordinal, :content)")
INSERT = text(f"""
    INSERT INTO files (public_id, name, purpose, bytes, made_by, expires_at)
    VALUES (:file, :name, :purpose, :bytes, :made_by, clock_timestamp() + make_interval(secs => :kept_s))
    RETURNING {COLUMNS}""")  # noqa: S608 - constants
ONE = text(f"SELECT {COLUMNS} FROM files WHERE public_id = :file AND {UNEXPIRED}")  # noqa: S608
CHUNKS = text("SELECT content FROM file_chunks WHERE file = :file AND ordinal = :ordinal")
PLACE = text(f"SELECT id FROM files WHERE public_id = :file AND {UNEXPIRED}")  # noqa: S608
LIST = {
    order: text(f"""
        SELECT {COLUMNS} FROM files
        WHERE {UNEXPIRED} AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
            AND (CAST(:after AS bigint) IS NULL OR id {beyond} :after)
        ORDER BY files.id {order} LIMIT :n""")  # noqa: S608
    for order, beyond in (("asc", ">"), ("desc", "<"))
}
DELETE = text(f"DELETE FROM files WHERE public_id = :file AND {UNEXPIRED}")  # noqa: S608
DELETE_EXPIRED = text(f"DELETE FROM files WHERE NOT {UNEXPIRED}")  # noqa: S608


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a list."""

    id: uuid.UUID
    name: str
    purpose: Purpose
    bytes: int
    created_at: datetime
    expires_at: datetime


class Writer:
    """Writes one file in the transaction that is open; it is invisible until the commit."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.id = uuid.uuid4()
        self._connection = connection
        self._chunks = 0
        self._tally: Tally | None = None
        self._waiting = bytearray()

    async def write(self, content: bytes) -> None:
        """Append `content` to the file.

        Raises:
            TooLarge: the key has no room for it.
        """
        self._waiting += content
        while len(self._waiting) >= CHUNK:
            await self._store(bytes(self._waiting[:CHUNK]))
            del self._waiting[:CHUNK]

    async def finish(self, name: str, purpose: Purpose, kept_s: int) -> File | None:
        """Store the file, which expires `kept_s` seconds from now, and return it; None where nothing was written."""
        if self._waiting:
            await self._store(bytes(self._waiting))
            self._waiting.clear()
        if self._tally is None:
            return None
        values = {
            "file": self.id, "name": name, "purpose": purpose, "bytes": self._tally.bytes, "kept_s": kept_s,
            "made_by": self._tally.made_by,
        }  # fmt: skip
        return File(**(await self._connection.execute(INSERT, values)).mappings().one())

    async def _store(self, chunk: bytes) -> None:
        if self._tally is None:
            self._tally = await start_tally(self._connection)
        self._tally.add(len(chunk))
        values = {"file": self.id, "ordinal": self._chunks, "content": chunk}
        await self._connection.execute(INSERT_CHUNK, values)
        self._chunks += 1


async def get(database: Database, file: uuid.UUID) -> File:
    """Return the file with this id.

    Raises:
        NotFound: it does not exist, or it has expired.
    """
    async with database.statement() as connection:
        row = (await connection.execute(ONE, {"file": file})).mappings().first()
    if row is None:
        raise _make_not_found()
    return File(**row)


async def read(database: Database, file: uuid.UUID) -> AsyncIterator[bytes]:
    """Yield its content in chunks, each read by itself, so that a slow reader holds no transaction open.

    Raises:
        NotFound: the file is gone, or goes while it is read.
    """
    left = (await get(database, file)).bytes
    ordinal = 0
    while left:
        async with database.statement() as connection:
            chunk = (await connection.execute(CHUNKS, {"file": file, "ordinal": ordinal})).scalar()
        if chunk is None:
            raise _make_not_found()
        yield chunk
        left -= len(chunk)
        ordinal += 1


async def list_files(
    database: Database, limit: int, after: uuid.UUID | None, order: Order, purpose: str | None
) -> list[File]:
    """Return at most `limit` files by the time of their creation, those beyond the file `after`.

    Raises:
        Invalid: the file `after` does not exist.
    """
    async with database.snapshot() as connection:
        place = None
        if after is not None and (place := (await connection.execute(PLACE, {"file": after})).scalar()) is None:
            raise Invalid("`after`: unknown file", hint="start again without it")
        values = {"after": place, "purpose": purpose, "n": limit}
        return [File(**row) for row in (await connection.execute(LIST[order], values)).mappings()]


async def delete(database: Database, file: uuid.UUID) -> None:
    """Delete a file.

    Raises:
        NotFound: it does not exist, or it has expired.
    """
    async with database.transaction() as connection:
        if not (await connection.execute(DELETE, {"file": file})).rowcount:
            raise _make_not_found()


async def delete_expired(database: Database) -> int:
    """Delete the files whose time is over; return how many."""
    async with database.transaction() as connection:
        return (await connection.execute(DELETE_EXPIRED)).rowcount


def _make_not_found() -> NotFound:
    return NotFound(
        "this file does not exist; it may have expired or been deleted", hint="list the files with GET /openai/v1/files"
    )
