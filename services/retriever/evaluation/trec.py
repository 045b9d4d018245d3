"""Read and write runs in TREC's format: `query Q0 document rank score tag`, separated by blanks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.errors import Invalid, InvalidLine, NotFound
from shared.plurals import format_count

TAG = "mathrag"


def write(path: Path, run: Mapping[str, Sequence[str]]) -> None:
    """Write a run; scores fall by one from rank to rank, so that no reader finds a tie.

    Raises:
        Invalid: the file cannot be written.
    """
    rows = (
        f"{query} Q0 {document} {rank} {len(found) - rank + 1} {TAG}\n"
        for query, found in run.items()
        for rank, document in enumerate(found, start=1)
    )
    try:
        path.write_text("".join(rows), "utf-8")
    except OSError as error:
        raise Invalid(f"the run cannot be written to {str(path)!r}: {error.strerror}") from error


def read(path: Path, k: int) -> dict[str, list[str]]:
    """Read at most `k` documents per query, by descending score as trec_eval does, and by rank where scores are equal.

    Raises:
        NotFound: there is no such file.
        InvalidLine: a row does not have six columns, or its rank or score is not a number.
    """
    if not path.is_file():
        raise NotFound(f"there is no run {str(path)!r}")
    rows: dict[str, list[tuple[float, int, str]]] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                query, document, rank, score = _parse_row(line.split(), path.name, number)
                rows.setdefault(query, []).append((-score, rank, document))
    return {
        query: list(dict.fromkeys(document for _, _, document in sorted(found)))[:k] for query, found in rows.items()
    }


def _parse_row(cells: list[str], source: str, number: int) -> tuple[str, str, int, float]:
    if len(cells) != 6:
        columns = format_count(len(cells), "column")
        raise InvalidLine(source, number, f"has {columns}, not six; write query Q0 document rank score tag")
    try:
        return cells[0], cells[2], int(cells[3]), float(cells[4])
    except ValueError as error:
        raise InvalidLine(
            source, number, f"rank {cells[3]!r} or score {cells[4]!r} is not a number; write numbers"
        ) from error
