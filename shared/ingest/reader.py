"""Reads an upload's rows into records: what cannot be used is rejected with its line, all of it in one pass."""

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

from shared.errors import InvalidLine, TooLarge
from shared.ingest import lines
from shared.ingest.lines import Defect, EmptyText, Fields, Row
from shared.ingest.unique import UniqueIds

LISTED = 100
"""Rejected lines that are named one by one; all are counted."""

QUOTED = 4
"""Further ones that the error of a rejected upload quotes."""

Record = TypeVar("Record")


class OnError(StrEnum):
    """What becomes of an upload with lines that cannot be used."""

    REJECT = "reject"
    """Nothing is stored."""
    SKIP = "skip"
    """The good lines are."""


class Reader(Generic[Record]):
    """Iterates over records; counts what it left out."""

    def __init__(
        self,
        rows: Iterable[Row],
        read: Callable[[Fields, int], Record],
        identifier: Callable[[Record], str | None],
        *,
        skip_empty: bool = False,
        on_error: OnError = OnError.REJECT,
        most: int = sys.maxsize,
    ) -> None:
        """`read` makes a record of a line's fields and number, `most` is how many lines there may be."""
        self._rows = rows
        self._read = read
        self._identifier = identifier
        self._skip_empty = skip_empty
        self._partial = on_error is OnError.SKIP
        self._most = most
        self._ids = UniqueIds()
        self.bytes = 0
        """Of all lines that were read so far, about."""
        self.skipped = 0
        """Lines without text that were left out on request."""
        self.rejected = 0
        self.rejections: list[InvalidLine] = []
        """The first of those that were rejected."""

    def __iter__(self) -> Iterator[Record]:
        """Every record in order.

        Raises:
            InvalidLine: the first line that cannot be used, with the others; only if nothing is left, where lines
                may be skipped.
            TooLarge: there are more lines than an upload may have.
        """
        found = 0
        for count, (source, line, content) in enumerate(self._rows, start=1):
            if count > self._most:
                raise TooLarge(f"more than {self._most} lines", hint="split it, or see `limits.upload_rows`")
            self.bytes += lines.size(content)
            try:
                record = self._read(lines.fields(content), line)
                self._ids.check(self._identifier(record), source, line)
            except Defect as defect:
                self._leave_out(lines.located(defect, source, line))
                continue
            if self._partial or not self.rejected:
                found += 1
                yield record
        if self.rejected and not (self._partial and found):
            raise self._all()

    def _leave_out(self, invalid: InvalidLine) -> None:
        if self._skip_empty and isinstance(invalid, EmptyText):
            self.skipped += 1
            return
        self.rejected += 1
        if self.rejected <= LISTED:
            self.rejections.append(invalid)
        if not self._partial and self.rejected == LISTED:
            raise self._all()

    def _all(self) -> InvalidLine:
        first, *others = self.rejections
        first.others = tuple(others)
        if others:
            said = "; ".join(other.message for other in others[:QUOTED])
            first.hint = f"more lines cannot be used: {said}{' …' if len(others) > QUOTED else ''}"
        return first
