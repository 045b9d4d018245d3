"""Read rows of JSON lines, CSV and Parquet files, and lines of text files that may be compressed."""

import gzip
import io
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from enum import StrEnum
from typing import IO, Any

from mathrag.errors import Invalid, InvalidLine, TooLarge
from mathrag.installation import find_missing_package
from mathrag.reading import lines, parquet_process, row_process, tables
from mathrag.reading.lines import BOM, LFS_POINTER, MAX_LINE_BYTES, Content, Defect, Row

# Rows of an upload in any known format, which the first bytes identify.

MAX_DECOMPRESSED_BYTES = 1 << 30
"""Maximum size of a file's decompressed columns in bytes, unless the operator sets another
(`limits.decompressed_bytes`)."""
HEAD = 1 << 16
"""Number of bytes that are read to recognise a format."""


class Format(StrEnum):
    """The format of an upload."""

    AUTO = "auto"
    """Detect the format from the first bytes."""
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
"""First bytes of files that cannot be read, with messages."""
HTML = (b"<!doctype html", b"<html", b"<?xml")


def read(
    file: IO[bytes],
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - the API's name
    *,
    delimiter: str | None = None,
    longest: int = MAX_LINE_BYTES,
    decompressed: int = MAX_DECOMPRESSED_BYTES,
    names: tables.ColumnNames = tables.KNOWN,
) -> Generator[Row, None, None]:
    """Yield the rows of `file`, from its current position; Parquet must be a file of the operating system.

    `longest` limits a line and `decompressed` all data of a compressed file, both in bytes; `names` are the columns of
    a table. Close the generator, because it may run a process.

    Raises:
        Invalid: a delimiter is given for a file that is not CSV.
        InvalidLine: the file has no data or another format, or, during iteration, it is damaged.
        TooLarge: during iteration, if the file unpacks to more than `decompressed`.
    """
    start = file.tell()
    head = file.read(HEAD)
    file.seek(start)
    found = recognise(head, source, format, names) or Format.JSONL
    if delimiter is not None and found is not Format.CSV:
        raise Invalid(f"`delimiter`: applies only to CSV, but {source} is {found.value}", hint="remove the delimiter")
    if found is Format.PARQUET:
        if not names.parquet:
            raise InvalidLine(source, 1, "is Parquet, which is not accepted here; export it as CSV or JSON lines")
        return read_parquet(file, source, longest, decompressed, names.columns.pairs)
    if found is Format.CSV:
        return tables.rows(file, source, longest, delimiter, names)
    if head.removeprefix(BOM).lstrip().startswith(b"["):
        return read_array(file, source, longest)
    return _jsonl(file, source, longest)


def recognise(
    head: bytes,
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - the API's name
    names: tables.ColumnNames = tables.KNOWN,
) -> Format | None:
    """Return the format of a file that starts with `head`; None if it may have any format.

    Raises:
        InvalidLine: the file has no data, or its format is not `format`.
    """
    if problem := explain_refusal(head) or explain_not_data(head):
        raise InvalidLine(source, 1, problem)
    text = head.removeprefix(BOM).lstrip()
    found = None
    if head.startswith(MAGIC):
        found = Format.PARQUET
    elif text.startswith((b"{", b"[")):
        found = Format.JSONL
    elif tables.has_known_header(text, names):
        found = Format.CSV
    if format is Format.AUTO:
        return found
    if format is Format.PARQUET and found is not Format.PARQUET:
        raise InvalidLine(source, 1, "is not Parquet (its first bytes are not PAR1); set the format to `auto`")
    if found is not None and found is not format:
        raise InvalidLine(source, 1, f"is {found}, not {format}; set the format to {found} or `auto`")
    return format


def explain_refusal(head: bytes) -> str | None:
    """Return the reason why a file with this start cannot be read, and the fix; None for text and Parquet."""
    problem = next((problem for signature, problem in REFUSED if head.startswith(signature)), None)
    if problem is None and head.count(b"\0", 0, 100) > len(head[:100]) // 4 and not head.startswith(MAGIC):
        return "is UTF-16 or UTF-32; save it as UTF-8 (`iconv -f UTF-16LE -t UTF-8 FILE`)"
    return problem


def explain_not_data(head: bytes) -> str | None:
    """Return the reason why text with this start is not data, and the fix; None if it may be data."""
    if head.removeprefix(BOM).lstrip().lower().startswith(HTML):
        return "is a web page, not the data; download the file itself (its raw link)"
    if b"\r" in head and b"\n" not in head and not head.startswith(MAGIC):
        return r"ends lines in a lone carriage return; convert it (`tr '\r' '\n' < FILE`)"
    return None


