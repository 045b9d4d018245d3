"""Read facts, phrases and templates as rows, from tab-separated lines and from the JSON lines that a client sends."""

from collections.abc import Iterator
from typing import IO

from shared.errors import InvalidLine
from shared.ingest import text_files
from shared.ingest.lines import BOM, MAX_LINE_BYTES, Content, Defect, Fields, Row
from shared.ingest.parquet import MAX_DECOMPRESSED_BYTES
from shared.plurals import format_count

FACT = ("subject", "relation", "object", "time")
PHRASE = ("relation", "phrase", "inverse")
TEMPLATE = ("relation", "object_question", "subject_question")
WHAT = "subject, relation, object and optionally time, separated by tabs"
TEMPLATES = "write relation, question for the object and question for the subject, separated by tabs"
HEADERS = ({"subject", "head", "s", "h"}, {"relation", "predicate", "r", "p"}, {"object", "tail", "o", "t"})
"""Names that a header gives to the columns."""


def read(
    file: IO[bytes],
    source: str,
    *,
    are_json: bool | None = None,
    longest: int = MAX_LINE_BYTES,
    decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[Row]:
    """Yield the rows of `file`, which may be compressed with gzip.

    Args:
        are_json: whether its lines are JSON; None: as its first character says.
        longest: bytes that a line may have.
        decompressed: bytes that a packed file may unpack to.

    Raises:
        InvalidLine: it is no text; later on, where it is damaged.
        TooLarge: later on, where more is unpacked than `decompressed`.
    """
    content = text_files.open_unpacked(file, source, decompressed)
    if are_json is None:
        are_json = _head(content).startswith(b"{")
    found = text_files.decode_lines(content, source, longest)
    return _json(found, source) if are_json else tsv(found, source)


def tsv(found: Iterator[text_files.Line], source: str) -> Iterator[Row]:
    """Yield one fact per line; quotes are ordinary characters."""
    for number, text in found:
        cells = text.split("\t") if isinstance(text, str) else []
        if number == 1 and len(cells) >= len(HEADERS) and _is_header(cells):
            raise InvalidLine(source, 1, "is a header; remove it and keep this order: " + WHAT)
        yield source, number, text if isinstance(text, Defect) else _fields(cells)


def phrases(file: IO[bytes], source: str) -> Iterator[Row]:
    """Yield relation, phrase and optionally the phrase of the inverse, separated by tabs."""
    for number, text in text_files.decode_lines(text_files.open_unpacked(file, source), source):
        yield source, number, text if isinstance(text, Defect) else _phrase(text.split("\t"))


def templates(file: IO[bytes], source: str) -> Iterator[Row]:
    """Yield relation, question for its object and question for its subject, separated by tabs."""
    for number, text in text_files.decode_lines(text_files.open_unpacked(file, source), source):
        yield source, number, text if isinstance(text, Defect) else _template(text.split("\t"))


def _head(content: IO[bytes]) -> bytes:
    head: bytes = content.peek(1)  # type: ignore[attr-defined]
    return head.removeprefix(BOM).lstrip()


def _json(found: Iterator[text_files.Line], source: str) -> Iterator[Row]:
    for number, text in found:
        yield source, number, text


def _is_header(cells: list[str]) -> bool:
    return all(cell.strip().lower() in names for cell, names in zip(cells, HEADERS, strict=False))


def _fields(cells: list[str]) -> Content:
    if not 3 <= len(cells) <= len(FACT):
        return Defect(f"has {format_count(len(cells), 'column')}; write {WHAT} (for OpenKE, name the folder)")
    return dict(zip(FACT, cells, strict=False))


def _phrase(cells: list[str]) -> Content:
    if not 2 <= len(cells) <= len(PHRASE):
        return Defect(
            f"has {format_count(len(cells), 'column')}; write relation, phrase and optionally that of its inverse, "
            "separated by tabs"
        )
    found: Fields = dict(zip(PHRASE, cells, strict=False))
    return found


def _template(cells: list[str]) -> Content:
    if len(cells) != len(TEMPLATE):
        return Defect(f"has {format_count(len(cells), 'column')}; {TEMPLATES}")
    found: Fields = dict(zip(TEMPLATE, cells, strict=True))
    return found
