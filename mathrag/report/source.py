"""Read one job's files in the data folder: its reports, and its samples with their records."""

import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import Invalid
from shared.records import EndLine, JobLine, JobRecord, SampleLine, SampleRecord, Texts
from shared.samples import Outcome, SampleRow

_LINE = msgspec.json.Decoder(JobLine | SampleLine | EndLine)
_ROW = msgspec.json.Decoder(SampleRow)
_RECORD = msgspec.json.Decoder(SampleRecord)
_OUTCOME = msgspec.json.Decoder(Outcome)
FILE_NAMES = {
    "job": "job.json", "report": "report.json", "audit": "audit.json", "rows": "results.jsonl",
    "provenance": "provenance.jsonl",
}  # fmt: skip


class ReportSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample: its row in the results, and its provenance record."""

    row: SampleRow
    record: SampleRecord
    outcome: Outcome | None
    texts: Texts
    """Texts by the hashes that the record holds."""
    link: str
    """Hash of the sample's link in the job's chain."""


class JobFiles:
    """Reads the exported files of a job in `folder`; the samples are read only when they are iterated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name
        """Name of the job's folder among the pages."""
        self.job = _read(folder / FILE_NAMES["job"])
        self.report = _read(folder / FILE_NAMES["report"])
        self.audit = _read(folder / FILE_NAMES["audit"])
        line = next(self._read_lines())
        if not isinstance(line, JobLine):
            raise self._refuse_chain("it does not begin with the job")
        self.first = line
        self.record = msgspec.json.decode(line.record, type=JobRecord)
        self.chain: str | None = None
        """Hash of the last link; None until all samples were read and the chain was verified."""

    def samples(self) -> Iterator[ReportSample]:
        """Yield all samples in dataset order; the chain is verified when the last one has been read.

        Raises:
            Invalid: the chain is broken, or the files were not exported together from one job.
        """
        with (self.folder / FILE_NAMES["rows"]).open("rb") as rows:
            previous = hashlib.sha256(self.first.record.encode()).hexdigest()
            for line in self._read_lines():
                if isinstance(line, SampleLine):
                    previous = self._check_link(line, previous)
                    yield self._sample(line, next(rows, None))
                elif isinstance(line, EndLine):
                    self.chain = previous if line.chain == previous else None
        if self.chain is None:
            raise self._refuse_chain("it breaks off before its end")

    def _read_lines(self) -> Iterator[JobLine | SampleLine | EndLine]:
        with (self.folder / FILE_NAMES["provenance"]).open("rb") as lines:
            for line in lines:
                yield _LINE.decode(line)

    def _check_link(self, line: SampleLine, previous: str) -> str:
        found = hashlib.sha256(bytes.fromhex(previous) + line.record.encode()).hexdigest()
        if (line.previous, line.hash) != (previous, found):
            raise self._refuse_chain(f"link {line.sequence} does not follow the one before it")
        return found

    def _sample(self, line: SampleLine, written: bytes | None) -> ReportSample:
        record = _RECORD.decode(line.record)
        row = _ROW.decode(written) if written else None
        if row is None or (row.index, row.repeat) != (record.index, record.repeat):
            raise self._refuse_chain(f"sample {record.index}, repeat {record.repeat} is not in {FILE_NAMES['rows']}")
        outcome = _OUTCOME.decode(line.texts[record.outcome]) if record.outcome else None
        return ReportSample(row=row, record=record, outcome=outcome, texts=line.texts, link=line.hash)

    def _refuse_chain(self, why: str) -> Invalid:
        return Invalid(f"{self.folder / FILE_NAMES['provenance']}: {why}", hint="write the report again")


def split_pages(samples: Iterator[ReportSample], size: int) -> Iterator[list[ReportSample]]:
    """Split the samples into lists of `size`, one list per page."""
    for _, some in groupby(enumerate(samples), lambda numbered: numbered[0] // size):
        yield [sample for _, sample in some]


def _read(file: Path) -> Any:
    return msgspec.json.decode(file.read_bytes())