def _jsonl(file: IO[bytes], source: str, longest: int) -> Generator[Row, None, None]:
    """Yield the lines that are not blank."""
    for number, raw in lines.number_lines(file, longest):
        if lines.is_too_long(raw, longest):
            yield source, number, lines.make_too_long_defect(longest)
        elif not raw.isspace():
            yield source, number, raw


# Members of a JSON array, which may be pretty-printed and larger than memory.

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
PIECE = 1 << 20
BLANKS = b" \t\r\n"
QUOTED = 20
"""Largest number of bytes that a message quotes."""


def read_array(file: IO[bytes], source: str, longest: int) -> Generator[Row, None, None]:
    """Yield every member of the array, numbered from 1; a member is an object of at most `longest` bytes.

    Raises:
        InvalidLine: the rest of the file is not an array of objects, or the file is truncated.
    """
    buffer, number = _Buffer(file, longest), 0
    buffer.take(b"[")
    while (separator := buffer.take(b",]" if number else b"]")) != b"]":
        number += 1
        if not buffer.is_at(b"{") or (number > 1 and not separator):
            problem = f"the array of objects is not valid here (found {buffer.quote() or 'the end of the file'})"
            raise InvalidLine(source, number, f"{problem}; write [{{...}}, {{...}}], or one object per line")
        member = buffer.take_object()
        if member is None:
            problem = "is truncated" if buffer.is_at_end else f"is longer than {longest} bytes"
            raise InvalidLine(source, number, f"{problem}; copy the file again, or split the document")
        yield source, number, _join_lines(member)
    if more := buffer.quote():
        problem = f"has more text after the array ({more})"
        raise InvalidLine(source, number or 1, f"{problem}; write one array, or one object per line")


def _join_lines(member: bytes) -> Content:
    """Return the fields of an object that is written on several lines, because it cannot be sent as one line."""
    if b"\n" not in member and b"\r" not in member:
        return member
    try:
        return lines.parse(member)
    except Defect as defect:
        return defect


class _Buffer:
    """Buffer of a file's bytes from the current position, large enough for the longest member."""

    def __init__(self, file: IO[bytes], longest: int) -> None:
        self._file = file
        self._longest = longest
        self._bytes = bytearray()
        self._at = 0
        self.is_at_end = False
        self._fill()
        self._at = len(BOM) if self._bytes.startswith(BOM) else 0

    def _fill(self) -> None:
        """Read until the buffer has as many bytes as a member and its end may have."""
        if len(self._bytes) - self._at > self._longest or self.is_at_end:
            return
        del self._bytes[: self._at]
        self._at = 0
        while len(self._bytes) <= self._longest and not self.is_at_end:
            piece = self._file.read(max(PIECE, self._longest))
            self._bytes += piece
            self.is_at_end = not piece

    def _skip_blanks(self) -> None:
        while True:
            self._fill()
            rest = self._bytes[self._at : self._at + PIECE]
            blanks = len(rest) - len(rest.lstrip(BLANKS))
            self._at += blanks
            if blanks < len(rest) or not rest:
                return

    def take(self, wanted: bytes) -> bytes:
        """Skip blanks, and take the next byte if it is one of `wanted`; otherwise return b""."""
        self._skip_blanks()
        found = bytes(self._bytes[self._at : self._at + 1])
        if found not in wanted:
            return b""
        self._at += len(found)
        return found

    def is_at(self, wanted: bytes) -> bool:
        """Skip blanks, and return True if the next byte is one of `wanted`."""
        self._skip_blanks()
        return self._bytes[self._at : self._at + 1] == wanted

    def quote(self) -> str:
        """Return the text after blanks, for a message; "" at the end of the file."""
        self._skip_blanks()
        found = self._bytes[self._at : self._at + QUOTED]
        return repr(found.decode(errors="replace")) if found else ""

    def take_object(self) -> bytes | None:
        """Take the object that starts here; None if it does not end within the longest length."""
        self._fill()
        depth = 0
        for token in _TOKEN.finditer(self._bytes, self._at, self._at + self._longest):
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
            if depth == 0:
                found = bytes(self._bytes[self._at : token.end()])
                self._at = token.end()
                return found
        return None


# Rows of a Parquet file, which a process with bounded memory decompresses: kilobytes may become gigabytes.

MAGIC = b"PAR1"
PARQUET_HINT = (
    "write it with smaller row groups, upload it in parts or as JSON lines, or raise `limits.decompressed_bytes`"
)


