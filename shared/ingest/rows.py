"""Rows of an upload, whatever its format: recognised by its first bytes, then read as a stream."""

from collections.abc import Generator
from enum import StrEnum
from typing import IO

from shared.errors import InvalidLine
from shared.ingest import lines, parquet, tables
from shared.ingest.lines import BOM, LFS_POINTER, MAX_LINE_BYTES, Row

HEAD = 1 << 16
"""Bytes that a format is recognised by."""


class Format(StrEnum):
    """How an upload is written."""

    AUTO = "auto"
    """As its first bytes say."""
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
"""What a file begins with that is no data, and what to do about it."""
HTML = (b"<!doctype html", b"<html", b"<?xml")


def read(
    file: IO[bytes],
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    *,
    delimiter: str | None = None,
    longest: int = MAX_LINE_BYTES,
    decompressed: int = parquet.MAX_DECOMPRESSED_BYTES,
    names: tables.Names = tables.KNOWN,
) -> Generator[Row, None, None]:
    """The rows of `file`, from where it stands; of Parquet, it must be a file of the operating system.

    `longest` is the limit of a line in bytes, `decompressed` of all that a compressed file may become; `names` are
    those of a table's columns. Close what is returned: a process may be at work for it.

    Raises:
        InvalidLine: this is no data, or not in that format; later on, where it is damaged.
        TooLarge: later on, where there is more in it than `decompressed` allows.
    """
    found = recognised(_head(file), source, format, names) or Format.JSONL
    if found is Format.PARQUET:
        if names is not tables.KNOWN:
            raise InvalidLine(source, 1, "is Parquet, which is not read here; export it as CSV or JSON lines")
        return parquet.rows(file, source, longest, decompressed)
    if found is Format.CSV:
        return tables.rows(file, source, longest, delimiter, names)
    return _jsonl(file, source, longest)


def recognised(
    head: bytes,
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    names: tables.Names = tables.KNOWN,
) -> Format | None:
    """The format of what begins with `head`; None where nothing speaks for any.

    Raises:
        InvalidLine: it is no data, or `format` says otherwise.
    """
    said = refusal(head) or not_data(head)
    if said is not None:
        raise InvalidLine(source, 1, said)
    found = _guess(head, names)
    if format is Format.AUTO:
        return found
    if format is Format.PARQUET and found is not Format.PARQUET:
        raise InvalidLine(source, 1, "is not Parquet (its first bytes are not PAR1); leave the format to `auto`")
    if found is not None and found is not format:
        raise InvalidLine(source, 1, f"is {found}, not {format}; say so, or leave the format to `auto`")
    return format


def refusal(head: bytes) -> str | None:
    """Why nothing can be read from what begins so, and what to do about it; None for text and Parquet."""
    said = next((said for signature, said in REFUSED if head.startswith(signature)), None)
    if said is None and head.count(b"\0", 0, 100) > len(head[:100]) // 4 and not head.startswith(parquet.MAGIC):
        return "is UTF-16 or UTF-32; save it as UTF-8 (`iconv -f UTF-16LE -t UTF-8 FILE`)"
    return said


def not_data(head: bytes) -> str | None:
    """Why text that begins so is no data; None where nothing speaks against it."""
    if head.removeprefix(BOM).lstrip().lower().startswith(HTML):
        return "is a web page, not the data; download the file itself (its raw link)"
    if b"\r" in head and b"\n" not in head and not head.startswith(parquet.MAGIC):
        return r"ends lines in a lone carriage return; convert it (`tr '\r' '\n' < FILE`)"
    return None


def _guess(head: bytes, names: tables.Names) -> Format | None:
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
    """Lines that are not blank."""
    for number, raw in lines.numbered(file, longest):
        if lines.is_too_long(raw, longest):
            yield source, number, lines.too_long(longest)
        elif not raw.isspace():
            yield source, number, raw
