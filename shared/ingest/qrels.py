"""Read BEIR's relevance judgements: tab-separated `query-id corpus-id score`, with or without that header."""

from pathlib import Path

from shared.errors import InvalidLine
from shared.plurals import format_count

_HEADER = "query-id"


def read(path: Path, source: str) -> dict[str, dict[str, int]]:
    """Read query id -> {document id -> grade}; grades of 0 and below mean "not relevant" and are left out.

    Raises:
        InvalidLine: a row has not three columns, a grade is not a whole number, or the file is not UTF-8.
    """
    judged: dict[str, dict[str, int]] = {}
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            row = _row(raw, source, number)
            if row is None:
                continue
            query, document, grade = row
            documents = judged.setdefault(query, {})
            if grade > 0:
                documents[document] = grade
    return judged


def _row(raw: bytes, source: str, number: int) -> tuple[str, str, int] | None:
    """Read (query, document, grade); None for a blank line and the header."""
    cells = _text(raw, source, number).split("\t")
    if cells == [""] or (number == 1 and cells[0] == _HEADER):
        return None
    if len(cells) != 3:
        raise InvalidLine(
            source,
            number,
            f"has {format_count(len(cells), 'column')}, not three; write query-id, corpus-id and score, separated by"
            " tabs",
        )
    try:
        return cells[0].strip(), cells[1].strip(), int(cells[2])
    except ValueError as error:
        raise InvalidLine(source, number, f"score {cells[2]!r} is not a whole number; write one") from error


def _text(raw: bytes, source: str, number: int) -> str:
    try:
        return raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InvalidLine(source, number, "is not UTF-8; save the file as UTF-8") from error
