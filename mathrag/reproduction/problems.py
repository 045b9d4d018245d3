"""The MATH problems of a run: find the files, check them, and choose the questions."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from shared.contracts import canonical
from shared.contracts.datasets import DatasetItem
from shared.errors import Invalid, MathragError, NotFound
from shared.ingest import paths
from shared.ingest.corpora import read_corpus
from shared.ingest.datasets import read_dataset
from shared.ingest.lines import Row
from shared.ingest.strata import draw_stratified

CORPUS = ("train.jsonl", "train.parquet", "train-00000-of-00001.parquet", "train")
"""Names of the training set in order of preference; the last one is a folder of the original archive."""
QUESTIONS = (
    "test.jsonl", "math500.jsonl", "MATH-500.jsonl", "test.parquet", "test-00000-of-00001.parquet", "test-dev.jsonl",
    "test",
)  # fmt: skip
WHOLE = 7_500
"""Number of problems in MATH's training set."""
SEED = 1
"""Seed for choosing questions, fixed so that equal numbers of questions are the same questions."""
SAME = 0.5
"""Largest share of the questions that the corpus may contain; above it, the corpus holds their solutions."""
UNKNOWN = "unknown"
EXPECTED = "docs/how-to/math.md lists the files; --corpus and --questions name them one by one"


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the files of a run, the chosen questions, and the digests by which two runs are compared."""

    corpus: Path
    questions: Path
    documents: int
    corpus_digest: str
    asked: bytes
    """The chosen questions as JSON lines."""
    items: int
    of: int
    """Number of questions in the file."""
    notes: tuple[str, ...]
    """Remarks for the reader of the report."""

    @property
    def corpus_name(self) -> str:
        """Name of the corpus, derived from its content, so that different corpora have different names."""
        return f"math-{self.documents}-{self.corpus_digest[:8]}"

    @property
    def asked_digest(self) -> str:
        """SHA-256 of the chosen questions in hex."""
        return hashlib.sha256(self.asked).hexdigest()

    @property
    def dataset_name(self) -> str:
        """Name of the dataset, derived from its content."""
        return f"math-asked-{self.items}-{self.asked_digest[:8]}"


def find(data: Path | None, corpus: Path | None, questions: Path | None) -> tuple[Path, Path]:
    """Return the paths of corpus and questions: the given ones, else those found in the folder `data`.

    Raises:
        NotFound: one is missing; the hint names the option for it.
    """
    return corpus or _find_in(data, CORPUS, "--corpus"), questions or _find_in(data, QUESTIONS, "--questions")


def _find_in(data: Path | None, names: Sequence[str], option: str) -> Path:
    if data is None:
        raise NotFound("no folder with problems is given", hint=f"--data FOLDER, or {option} PATH; {EXPECTED}")
    found = next((data / name for name in names if (data / name).exists()), None)
    if found is None:
        raise NotFound(f"{data} contains none of {', '.join(names)}", hint=f"{option} PATH; {EXPECTED}")
    return found


def read(corpus: Path, questions: Path, items: int | None) -> Problems:
    """Read and check both; choose `items` questions in proportion to the subjects, or all if None.

    Raises:
        Invalid: a file is not what it should be; the message says which and why.
    """
    try:
        every = list(read_dataset(paths.dataset_lines(questions)))
        chosen = _choose(every, questions, items)
        scan = _Scan({_normalise(item.question) for item in chosen})
        scan.read(paths.corpus_lines(corpus))
    except MathragError as error:
        error.hint = error.hint or EXPECTED
        raise
    scan.check(corpus, questions, len(chosen))
    return Problems(
        corpus=corpus, questions=questions, documents=scan.documents, corpus_digest=scan.digest,
        asked=b"".join(msgspec.json.encode(item) + b"\n" for item in chosen), items=len(chosen), of=len(every),
        notes=tuple(_list_notes(scan, chosen, len(every))),
    )  # fmt: skip


def _choose(every: Sequence[DatasetItem], questions: Path, items: int | None) -> list[DatasetItem]:
    unanswered = sum(item.gold is None for item in every)
    if unanswered or not every:
        reason = f"{unanswered} of its {len(every)} questions have no gold answer" if every else "the file is empty"
        raise Invalid(f"{questions}: {reason}")
    count = len(every) if items is None else items
    if count > len(every):
        raise Invalid(f"--items {count}: {questions} holds {len(every)} questions", hint=f"--items {len(every)}")
    subjects = [item.subject or UNKNOWN for item in every]
    return [every[position] for position in draw_stratified(subjects, count, SEED)]


def _normalise(text: str) -> str:
    """Normalise a text so that differences of blanks and capitals disappear."""
    return " ".join(canonical.normalise(text).lower().split())


class _Scan:
    """Reads a corpus once, as a stream; keeps counts, a digest, and which questions it contains."""

    def __init__(self, asked: set[str]) -> None:
        self._asked = asked
        self._found: set[str] = set()
        self._sha = hashlib.sha256()
        self.documents = 0
        self.plain = 0
        """Number of documents without a problem."""

    @property
    def digest(self) -> str:
        """SHA-256 of the documents in their order, in hex."""
        return self._sha.hexdigest()

    def read(self, rows: Iterable[Row]) -> None:
        """Read all documents."""
        for record in read_corpus(rows):
            self.documents += 1
            self.plain += not record.document.problem
            self._sha.update(bytes.fromhex(record.document.hash))
            if (problem := _normalise(record.document.problem)) in self._asked:
                self._found.add(problem)

    @property
    def given_away(self) -> int:
        """Number of questions that the corpus contains."""
        return len(self._found)

    def check(self, corpus: Path, questions: Path, asked: int) -> None:
        """Check that this can be the training set for these questions.

        Raises:
            Invalid: it cannot.
        """
        if self.plain or not self.documents:
            reason = f"{self.plain} of its {self.documents} documents are not a problem with a solution"
            raise Invalid(f"{corpus}: {reason}; the corpus must be MATH's training set", hint=EXPECTED)
        if self.given_away > SAME * asked:
            reason = f"{self.given_away} of the {asked} questions of {questions} are in it with their solutions"
            raise Invalid(f"{corpus}: {reason}; the corpus must be the training set", hint=EXPECTED)


def _list_notes(scan: _Scan, chosen: Sequence[DatasetItem], of: int) -> Iterator[str]:
    """Yield remarks for the reader of the report."""
    if scan.documents != WHOLE:
        yield f"the corpus has {scan.documents} documents; MATH's training set has {WHOLE}"
    if scan.given_away:
        message = f"{scan.given_away} of the {len(chosen)} questions are in the corpus verbatim"
        yield f"{message}; searches exclude a question's own document"
    if not any(item.subject for item in chosen):
        yield "the questions have no subject (is this MATH?), so they were chosen with equal probability"
    elif len(chosen) < of:
        yield f"{len(chosen)} of {of} questions are asked, in proportion to the subjects, with seed {SEED}"
