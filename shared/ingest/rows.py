"""Stream the rows of an upload in any known format, which its first bytes identify."""

from collections.abc import Generator
from enum import StrEnum
from typing import IO

from shared.errors import Invalid, InvalidLine
from shared.ingest import lines, parquet, tables
from shared.ingest.lines import BOM, LFS_POINTER, MAX_LINE_BYTES, Row

HEAD = 1 << 16
"""Number of bytes by which a format is recognised."""


class Format(StrEnum):
    """The format of an upload."""

    AUTO = "auto"
    """Recognised by the first bytes."""
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


REFUSED = (
    (b"\x1f\x8b", "is compressed with gzip; unpack it first (`gunzip FILE`)"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first (`unzstd FILE`)"),
    (b"BZh", "is compressed with bzip2; unpack it first (`bunzip2 FILE`)"),
    (b"PK\x03\x04", "is a ZIP archive or a spreadsheet; unpack it, or export it as CSV"),
    (b"\xff\xfe", "is UTF-16; save it as UTF-8 (`iconv -f UTF-16 -t UTF-8 FILE`)"),
    (b"\xfe\xff", "is UTF-16; save it as UTF-8 (`iconv -f UTF-16 -t UTF-8 FILE`)"),
    (LFS_POINTER, "is a Git LFS pointer, not the data; run `git lfs pull` and upload the file"),
)
"""How files that are not data begin, and what to do about them."""
HTML = (b"<!doctype html", b"<html", b"<?xml")


def read(
    file: IO[bytes],
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    *,
    delimiter: str | None = None,
    longest: int = MAX_LINE_BYTES,
    decompressed: int = parquet.MAX_DECOMPRESSED_BYTES,
    names: tables.ColumnNames = tables.KNOWN,
) -> Generator[Row, None, None]:
    """Yield the rows of `file`, from its current position; Parquet must be a file of the operating system.

    `longest` is the limit of a line in bytes, `decompressed` of all data of a compressed file; `names` are those of a
    table's columns. Close the generator, since it may run a process.

    `longest` is the limit of a line in bytes, `decompressed` of all that a compressed file may become; `names` are
    those of a table's columns. Close what is returned: a process may be at work for it.

    Raises:
        Invalid: there is a delimiter, and this is no CSV.
        InvalidLine: this is no data, or not in that format; later on, where it is damaged.
        TooLarge: later on, where there is more in it than `decompressed` allows.
    """
    found = recognise(_head(file), source, format, names) or Format.JSONL
    if delimiter is not None and found is not Format.CSV:
        raise Invalid(f"`delimiter`: {source} is {found.value}, which has none", hint="leave it out")
    if found is Format.PARQUET:
        if names is not tables.KNOWN:
            raise InvalidLine(source, 1, "is Parquet, which is not accepted here; export it as CSV or JSON lines")
        return parquet.rows(file, source, longest, decompressed)
    if found is Format.CSV:
        return tables.rows(file, source, longest, delimiter, names)
    return _jsonl(file, source, longest)


def recognise(
    head: bytes,
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    names: tables.ColumnNames = tables.KNOWN,
) -> Format | None:
    """Return the format of a file that begins with `head`; None if it could be any.

    Raises:
        InvalidLine: it is no data, or `format` says otherwise.
    """
    problem = explain_refusal(head) or explain_not_data(head)
    if problem is not None:
        raise InvalidLine(source, 1, problem)
    found = _guess(head, names)
    if format is Format.AUTO:
        return found
    if format is Format.PARQUET and found is not Format.PARQUET:
        raise InvalidLine(source, 1, "is not Parquet (its first bytes are not PAR1); set the format to `auto`")
    if found is not None and found is not format:
        raise InvalidLine(source, 1, f"is {found}, not {format}; name that format, or `auto`")
    return format


def explain_refusal(head: bytes) -> str | None:
    """Return why a file with this beginning cannot be read, and what to do; None for text and Parquet."""
    problem = next((problem for signature, problem in REFUSED if head.startswith(signature)), None)
    if problem is None and head.count(b"\0", 0, 100) > len(head[:100]) // 4 and not head.startswith(parquet.MAGIC):
        return "is UTF-16 or UTF-32; save it as UTF-8 (`iconv -f UTF-16LE -t UTF-8 FILE`)"
    return problem


def explain_not_data(head: bytes) -> str | None:
    """Return why text with this beginning is not data; None if it may be."""
    if head.removeprefix(BOM).lstrip().lower().startswith(HTML):
        return "is a web page, not the data; download the file itself (its raw link)"
    if b"\r" in head and b"\n" not in head and not head.startswith(parquet.MAGIC):
        return r"ends lines in a lone carriage return; convert it (`tr '\r' '\n' < FILE`)"
    return None


def _guess(head: bytes, names: tables.ColumnNames) -> Format | None:
    if head.startswith(parquet.MAGIC):
        return Format.PARQUET
    text = head.removeprefix(BOM).lstrip()
    if text.startswith((b"{", b"[")):
        return Format.JSONL
    return Format.CSV if tables.has_known_header(text, names) else None


def _head(file: IO[bytes]) -> bytes:
    start = file.tell()
    head = file.read(HEAD)
    file.seek(start)
    return head


def _jsonl(file: IO[bytes], source: str, longest: int) -> Generator[Row, None, None]:
    """Yield the lines that are not blank."""
    for number, raw in lines.number_lines(file, longest):
        if lines.is_too_long(raw, longest):
            yield source, number, lines.make_too_long_defect(longest)
        elif not raw.isspace():
            yield source, number, raw
