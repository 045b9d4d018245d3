"""Read lines of text files, compressed with gzip or not, one by one; limits are checked before a line is read."""

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any

from shared.errors import InvalidLine, TooLarge
from shared.ingest import lines, rows
from shared.ingest.lines import BOM, MAX_LINE_BYTES, Defect
from shared.ingest.parquet import MAX_DECOMPRESSED_BYTES

GZIP = b"\x1f\x8b"
HINT = "unpack and split it, or raise `limits.decompressed_bytes`"
Line = tuple[int, str | Defect]
"""Number of a line, from 1, and its text without the line end, or what is wrong with it."""
Sound = tuple[int, str]
"""A line without a defect."""


def open_unpacked(file: IO[bytes], source: str, most: int = MAX_DECOMPRESSED_BYTES) -> IO[bytes]:
    """Open the content of `file`, compressed or not; at most `most` bytes are decompressed.

    Raises:
        InvalidLine: this is no text.
        TooLarge: later on, where more is unpacked than `most`.
        Defect: later on, where the packed file is damaged.
    """
    buffered: Any = file
    if buffered.peek(len(GZIP)).startswith(GZIP):
        buffered = io.BufferedReader(_Unpacked(file, source, most))
    try:
        head = buffered.peek(rows.HEAD)
    except Defect as defect:
        raise lines.locate_defect(defect, source, 1) from defect
    if problem := rows.explain_refusal(head) or rows.explain_not_data(head):
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
            raise TooLarge(f"{self._source} unpacks to more than {self._most} bytes", hint=HINT)
        return found


def read_whole(file: IO[bytes], source: str, most: int) -> bytes:
    """Read a file, compressed or not, into memory, without a byte order mark.

    Raises:
        InvalidLine: this is no text, or the packed file is damaged.
        TooLarge: it has more than `most` bytes, unpacked.
    """
    try:
        content = open_unpacked(file, source).read(most + 1)
    except Defect as defect:
        raise lines.locate_defect(defect, source, 1) from defect
    if len(content) > most:
        raise TooLarge(f"{source} is longer than {most} bytes when unpacked", hint="split the file")
    return content.removeprefix(BOM)


def require_sound(found: Iterator[Line], source: str) -> Iterator[Sound]:
    """Yield the lines; a defect in any of them is an error.

    Raises:
        InvalidLine: one has.
    """
    for number, text in found:
        if isinstance(text, Defect):
            raise lines.locate_defect(text, source, number)
        yield number, text


def decode_lines(file: IO[bytes], source: str, longest: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield every line of the content that is not blank.

    Raises:
        InvalidLine: the packed file is damaged from here on.
        TooLarge: it unpacks to too much.
    """
    number = 0
    try:
        for number, raw in lines.number_lines(file, longest):
            if lines.is_too_long(raw, longest):
                yield number, Defect(f"is longer than {longest} bytes; check that the file has lines")
            elif raw.strip(b" \r\n"):
                yield number, _text(raw.removeprefix(BOM) if number == 1 else raw)
    except Defect as defect:
        raise lines.locate_defect(defect, source, number + 1) from defect


def _text(raw: bytes) -> str | Defect:
    try:
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        return Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8")
    if "\0" in text:
        return Defect("holds a NUL character; the file must be UTF-8 text (is it UTF-16?)")
    if "\r" in text:
        return Defect(r"holds a lone carriage return; end lines with \n (`tr '\r' '\n' < FILE`)")
    return text
