"""Uploads of files, folders and rows, which are read while they are sent."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from mathrag.client.errors import Failed, Invalid, failure
from mathrag.client.request import PIECE_BYTES, Request
from mathrag.errors import MathragError
from mathrag.reading.columns import Columns, Table
from mathrag.reading.lines import LISTED, Defect, Empty, OnError, Row, locate_defect

NOWHERE = "upload"
"""The server's name of the upload, for problems that no file can be named for."""
_UPLOAD_LINE = re.compile(r"upload, line (\d+)")


class _Run(NamedTuple):
    """The lines sent from number `sent` on are the lines of `source` from number `line` on."""

    sent: int
    source: str
    line: int


class Rejected(NamedTuple):
    """A line that was not sent."""

    source: str
    line: int
    message: str


class Sources:
    """Sends every row as a JSON line, and records the source of each line in runs: one per file, and one per gap."""

    def __init__(self, rows: Iterable[Row], *, skip_empty: bool = False, on_error: OnError = OnError.REJECT) -> None:
        """Set up the rows; `skip_empty` and `on_error` apply to lines that cannot be sent, as on the server."""
        self._rows = rows
        self.skip_empty = skip_empty
        self.on_error = on_error
        self._runs: list[_Run] = []
        self.sent = 0
        self._skipped = 0
        self._rejected: list[Rejected] = []

    def __iter__(self) -> Iterator[bytes]:
        for source, line, content in self._rows:
            if isinstance(content, Defect):
                if self.skip_empty and isinstance(content, Empty):
                    self._skipped += 1
                elif self.on_error is OnError.SKIP:
                    self._rejected.append(Rejected(source, line, str(content)))
                else:
                    raise locate_defect(content, source, line)
                continue
            self.sent += 1
            last = self._runs[-1] if self._runs else None
            if last is None or (source, line) != (last.source, last.line + self.sent - last.sent):
                self._runs.append(_Run(self.sent, source, line))
            raw = content if isinstance(content, bytes) else msgspec.json.encode(content)
            yield raw if raw.endswith(b"\n") else raw + b"\n"

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Lines that were read and not sent."""
        return tuple(self._rejected)

    def where(self, sent: int) -> tuple[str, int]:
        """Return the source and line of the line that was sent as number `sent`, counted from 1."""
        if not self._runs:
            return NOWHERE, sent
        run = self._runs[bisect_right(self._runs, sent, key=lambda run: run.sent) - 1]
        return run.source, run.line + sent - run.sent

    def translate(self, message: str) -> str:
        """Replace the upload's line numbers in a message of the server by source and line."""
        return _UPLOAD_LINE.sub(lambda said: "{}, line {}".format(*self.where(int(said[1]))), message)

    def complete(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return the server's answer to an upload with file names, and with the lines that were not sent."""
        lines = []
        for line in made["rejected_lines"]:
            source, number = self.where(line["line"])
            lines.append({**line, "source": source, "line": number, "message": self.translate(line["message"])})
        return {
            **made,
            "skipped": made["skipped"] + self._skipped,
            "rejected": made["rejected"] + len(self._rejected),
            "rejected_lines": [*(each._asdict() for each in self._rejected), *lines][:LISTED],
        }


Source = str | PathLike[str] | Iterable[Mapping[str, object]]
"""A file, a folder, or rows: dictionaries with the fields of a JSON line."""
Format = Literal["auto", "jsonl", "csv", "parquet"]
Unusable = Literal["reject", "skip"]
"""Treatment of invalid lines: `reject` stores nothing, `skip` stores all other lines."""
IN_MEMORY = "rows"
"""Name of rows that do not come from a file, in messages."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an upload; both figures restart at 0 when an interrupted upload restarts."""

    lines: int
    """Number of sent lines; 0 if a file is sent unchanged."""
    bytes: int


class Upload:
    """Lines to send. Each iteration reads them again, so an interrupted upload can be repeated."""

    def __init__(
        self,
        rows: Callable[[], Iterable[Row]],
        progress: Callable[[Progress], None] | None = None,
        *,
        skip_empty: bool = False,
        on_error: Unusable = "reject",
    ) -> None:
        self._rows = rows
        self._progress = progress
        self._skip_empty = skip_empty
        self._on_error = OnError(on_error)
        self._sources = Sources(())

    def __iter__(self) -> Iterator[bytes]:
        self._sources = Sources(self._rows(), skip_empty=self._skip_empty, on_error=self._on_error)
        sent = reported = 0
        for line in self._sources:
            yield line
            sent += len(line)
            if sent - reported >= PIECE_BYTES:
                reported = sent
                self._tell(sent)
        self._tell(sent)

    def lines(self, source: Source) -> Iterable[bytes]:
        """Return the lines; if the rows can be read only once, return an iterator, which is never sent twice."""
        return iter(self) if isinstance(source, Iterator) else self

    def on(self, request: Request[Any]) -> Request[Any]:
        """Return `request` with problems that name this upload's files and lines."""
        return msgspec.structs.replace(request, explain=self._explain)

    def count_left_out(self, request: Request[Any]) -> Request[Any]:
        """Return `request` like `on`; its answer also counts the lines that were not sent."""

        def complete(made: Any) -> Any:
            found = self._sources.complete(msgspec.to_builtins(made))
            lines = [{**each, "message": f"{each['source']}: {each['message']}"} for each in found["rejected_lines"]]
            return msgspec.convert({**found, "rejected_lines": lines}, type(made))

        return msgspec.structs.replace(request, explain=self._explain, complete=complete)

    def _tell(self, sent: int) -> None:
        if self._progress is not None:
            self._progress(Progress(lines=self._sources.sent, bytes=sent))

    def _explain(self, failed: Failed) -> Failed:
        """Replace the upload's line numbers in a problem by file names and lines."""
        failed.message = self._sources.translate(failed.message)
        failed.hint = self._sources.translate(failed.hint) if failed.hint else None
        failed.others = tuple(map(self._sources.translate, failed.others))
        if failed.line is not None and 0 < failed.line <= self._sources.sent:
            failed.line = self._sources.where(failed.line)[1]
        return failed


class File:
    """The bytes of a file; each iteration reads them again."""

    def __init__(self, path: Path, progress: Callable[[Progress], None] | None = None) -> None:
        self._path = path
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        with self._path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
                sent += len(piece)
                if self._progress is not None:
                    self._progress(Progress(lines=0, bytes=sent))


def file_of(source: Source, progress: Callable[[Progress], None] | None) -> File:
    """Return the file that a plug-in of the service will read.

    Raises:
        Invalid: the source is rows in memory.
    """
    return File(require_file(source, "reader"), progress)


def list_pairs(columns: Mapping[str, str] | None, table: Table) -> list[str]:
    """Return the columns that the user chose, as pairs such as "question=Frage" for the API.

    Raises:
        Invalid: the table has no such field.
    """
    pairs = [f"{field}={column}" for field, column in (columns or {}).items()]
    try:
        Columns(table, pairs)
    except MathragError as error:
        raise failure(error) from error
    return pairs


def require_file(source: Source, option: str) -> Path:
    """Return the path of the source, which `option` needs.

    Raises:
        Invalid: the source is rows in memory.
    """
    if not isinstance(source, str | PathLike):
        message = f"`{option}` requires a file, but the source is rows in memory"
        raise Invalid("invalid", message, hint=f"omit `{option}`, or give a file")
    return Path(source)


def rows_of(source: Source, read: Callable[[Path], Iterable[Row]]) -> Callable[[], Iterable[Row]]:
    """Return a function that yields the rows of a file or folder, read by `read`, or the given rows."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        return lambda: read(path)
    return lambda: ((IN_MEMORY, number, _encode_line(number, row)) for number, row in enumerate(source, 1))


def _encode_line(number: int, row: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(dict(row)) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"{IN_MEMORY}, line {number}: the row cannot be written as JSON ({error})"
        raise Invalid("invalid", message, hint="make each row a dictionary of texts, numbers and lists") from error
