"""What a file or folder sends, line by line, and back: which line of which file the server means."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shared.ingest.paths import Numbered

_SAID = re.compile(r"upload, line (\d+)")


class _Run(NamedTuple):
    """Lines sent from `sent` on are the lines from `line` on of `source`."""

    sent: int
    source: str
    line: int


class Sources:
    """Remembers where each sent line came from, in runs: one per file, and one per gap."""

    def __init__(self, numbered: Iterable[Numbered]) -> None:
        self._numbered = numbered
        self._runs: list[_Run] = []
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        for source, line, raw in self._numbered:
            self.sent += 1
            last = self._runs[-1] if self._runs else None
            if last is None or (source, line) != (last.source, last.line + self.sent - last.sent):
                self._runs.append(_Run(self.sent, source, line))
            yield raw if raw.endswith(b"\n") else raw + b"\n"

    def where(self, sent: int) -> tuple[str, int]:
        """Source and line of the line that was sent as number `sent`, from 1."""
        run = self._runs[bisect_right(self._runs, sent, key=lambda run: run.sent) - 1]
        return run.source, run.line + sent - run.sent

    def translate(self, message: str) -> str:
        """A server's message with our names for the lines that it mentions."""
        return _SAID.sub(lambda said: "{}, line {}".format(*self.where(int(said[1]))), message)
