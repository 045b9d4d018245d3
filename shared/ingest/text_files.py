"""Lines of text files, packed by gzip or not: decoded one by one, within limits that hold before they are read."""

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
HINT = "unpack and split it, or see `limits.decompressed_bytes`"
Line = tuple[int, str | Defect]
"""Number from 1, and its text without the line end, or what is wrong with it."""
Sound = tuple[int, str]
"""A line with which nothing is wrong."""


def unpacked(file: IO[bytes], source: str, most: int = MAX_DECOMPRESSED_BYTES) -> IO[bytes]:
    """The content of `file`, whether packed or not; at most `most` bytes are unpacked.

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
        raise lines.located(defect, source, 1) from defect
    if said := rows.refusal(head) or rows.not_data(head):
        raise InvalidLine(source, 1, said)
    found: IO[bytes] = buffered
    return found


class _Unpacked(io.RawIOBase):
    """Reads what a packed file holds."""

    def __init__(self, file: IO[bytes], source: str, most: int) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._source = source
        self._left = most
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as there is something."""
        try:
            found = self._file.readinto(buffer)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Defect(f"the gzip file is truncated or damaged ({error}); download or write it again") from error
        self._left -= found
        if self._left < 0:
            raise TooLarge(f"{self._source} unpacks to more than {self._most} bytes", hint=HINT)
        return found


def whole(file: IO[bytes], source: str, most: int) -> bytes:
    """All of a file, packed or not, that has to be held in memory, without a byte order mark.

    Raises:
        InvalidLine: this is no text, or the packed file is damaged.
        TooLarge: it has more than `most` bytes, unpacked.
    """
    content = begin(file, source, most + 1)
    if len(content) > most:
        raise TooLarge(f"{source} is longer than {most} bytes, unpacked", hint="split it")
    return content.removeprefix(BOM)


def begin(file: IO[bytes], source: str, size: int) -> bytes:
    """The first `size` bytes of a file, packed or not.

    Raises:
        InvalidLine: this is no text, or the packed file is damaged.
    """
    try:
        return unpacked(file, source).read(size)
    except Defect as defect:
        raise lines.located(defect, source, 1) from defect


def sound(found: Iterator[Line], source: str) -> Iterator[Sound]:
    """Lines none of which may have a defect.

    Raises:
        InvalidLine: one has.
    """
    for number, text in found:
        if isinstance(text, Defect):
            raise lines.located(text, source, number)
        yield number, text


def decoded(file: IO[bytes], source: str, longest: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Every line of what `unpacked` returned that is not blank.

    Raises:
        InvalidLine: the packed file is damaged from here on.
        TooLarge: it unpacks to too much.
    """
    number = 0
    try:
        for number, raw in lines.numbered(file, longest):
            if lines.is_too_long(raw, longest):
                yield number, Defect(f"is longer than {longest} bytes; is this a file of lines?")
            elif raw.strip(b" \r\n"):
                yield number, _text(raw.removeprefix(BOM) if number == 1 else raw)
    except Defect as defect:
        raise lines.located(defect, source, number + 1) from defect


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