def read_parquet(
    file: IO[bytes], source: str, longest: int, most: int, pairs: Sequence[str] = ()
) -> Generator[Row, None, None]:
    """Yield every row, numbered from 1, as a line of JSON. Close the generator to end the process.

    `file` must be a file of the operating system. `longest` limits a row's text and `most` all decompressed data, both
    in bytes; `pairs` are the columns that the user chose.

    Raises:
        NotInstalled: pyarrow is missing.
        InvalidLine: the file is damaged, or has no known column.
        TooLarge: the file unpacks to more than `most`, or needs more memory than the process may use.
    """
    if missing := find_missing_package("pyarrow", "mathrag[parquet]"):
        raise missing
    arguments = (str(longest), str(most), *pairs)
    yield from row_process.read_rows(parquet_process.__name__, arguments, file, source, "Parquet file", PARQUET_HINT)


# Lines of text files, with or without gzip, one by one; limits are checked before a line is read.

GZIP = b"\x1f\x8b"
TEXT_HINT = "unpack and split it, or raise `limits.decompressed_bytes`"
Line = tuple[int, str | Defect]
"""Number of a line, from 1, and its text without the line end, or its defect."""
Sound = tuple[int, str]
"""A line without a defect."""


def open_unpacked(file: IO[bytes], source: str, most: int = MAX_DECOMPRESSED_BYTES) -> IO[bytes]:
    """Open the content of `file`, compressed or not; decompress at most `most` bytes.

    Raises:
        InvalidLine: the file is not text.
        TooLarge: while reading, if the file unpacks to more than `most`.
        Defect: while reading, if the compressed file is damaged.
    """
    buffered: Any = file
    if buffered.peek(len(GZIP)).startswith(GZIP):
        buffered = io.BufferedReader(_Unpacked(file, source, most))
    try:
        head = buffered.peek(HEAD)
    except Defect as defect:
        raise lines.locate_defect(defect, source, 1) from defect
    if problem := explain_refusal(head) or explain_not_data(head):
        raise InvalidLine(source, 1, problem)
    found: IO[bytes] = buffered
    return found


class _Unpacked(io.RawIOBase):
    """Reads the content of a compressed file."""

    def __init__(self, file: IO[bytes], source: str, most: int) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._source = source
        self._left = most
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as there is data."""
        try:
            found = self._file.readinto(buffer)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Defect(f"the gzip file is truncated or damaged ({error}); download or write it again") from error
        self._left -= found
        if self._left < 0:
            raise TooLarge(f"{self._source} unpacks to more than {self._most} bytes", hint=TEXT_HINT)
        return found


def read_whole(file: IO[bytes], source: str, most: int) -> bytes:
    """Read a file, compressed or not, into memory, without a byte order mark.

    Raises:
        InvalidLine: the file is not text, or the compressed file is damaged.
        TooLarge: the unpacked file has more than `most` bytes.
    """
    try:
        content = open_unpacked(file, source).read(most + 1)
    except Defect as defect:
        raise lines.locate_defect(defect, source, 1) from defect
    if len(content) > most:
        raise TooLarge(f"{source} is longer than {most} bytes when unpacked", hint="split the file")
    return content.removeprefix(BOM)


def require_sound(found: Iterator[Line], source: str) -> Iterator[Sound]:
    """Yield the lines; raise an error for a line with a defect."""
    for number, text in found:
        if isinstance(text, Defect):
            raise lines.locate_defect(text, source, number)
        yield number, text


def decode_lines(file: IO[bytes], source: str, longest: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield every line of the content that is not blank.

    Raises:
        InvalidLine: the rest of the compressed file is damaged.
        TooLarge: the file unpacks to more than the limit.
    """
    number = 0
    try:
        for number, raw in lines.number_lines(file, longest):
            if lines.is_too_long(raw, longest):
                yield number, Defect(f"is longer than {longest} bytes; check that the file has lines")
            elif raw.strip(b" \r\n"):
                yield number, _decode(raw.removeprefix(BOM) if number == 1 else raw)
    except Defect as defect:
        raise lines.locate_defect(defect, source, number + 1) from defect


def _decode(raw: bytes) -> str | Defect:
    try:
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        return Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8")
    if "\0" in text:
        return Defect("contains a NUL character; the file must be UTF-8 text (is it UTF-16?)")
    if "\r" in text:
        return Defect(r"contains a lone carriage return; end lines with \n (`tr '\r' '\n' < FILE`)")
    return text
