"""Read users' files and folders as rows, one at a time."""

from collections.abc import Iterator
from pathlib import Path

from shared.errors import Invalid, NotFound
from shared.ingest import fields, folders, lines, qrels, rows
from shared.ingest.lines import Defect, Row
from shared.ingest.passages import Chunking
from shared.ingest.rows import Format

LAYOUTS = (
    "a JSONL, CSV or Parquet file",
    "a MATH folder ({train,test}/{subject}/{n}.json, or {subject}/{n}.json)",
    "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/{split}.tsv)",
    "an AutoRAG folder (corpus.parquet, qa.parquet)",
    "a FlashRAG folder ({split}.jsonl)",
    "for a corpus, Markdown, reStructuredText or text files (.md, .markdown, .rst, .txt), or a folder of them",
)
DEFAULT = Chunking()
_SUFFIXES = {
    ".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".csv": Format.CSV, ".tsv": Format.CSV, ".parquet": Format.PARQUET
}  # fmt: skip


def corpus_lines(
    path: Path,
    *,
    split: str = "train",
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    chunking: Chunking = DEFAULT,
) -> Iterator[Row]:
    """Yield the rows of a corpus.

    Raises:
        NotFound: no such path.
        Invalid: an unknown layout, or more than one; the message lists the known ones.
        InvalidLine: a file is no data.
    """
    _check_exists(path)
    if path.is_file():
        is_text = path.suffix.lower() in folders.TEXTS
        return folders.texts(path.parent, [path], chunking) if is_text else _file(path, format, delimiter)
    if found := _table(path, ("corpus.jsonl", "corpus.parquet", f"{split}.jsonl")):
        return _file(found, format, delimiter)
    if problems := folders.math_files(path, split):
        return folders.math(path, problems)
    return folders.texts(path, _require_files(path, folders.text_files(path)), chunking)


def dataset_lines(
    path: Path,
    *,
    split: str = "test",
    format: Format = Format.AUTO,  # noqa: A002
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a dataset; BEIR's queries of `split` are joined with their `gold_documents`.

    Raises:
        NotFound: no such path.
        Invalid: an unknown layout or split, or more than one layout; the message lists the known ones.
        InvalidLine: a file is no data, or a judgement cannot be read.
    """
    _check_exists(path)
    if path.is_file():
        return _file(path, format, delimiter)
    found = _table(path, ("queries.jsonl", "qa.parquet", f"{split}.jsonl"))
    if found is None:
        return folders.math(path, _require_files(path, folders.math_files(path, split)))
    if found.name == "queries.jsonl":
        return _queries(path, split)
    return _file(found, format, delimiter)


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise NotFound(f"there is no file or folder {str(path)!r}")


def _table(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the folder's file that holds all rows.

    Raises:
        Invalid: there are two.
    """
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        names = tuple(file.name for file in found)
        raise Invalid(
            f"{folder.name!r} fits several layouts: {', '.join(names)}", hint=f"choose one: --from {found[0]}"
        )
    return found[0] if found else None


def _require_files(path: Path, files: list[Path]) -> list[Path]:
    if not files:
        raise _make_unknown_layout(path)
    return files


def _make_unknown_layout(path: Path) -> Invalid:
    return Invalid(f"{path.name!r} has no known layout", hint="known layouts: " + "; ".join(LAYOUTS))


def _file(path: Path, format: Format, delimiter: str | None) -> Iterator[Row]:  # noqa: A002
    """Open the file in the format of its content, or of its name if the content does not show it."""
    with path.open("rb") as file:
        head = file.read(rows.HEAD)
    chosen = rows.recognise(head, path.name, format) or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise _make_unknown_layout(path)
    return _open_file(path, chosen, delimiter)


def _open_file(path: Path, format: Format, delimiter: str | None) -> Iterator[Row]:  # noqa: A002
    with path.open("rb") as file:
        yield from rows.read(file, path.name, format, delimiter=delimiter)


def _queries(path: Path, split: str) -> Iterator[Row]:
    """Yield the queries that `split` judges; BEIR keeps the queries of all splits in one file."""
    judged = qrels.read(_qrels_file(path, split), f"qrels/{split}.tsv")
    return _join_golds(_file(path / "queries.jsonl", Format.JSONL, None), judged)


def _qrels_file(path: Path, split: str) -> Path:
    file = path / "qrels" / f"{split}.tsv"
    if not file.is_file():
        known = ", ".join(sorted(each.stem for each in (path / "qrels").glob("*.tsv"))) or "none"
        raise Invalid(f"{path.name!r} has no judgements for the split {split!r}", hint=f"it has the splits {known}")
    return file


def _join_golds(queries: Iterator[Row], judged: dict[str, dict[str, int]]) -> Iterator[Row]:
    for source, number, content in queries:
        try:
            query = lines.fields(content)
            identifier = fields.identifier(query, ("_id",))
        except Defect as defect:
            yield source, number, defect
            continue
        if identifier is None:
            yield source, number, Defect("has no `_id`; give the query one")
        elif identifier in judged:
            yield source, number, {**query, "gold_documents": judged[identifier]}
