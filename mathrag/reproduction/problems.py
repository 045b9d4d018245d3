"""The problems: which files of a folder are MATH's, whether they are what they should be, the part that is asked."""

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
from shared.ingest.strata import stratified

CORPUS = ("train.jsonl", "train.parquet", "train-00000-of-00001.parquet", "train")
"""What the training part is called, best first; the last one is a folder of the original archive."""
QUESTIONS = (
    "test.jsonl", "math500.jsonl", "MATH-500.jsonl", "test.parquet", "test-00000-of-00001.parquet", "test-dev.jsonl",
    "test",
)  # fmt: skip
WHOLE = 7_500
"""Problems of MATH's training part."""
SEED = 1
"""Chooses the part of the questions; the same number of questions are the same ones."""
SAME = 0.5
"""Share of the questions from which on the corpus is no corpus for them."""
UNKNOWN = "unknown"
EXPECTED = "docs/math.md says which files are wanted; --corpus and --questions name them one by one"


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """What is uploaded."""

    corpus: Path
    questions: Path
    documents: int
    corpus_digest: str
    asked: bytes
    """The part that is asked, as JSON lines."""
    items: int
    of: int
    """Questions that the file holds."""
    notes: tuple[str, ...]
    """What a reader must know of them."""

    @property
    def corpus_name(self) -> str:
        """By its content: another one is never taken for it."""
        return f"math-{self.documents}-{self.corpus_digest[:8]}"

    @property
    def asked_digest(self) -> str:
        """SHA-256 in hex."""
        return hashlib.sha256(self.asked).hexdigest()

    @property
    def dataset_name(self) -> str:
        """The same of the questions."""
        return f"math-asked-{self.items}-{self.asked_digest[:8]}"


def find(data: Path | None, corpus: Path | None, questions: Path | None) -> tuple[Path, Path]:
    """Corpus and questions: those that are named, else what the folder holds.

    Raises:
        NotFound: one is missing; the hint says what is looked for.
    """
    return corpus or _in(data, CORPUS, "--corpus"), questions or _in(data, QUESTIONS, "--questions")


def _in(data: Path | None, names: Sequence[str], option: str) -> Path:
    if data is None:
        raise NotFound("no problems are named", hint=f"--data FOLDER, or {option} PATH; {EXPECTED}")
    found = next((data / name for name in names if (data / name).exists()), None)
    if found is None:
        raise NotFound(f"{data} holds none of {', '.join(names)}", hint=f"{option} PATH; {EXPECTED}")
    return found


def read(corpus: Path, questions: Path, items: int | None) -> Problems:
    """Read and check both; `items`: how many are asked, every subject with its share (None: all).

    Raises:
        Invalid: a file is not what it should be; the message says which and why.
    """
    try:
        every = list(read_dataset(paths.dataset_lines(questions)))
        chosen = _chosen(every, questions, items)
        scan = _Scan({_plain(item.question) for item in chosen})
        scan.read(paths.corpus_lines(corpus))
    except MathragError as error:
        error.hint = error.hint or EXPECTED
        raise
    scan.check(corpus, questions, len(chosen))
    return Problems(
        corpus=corpus, questions=questions, documents=scan.documents, corpus_digest=scan.digest,
        asked=b"".join(msgspec.json.encode(item) + b"\n" for item in chosen), items=len(chosen), of=len(every),
        notes=tuple(_notes(scan, chosen, len(every))),
    )  # fmt: skip


def _chosen(every: Sequence[DatasetItem], questions: Path, items: int | None) -> list[DatasetItem]:
    unanswered = sum(item.gold is None for item in every)
    if unanswered or not every:
        said = f"{unanswered} of its {len(every)} questions have no answer to grade against" if every else "is empty"
        raise Invalid(f"{questions}: {said}")
    count = len(every) if items is None else items
    if count > len(every):
        raise Invalid(f"--items {count}: {questions} holds {len(every)} questions", hint=f"--items {len(every)}")
    subjects = [item.subject or UNKNOWN for item in every]
    return [every[position] for position in stratified(subjects, count, SEED)]


def _plain(text: str) -> str:
    """Equal for texts that differ in blanks and capitals alone."""
    return " ".join(canonical.normalise(text).lower().split())


class _Scan:
    """Reads a corpus once, whatever its size; keeps counts, a digest, and which questions stand in it."""

    def __init__(self, asked: set[str]) -> None:
        self._asked = asked
        self._found: set[str] = set()
        self._sha = hashlib.sha256()
        self.documents = 0
        self.plain = 0
        """Documents without a problem."""

    @property
    def digest(self) -> str:
        """Of the documents in their order, in hex."""
        return self._sha.hexdigest()

    def read(self, rows: Iterable[Row]) -> None:
        """All documents."""
        for record in read_corpus(rows):
            self.documents += 1
            self.plain += not record.document.problem
            self._sha.update(bytes.fromhex(record.document.hash))
            if (problem := _plain(record.document.problem)) in self._asked:
                self._found.add(problem)

    @property
    def given_away(self) -> int:
        """Questions that stand in it."""
        return len(self._found)

    def check(self, corpus: Path, questions: Path, asked: int) -> None:
        """Whether this can be the training part to these questions.

        Raises:
            Invalid: it cannot.
        """
        if self.plain or not self.documents:
            said = f"{self.plain} of its {self.documents} documents are no problem with a solution"
            raise Invalid(f"{corpus}: {said}; MATH's training part is wanted", hint=EXPECTED)
        if self.given_away > SAME * asked:
            said = f"{self.given_away} of the {asked} questions of {questions} stand in it with their solutions"
            raise Invalid(f"{corpus}: {said}; the corpus must be the training part", hint=EXPECTED)


def _notes(scan: _Scan, chosen: Sequence[DatasetItem], of: int) -> Iterator[str]:
    """What a reader must know."""
    if scan.documents != WHOLE:
        yield f"the corpus has {scan.documents} documents; MATH's training part has {WHOLE}"
    if scan.given_away:
        said = f"{scan.given_away} of the {len(chosen)} questions stand in the corpus word for word"
        yield f"{said}; searches leave a question's own document out"
    if not any(item.subject for item in chosen):
        yield "the questions have no subject: is this MATH? any question was as likely to be chosen as another"
    elif len(chosen) < of:
        yield f"{len(chosen)} of {of} questions are asked: every subject has its share, seed {SEED} chooses"
