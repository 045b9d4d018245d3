"""Read an upload's rows into records in one pass, and reject lines that cannot be used, with their numbers."""

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

from shared.errors import InvalidLine, TooLarge
from shared.ingest import lines
from shared.ingest.lines import Defect, EmptyText, Fields, Row
from shared.ingest.unique import UniqueIds

LISTED = 100
"""Maximum number of rejected lines that are listed; all are counted."""

QUOTED = 4
"""Number of further rejected lines that the error of an upload quotes."""

Record = TypeVar("Record")


class OnError(StrEnum):
    """What happens to an upload with lines that cannot be used."""

    REJECT = "reject"
    """Nothing is stored."""
    SKIP = "skip"
    """The other lines are stored."""


class Reader(Generic[Record]):
    """Iterates over records, and counts the lines that it left out."""

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
        """Set up the reader: `read` makes a record from a line's fields and number, `most` limits the number of
        lines."""
        self._rows = rows
        self._read = read
        self._identifier = identifier
        self._skip_empty = skip_empty
        self._partial = on_error is OnError.SKIP
        self._most = most
        self._ids = UniqueIds()
        self.bytes = 0
        """Approximate size of all lines that were read so far, in bytes."""
        self.skipped = 0
        """Number of lines without text that were skipped on request."""
        self.skips: list[InvalidLine] = []
        """The first of them."""
        self.rejected = 0
        self.rejections: list[InvalidLine] = []
        """The first rejected lines."""

    def __iter__(self) -> Iterator[Record]:
        """Yield every record in order.

        Raises:
            InvalidLine: the first line that cannot be used, with the others; only if nothing is left, where lines
                may be skipped.
            TooLarge: there are more lines than an upload may have.
        """
        found = 0
        for count, (source, line, content) in enumerate(self._rows, start=1):
            if count > self._most:
                raise TooLarge(f"more than {self._most} lines", hint="split the upload, or raise `limits.upload_rows`")
            self.bytes += lines.size(content)
            try:
                record = self._read(lines.fields(content), line)
                self._ids.check(self._identifier(record), source, line)
            except Defect as defect:
                self._leave_out(lines.locate_defect(defect, source, line))
                continue
            if self._partial or not self.rejected:
                found += 1
                yield record
        if self.rejected and not (self._partial and found):
            raise self._all()

    def _leave_out(self, invalid: InvalidLine) -> None:
        if self._skip_empty and isinstance(invalid, EmptyText):
            self.skipped += 1
            if self.skipped <= LISTED:
                self.skips.append(invalid)
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
            quotes = "; ".join(other.message for other in others[:QUOTED])
            first.hint = f"further lines cannot be used: {quotes}{' …' if len(others) > QUOTED else ''}"
        return first
