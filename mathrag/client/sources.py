"""Send files line by line, and translate the server's line numbers back into files and lines."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from shared.ingest.lines import LISTED, Content, Defect, Empty, OnError, Row, locate_defect

NOWHERE = "upload"
"""The server's name for the upload, used when nothing was sent that could be traced to a file."""
_UPLOAD_LINE = re.compile(r"upload, line (\d+)")


class _Run(NamedTuple):
    """Lines sent from `sent` on are the lines from `line` on of `source`."""

    sent: int
    source: str
    line: int


class Rejected(NamedTuple):
    """A line that was not sent."""

    source: str
    line: int
    message: str


class Sources:
    """Sends every row as a JSON line; remembers where each came from, in runs: one per file, and one per gap."""

    def __init__(self, rows: Iterable[Row], *, skip_empty: bool = False, on_error: OnError = OnError.REJECT) -> None:
        """`skip_empty` and `on_error` apply to lines that cannot be sent, as the server applies them to the others."""
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
                self._leave_out(content, source, line)
                continue
            self.sent += 1
            last = self._runs[-1] if self._runs else None
            if last is None or (source, line) != (last.source, last.line + self.sent - last.sent):
                self._runs.append(_Run(self.sent, source, line))
            yield _make_json_line(content)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Lines that were not sent, as far as they were read."""
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
        lines = [{**line, **self._locate(line)} for line in made["rejected_lines"]]
        return {
            **made,
            "skipped": made["skipped"] + self._skipped,
            "rejected": made["rejected"] + len(self._rejected),
            "rejected_lines": [*(each._asdict() for each in self._rejected), *lines][:LISTED],
        }

    def _locate(self, line: dict[str, Any]) -> dict[str, Any]:
        source, number = self.where(line["line"])
        return {"source": source, "line": number, "message": self.translate(line["message"])}

    def _leave_out(self, defect: Defect, source: str, line: int) -> None:
        if self.skip_empty and isinstance(defect, Empty):
            self._skipped += 1
        elif self.on_error is OnError.SKIP:
            self._rejected.append(Rejected(source, line, str(defect)))
        else:
            raise locate_defect(defect, source, line)


def _make_json_line(content: Content) -> bytes:
    raw = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return raw if raw.endswith(b"\n") else raw + b"\n"
