"""Storage of the uploads of each API key, and its limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import TooLarge
from shared.storage.database import show_all

MIB = 1 << 20
STORED = """
    SELECT made_by AS key, sum(bytes) AS bytes FROM (
        SELECT made_by, bytes FROM corpora UNION ALL SELECT made_by, bytes FROM datasets
        UNION ALL SELECT made_by, bytes FROM graphs UNION ALL SELECT made_by, bytes FROM files) uploads
    WHERE made_by IS NOT NULL GROUP BY made_by"""
"""Bytes by key. Texts that several uploads share count for each."""
STORED_BY_KEY = text(f"SELECT bytes FROM ({STORED}) stored WHERE key = :key")  # noqa: S608 - a constant


class _Uploader(NamedTuple):
    key: str
    most_mib: int


_uploader: ContextVar[_Uploader | None] = ContextVar("uploader", default=None)


@contextmanager
def upload_as(key: str, most_mib: int) -> Iterator[None]:
    """Count what the current task uploads for this key, which may store `most_mib` MiB; 0: any number."""
    token = _uploader.set(_Uploader(key, most_mib))
    try:
        yield
    finally:
        _uploader.reset(token)


class Tally:
    """Counts the bytes of one upload. Uploads that run at the same time may exceed the limit together."""

    def __init__(self, uploader: _Uploader | None, used: int) -> None:
        self.made_by = uploader and uploader.key
        """Name of the key; None without one."""
        self.bytes = 0
        self._uploader = uploader
        self._used = used

    def add(self, size: int) -> None:
        """Count the next bytes.

        Raises:
            TooLarge: the key has no room for them.
        """
        self.bytes += size
        if self._uploader is None or not (most := self._uploader.most_mib) or self._used + self.bytes <= most * MIB:
            return
        raise TooLarge(
            f"the uploads of the key {self._uploader.key!r} hold {self._used / MIB:.1f} MiB; with this one they would"
            f" exceed `limits.storage_mib_per_key` ({most} MiB), so nothing was stored",
            hint="delete graphs or files that you no longer need, or ask the operator to delete corpora or datasets, or"
            " for more",
        )


async def start_tally(connection: AsyncConnection) -> Tally:
    """Start to count an upload of the current task."""
    uploader = _uploader.get()
    if uploader is None or not uploader.most_mib:
        return Tally(uploader, 0)
    async with show_all(connection):
        used = (await connection.execute(STORED_BY_KEY, {"key": uploader.key})).scalar()
    return Tally(uploader, int(used or 0))
