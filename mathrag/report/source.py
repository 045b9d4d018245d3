"""One job's part of the data folder, and its samples with all that they were made from."""

import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from shared.contracts.records import JobRecord, SampleRecord
from shared.contracts.samples import Outcome
from shared.errors import Invalid
from shared.provenance.lines import EndLine, JobLine, SampleLine
from shared.provenance.texts import Texts
from shared.storage.samples import SampleRow

_LINE = msgspec.json.Decoder(JobLine | SampleLine | EndLine)
_ROW = msgspec.json.Decoder(SampleRow)
_RECORD = msgspec.json.Decoder(SampleRecord)
_OUTCOME = msgspec.json.Decoder(Outcome)
NAMED = {
    "job": "job.json", "report": "report.json", "audit": "audit.json", "rows": "results.jsonl",
    "provenance": "provenance.jsonl",
}  # fmt: skip


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: how it ended, and the record of what it was made from."""

    row: SampleRow
    record: SampleRecord
    outcome: Outcome | None
    texts: Texts
    """What the record's hashes stand for."""
    link: str
    """Hash of its link in the job's chain."""


class Source:
    """A job whose files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name
        """Its name among the pages."""
        self.job = _read(folder / NAMED["job"])
        self.report = _read(folder / NAMED["report"])
        self.audit = _read(folder / NAMED["audit"])
        line = next(self._lines())
        if not isinstance(line, JobLine):
            raise self._broken("it does not begin with the job")
        self.first = line
        self.record = msgspec.json.decode(line.record, type=JobRecord)
        self.chain: str | None = None
        """The last link's hash, once all samples were read and found to be chained."""

    def samples(self) -> Iterator[Sample]:
        """All of them, in dataset order; whoever reads to the end has also verified the chain.

        Raises:
            Invalid: the chain is broken, or the files are not of one job and one moment.
        """
        with (self.folder / NAMED["rows"]).open("rb") as rows:
            previous = hashlib.sha256(self.first.record.encode()).hexdigest()
            for line in self._lines():
                if isinstance(line, SampleLine):
                    previous = self._followed(line, previous)
                    yield self._sample(line, next(rows, None))
                elif isinstance(line, EndLine):
                    self.chain = previous if line.chain == previous else None
        if self.chain is None:
            raise self._broken("it breaks off before its end")

    def _lines(self) -> Iterator[JobLine | SampleLine | EndLine]:
        with (self.folder / NAMED["provenance"]).open("rb") as lines:
            for line in lines:
                yield _LINE.decode(line)

    def _followed(self, line: SampleLine, previous: str) -> str:
        found = hashlib.sha256(bytes.fromhex(previous) + line.record.encode()).hexdigest()
        if (line.previous, line.hash) != (previous, found):
            raise self._broken(f"link {line.sequence} does not follow the one before it")
        return found

    def _sample(self, line: SampleLine, written: bytes | None) -> Sample:
        record = _RECORD.decode(line.record)
        row = _ROW.decode(written) if written else None
        if row is None or (row.index, row.repeat) != (record.index, record.repeat):
            raise self._broken(f"sample {record.index}, repeat {record.repeat} is not in {NAMED['rows']}")
        outcome = _OUTCOME.decode(line.texts[record.outcome]) if record.outcome else None
        return Sample(row=row, record=record, outcome=outcome, texts=line.texts, link=line.hash)

    def _broken(self, why: str) -> Invalid:
        return Invalid(f"{self.folder / NAMED['provenance']}: {why}", hint="write the report again")


def pages(samples: Iterator[Sample], size: int) -> Iterator[list[Sample]]:
    """As many at a time as stand on a page."""
    for _, some in groupby(enumerate(samples), lambda numbered: numbered[0] // size):
        yield [sample for _, sample in some]


def _read(file: Path) -> Any:
    return msgspec.json.decode(file.read_bytes())
