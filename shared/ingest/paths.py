"""Files and folders that users have, as numbered JSON lines, one at a time."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from shared.errors import Invalid, InvalidLine, NotFound
from shared.ingest import lines, qrels

Numbered = tuple[str, int, bytes]
"""(source, line number from 1, the raw line)."""

LAYOUTS = (
    "a JSONL file (one JSON object per line, .jsonl or .ndjson)",
    "a MATH folder ({train,test}/{subject}/{n}.json, or {subject}/{n}.json)",
    "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/{split}.tsv)",
)
_SUFFIXES = (".jsonl", ".ndjson")


def corpus_lines(path: Path, *, split: str = "train") -> Iterator[Numbered]:
    """The lines of a corpus: a JSONL file, a MATH folder (of its `split`, where it has splits), a BEIR corpus.

    Raises:
        NotFound: no such path.
        Invalid: an unknown layout; the message lists the known ones.
        InvalidLine: a file of a MATH folder is not a JSON object.
    """
    _check_exists(path)
    if path.is_file():
        return _jsonl(_known_file(path), path.name)
    if (path / "corpus.jsonl").is_file():
        return _jsonl(path / "corpus.jsonl", "corpus.jsonl")
    return _math(path, split)


def dataset_lines(path: Path, *, split: str = "test") -> Iterator[Numbered]:
    """The lines of a dataset: as `corpus_lines`; BEIR queries of `split` are joined with their `gold_documents`.

    Raises:
        NotFound: no such path.
        Invalid: an unknown layout or split; the message lists the known ones.
        InvalidLine: a file of a MATH folder, a query or a judgement cannot be read.
    """
    _check_exists(path)
    if path.is_file():
        return _jsonl(_known_file(path), path.name)
    if (path / "queries.jsonl").is_file():
        return _queries(path, split)
    return _math(path, split)


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise NotFound(f"There is no file or folder {str(path)!r}")


def _known_file(path: Path) -> Path:
    if path.suffix.lower() not in _SUFFIXES:
        raise _unknown(path)
    return path


def _unknown(path: Path) -> Invalid:
    return Invalid(f"{path.name!r} has no known layout", hint="Known layouts: " + "; ".join(LAYOUTS))


def _jsonl(path: Path, source: str) -> Iterator[Numbered]:
    """Lines that are not blank. Of a line over the limit only so much is kept that its reader refuses it."""
    limit = lines.MAX_LINE_BYTES + len(lines.BOM) + len(b"\r\n") + 1
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(limit):
            number += 1
            kept = raw
            while len(raw) == limit and not raw.endswith(b"\n"):
                raw = file.readline(limit)
            if kept.strip():
                yield source, number, kept


def _math(path: Path, split: str) -> Iterator[Numbered]:
    """One line per problem, in natural order, with the path below the folder as `unique_id` (as MATH-500 has it)."""
    root = path / split if (path / split).is_dir() else path
    files = sorted(root.glob("*/*.json"), key=_natural)
    if not files:
        raise _unknown(path)
    return (_problem(file, file.relative_to(path).as_posix()) for file in files)


def _natural(file: Path) -> tuple[str, int, str]:
    number = int(file.stem) if file.stem.isdecimal() else -1
    return file.parent.name, number, file.stem


def _problem(file: Path, source: str) -> Numbered:
    with file.open("rb") as opened:
        fields = lines.parse(opened.read(lines.MAX_LINE_BYTES + len(lines.BOM) + 1), source, 1)
    return source, 1, msgspec.json.encode({"unique_id": source, **fields})


def _queries(path: Path, split: str) -> Iterator[Numbered]:
    """The queries that `split` judges; BEIR keeps the queries of all splits in one file."""
    judged = qrels.read(_qrels_file(path, split), f"qrels/{split}.tsv")
    return _joined(_jsonl(path / "queries.jsonl", "queries.jsonl"), judged)


def _qrels_file(path: Path, split: str) -> Path:
    file = path / "qrels" / f"{split}.tsv"
    if not file.is_file():
        known = ", ".join(sorted(each.stem for each in (path / "qrels").glob("*.tsv"))) or "none"
        raise Invalid(f"{path.name!r} has no judgements for the split {split!r}", hint=f"Splits it has: {known}")
    return file


def _joined(queries: Iterator[Numbered], judged: dict[str, dict[str, int]]) -> Iterator[Numbered]:
    for source, number, raw in queries:
        fields = lines.parse(raw, source, number)
        identifier = lines.identifier(fields, ("_id",), source, number)
        if identifier is None:
            raise InvalidLine(source, number, "has no `_id`; a BEIR query needs one")
        if identifier in judged:
            yield source, number, msgspec.json.encode({**fields, "gold_documents": judged[identifier]})
