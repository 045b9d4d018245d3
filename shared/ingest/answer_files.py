"""Reads a file of another system's answers: JSON lines, CSV, or the log of a program."""

from collections.abc import Iterator
from pathlib import Path

from shared.errors import Invalid
from shared.ingest import other_logs, rows
from shared.ingest.given_answers import ColumnMapping
from shared.ingest.lines import Row
from shared.ingest.other_logs import Layout
from shared.ingest.rows import Format


def read(
    path: Path,
    columns: ColumnMapping,
    *,
    layout: Layout | None = None,
    format: Format = Format.AUTO,  # noqa: A002
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yield the answers as lines; a file named .csv or .tsv is CSV unless `format` says otherwise.

    Raises:
        Invalid: a log has no format or delimiter to choose, or a log of inspect_ai is read without its layout.
        InvalidLine: later on, where the file cannot be read.
    """
    with path.open("rb") as file:
        if layout is not None:
            check_options(layout, format, delimiter)
            yield from other_logs.read(file, path.name, layout)
        else:
            form = _choose_format(path) if format is Format.AUTO else format
            yield from rows.read(file, path.name, form, delimiter=delimiter, names=columns.names)


def _choose_format(path: Path) -> Format:
    suffix = path.suffix.lower()
    if suffix == ".eval":
        raise Invalid(f"{path.name} is a log of inspect_ai", hint="name its layout: inspect")
    return Format.CSV if suffix in (".csv", ".tsv") else Format.AUTO


def check_options(layout: Layout, format: Format, delimiter: str | None, reader: str | None = None) -> None:  # noqa: A002
    """Refuse options that would be ignored, because a log has a format of its own.

    Raises:
        Invalid: one of them is given.
    """
    given = {"format": format is not Format.AUTO, "delimiter": delimiter is not None, "reader": reader is not None}
    if names := [name for name, is_given in given.items() if is_given]:
        what = f"`layout` is {layout.value}, so `{names[0]}` would be ignored"
        raise Invalid(what, hint="leave one of the two out")
