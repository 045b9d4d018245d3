"""Lines of uploads: read, decode and check them, within limits."""

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import IO, Any, Generic, TypeVar

import msgspec

from mathrag.errors import InvalidLine, TooLarge

# Parsing of one line of an upload; every `Defect` says what to change.

MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line in bytes, unless the operator sets another (`limits.line_bytes`). It is checked before
parsing."""
MOST_DIGITS = 4300
"""Maximum number of digits of an integer that Python converts."""
SHOWN = 40
"""Largest number of characters of a number in a message."""
MOST_DEPTH = 100
"""Maximum nesting of arrays and objects; Python can encode about a thousand, fewer if the stack is deep."""
MOST_VALUES = 10_000
"""Maximum number of values on a line: the members of all its lists and objects."""
VALUE_BYTES = 32
"""Approximate memory of a parsed value in bytes, without its text."""
NESTED_TOO_DEEPLY = "is nested too deeply; write one flat JSON object per line"
BOM = b"\xef\xbb\xbf"
LFS_POINTER = b"version https://git-lfs"

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_FILLED = re.compile(rb"[\[{]\s*+(?![\s\]}])")
"""Matches the start of a list or object that is not empty."""

Fields = dict[str, Any]
_BEFORE_VALUES = b",[{"
"""Bytes that precede values, so their number is about that of the values on a line."""
_NESTING = frozenset((dict, list))
_fast = msgspec.json.Decoder().decode


class Defect(Exception):
    """Describes the defect of a line and its fix; the caller adds the source and the line number."""


class NoNumber(msgspec.Struct, frozen=True):
    """Replaces a number that JSON does not allow; reading the field raises a defect."""

    said: str
    """Description such as "NaN, which JSON does not allow"."""


class Empty(Defect):
    """The line is valid but has no text."""


class TwoColumns(Defect):
    """Two columns fill the same field with different values."""

    def __init__(self, first: str, second: str, field: str) -> None:
        choice = shlex.quote(f"{field}={first}")
        problem = f"has both `{first}` and `{second}` with different values"
        super().__init__(f"{problem}; choose the one to read, such as --column {choice}")
        self.first = first
        self.second = second
        self.field = field


class EmptyText(InvalidLine):
    """An `Empty` line with its source and number; callers may skip and count it (Cranfield has two)."""


Content = bytes | str | Fields | Defect
"""Content of a line: text, parsed fields, or a defect."""
Row = tuple[str, int, Content]
"""Row: source, number of the line or row from 1, content."""


def locate_defect(defect: Defect, source: str, line: int) -> InvalidLine:
    """Return `defect` with its source and line number."""
    return (EmptyText if isinstance(defect, Empty) else InvalidLine)(source, line, str(defect))


def number_lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Number lines from 1; keep only a part of a line over `longest` bytes, enough to show that it is too long."""
    limit = longest + len(BOM) + len(b"\r\n") + 1
    number = 0
    while raw := file.readline(limit):
        number += 1
        kept = raw
        while len(raw) == limit and not raw.endswith(b"\n"):
            raw = file.readline(limit)
        yield number, kept


def is_too_long(raw: bytes, longest: int) -> bool:
    """Return True if the line, without byte order mark and line end, is longer than `longest` bytes."""
    return len(raw) > longest and len(raw.removeprefix(BOM).rstrip(b"\r\n")) > longest


def make_too_long_defect(longest: int) -> Defect:
    """Return the defect of a line over the limit."""
    return Defect(f"is longer than {longest} bytes; split the document")


def fields(content: Content) -> Fields:
    """Return the fields of a line.

    A number that JSON does not allow (NaN, 1e999) becomes a `NoNumber`, which is a defect only if the field is read.
    """
    if isinstance(content, bytes | str):
        return parse(content)
    if isinstance(content, Defect):
        raise content
    return content


def size(content: Content) -> int:
    """Estimate the memory of the parsed line in bytes: its length plus `VALUE_BYTES` for each value. For fields, count
    only the characters of names and texts.
    """
    if isinstance(content, bytes):
        return len(content) + VALUE_BYTES * _count_values(content)
    if isinstance(content, str):
        return len(content)
    return 0 if isinstance(content, Defect) else sum(map(len, _strings(content)))


def _count_values(data: bytes) -> int:
    return len(data) - len(data.translate(None, _BEFORE_VALUES))  # takes 0.6 of the time of three calls of `count`


def parse(raw: bytes | str) -> Fields:
    """Parse the JSON object on one line; ignore a byte order mark and a carriage return.

    Raises:
        Defect: the line is not UTF-8, not a JSON object, or a Git LFS pointer, or it has a NUL or a lone surrogate.
    """
    data = raw if isinstance(raw, bytes) else _utf8(raw)
    if len(data) > MOST_VALUES:
        check_values(data)
    try:
        value = _fast(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _parse_slowly(data.removeprefix(BOM).strip())
    if not isinstance(value, dict):
        raise Defect(f"contains {name(value)}; write one object such as {{...}} per line")
    if b"\\" in data and b"\\u" in data:
        check_strings(value)
    if not _NESTING.isdisjoint(map(type, value.values())) and data.count(b"[") + data.count(b"{") > MOST_DEPTH:
        check_depth(value)
    return value


def check_values(data: bytes) -> None:
    """Reject JSON with too many values before parsing: a value of three bytes takes about sixty bytes of memory, and
    the parser blocks all other threads.
    """
    if _count_values(data) <= MOST_VALUES:
        return
    bare = _STRING.sub(b"", data)
    commas = bare.count(b",")
    if commas >= MOST_VALUES or commas + len(_FILLED.findall(bare)) > MOST_VALUES:
        raise Defect(f"contains more than {MOST_VALUES} values; remove values, or split the line")


def check_strings(value: Any) -> None:
    """Reject NUL and lone surrogates, which only escapes can contain and which PostgreSQL cannot store."""
    if b"\x00" in _utf8("".join(_strings(value))):
        raise Defect(r"contains the character \u0000; remove it")


def check_depth(value: Any) -> None:
    """Reject values so deeply nested that they can be decoded here, but not encoded with a deeper stack."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [each for part in level for each in _members(part)]
        if not level:
            return
    raise Defect(NESTED_TOO_DEEPLY)


def _members(value: Any) -> Iterable[Any]:
    """Return the members of a list or object; return none for other values."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def name(value: Any) -> str:
    """Return the name of the type of `value` in JSON."""
    if isinstance(value, NoNumber):
        return value.said
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _parse_slowly(data: bytes) -> Any:
    """Parse the line again with a slower parser, which locates the error."""

    def parse_float(number: str) -> float | NoNumber:
        value = float(number)
        return value if math.isfinite(value) else NoNumber(f"{number[:SHOWN]}, which is out of range")

    def parse_int(number: str) -> int | NoNumber:
        digits = len(number.removeprefix("-"))
        return int(number) if digits <= MOST_DIGITS else NoNumber(f"a number of {digits} digits, which is too long")

    _check_bytes(data)
    try:
        value = json.loads(
            data.decode(), parse_float=parse_float, parse_int=parse_int,
            parse_constant=lambda constant: NoNumber(f"{constant}, which JSON does not allow"),
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    except RecursionError as error:
        raise Defect(NESTED_TOO_DEEPLY) from error
    except ValueError as error:
        if data in (b"{", b"[", b"[{"):
            problem = "is not JSON: an object starts here and ends on a later line"
            raise Defect(f"{problem}; write each object on one line (`jq -c . FILE`), or one array of them") from error
        raise Defect(f"is not JSON ({error}); write one JSON object per line") from error
    return {name: _find_no_number(each) or each for name, each in value.items()} if isinstance(value, dict) else value


def _find_no_number(value: Any) -> NoNumber | None:
    """Return the value if it is a `NoNumber`, or a `NoNumber` for a list or object that contains one."""
    if isinstance(value, NoNumber):
        return value
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, NoNumber):
            return NoNumber(f"{name(value)} with {part.said}")
        stack += _members(part)
    return None


def _check_bytes(data: bytes) -> None:
    if not data:
        raise Defect("is empty; remove the line")
    if data.startswith(LFS_POINTER):
        raise Defect("is a Git LFS pointer, not the data; run `git lfs pull` and upload the file")
    if b"\x00" in data:
        raise Defect("contains a NUL byte; the file must be UTF-8 text (is it UTF-16?)")
    if b"\r" in data:
        raise Defect(r"contains a lone carriage return; end lines with \n (`tr '\r' '\n' < FILE`)")


def _strings(value: Any) -> Iterator[str]:
    """Yield every key and string in `value`, without recursion, because uploads may nest deeply."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            yield from part
        stack += _members(part)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Defect(r"contains a lone surrogate (such as \ud800); write the whole character") from error


# Values of fields; a wrong type is a `Defect`.

NONE_GIVEN = "N/A"
"""BRIGHT's word for no answer and no document."""
MOST_COLUMNS = 1000
"""Maximum number of a table's columns: most are ignored, but each is read in every row."""
MAX_ID_BYTES = 1024
"""Maximum length of an id in bytes of UTF-8: PostgreSQL's B-tree indexes entries of at most 2704 bytes."""
MAX_NAME_CHARS = 1000
"""Maximum length of the name of an entity or relation, in characters."""
SHAPES = 64
"""Number of different sets of fields in the cache."""


def make_chooser(*groups: tuple[str, ...]) -> Callable[[Fields], list[tuple[str, ...]]]:
    """Return a function that returns, for each group, the names that a line has, in the group's order."""

    @lru_cache(SHAPES)  # most lines of an upload have the same fields
    def choose(names: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [tuple(each for each in group if each in names) for group in groups]

    return lambda line: choose(tuple(line))


def check_columns(columns: Sequence[str]) -> None:
    """Reject a table with too many columns before its rows are read."""
    if len(columns) > MOST_COLUMNS:
        raise Defect(f"has {len(columns)} columns, more than {MOST_COLUMNS}; remove those that are not needed")


def find_given_name(fields: Fields, names: Sequence[str]) -> str | None:
    """Return the first of `names` whose value in the object is not null."""
    for each in names:  # a generator takes twice the time, and this runs several times per line
        if fields.get(each) is not None:
            return each
    return None


def find_single_name(fields: Fields, names: Sequence[str]) -> str | None:
    """Return the first of `names` whose value in the object is not null; raise if another name has another value."""
    found = find_given_name(fields, names)
    if found is not None and len(names) > 1:
        for each in names:
            if fields.get(each) not in (None, fields[found]):
                raise TwoColumns(found, each, found)
    return found


def text(fields: Fields, field: str) -> str:
    """Return the string in `field`."""
    value = fields[field]
    if not isinstance(value, str):
        raise Defect(f"`{field}` is {name(value)}; write it as a string")
    return value


def scalar(value: Any, field: str) -> str:
    """Return the string or number in `field` as text ("5" for 5), without blanks around it."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Defect(f"`{field}` is {name(value)}; write it as a string or a number")
        value = str(value)
    found: str = value.strip()
    if not found:
        raise Defect(f"`{field}` is empty; write a value or remove the field")
    return found


def identifier(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return the line's id from the first of `names` that it has; None if it has none."""
    field = find_given_name(fields, names)
    if field is None:
        return None
    found = scalar(fields[field], field)
    if len(found) > MAX_ID_BYTES // 4 and (size := len(found.encode())) > MAX_ID_BYTES:
        raise Defect(f"`{field}` has {size} bytes, more than {MAX_ID_BYTES}; shorten it")
    return found


def label(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return a subject or level as text; None if it is absent or blank."""
    field = find_given_name(fields, names)
    return None if field is None or fields[field] == "" else scalar(fields[field], field)


def level(fields: Fields) -> str | None:
    """Return the difficulty as text: "5" for 5 and for "Level 5"; None for "Level ?"."""
    value = label(fields, ("level",))
    if value is None:
        return None
    value = value.removeprefix("Level").strip()
    return None if value in ("", "?") else value


class UniqueIds:
    """Checks that each id occurs once in an upload; about 100 bytes per id."""

    def __init__(self) -> None:
        # Hashes instead of ids: 64 bits with a secret of the process, so that no upload can contain chosen collisions.
        self._lines: dict[int, int] = {}
        self._sources: dict[int, str] = {}
        self._usual: str | None = None
        """Source of the first line; ids of other sources are stored with their source."""

    def check(self, identifier: str | None, source: str, line: int) -> None:
        """Record `identifier`; None is never a duplicate.

        Raises:
            Defect: the id occurred before; the message names the place.
        """
        if identifier is None:
            return
        self._usual = self._usual or source
        key = hash(identifier)
        if key in self._lines:
            where = f"{self._sources.get(key, self._usual)}, line {self._lines[key]}"
            raise Defect(f"repeats the id {identifier!r} of {where}; rename one")
        self._lines[key] = line
        if source != self._usual:
            self._sources[key] = source


# Records from an upload's rows in one pass; invalid lines are rejected with their numbers.

LISTED = 100
"""Maximum number of rejected lines that are listed; all are counted."""

Record = TypeVar("Record")


def read_one(read: Callable[[Fields], Record], content: Content, source: str, line: int) -> Record:
    """Read the record of one line.

    Raises:
        InvalidLine: `read` finds a defect.
    """
    try:
        return read(fields(content))
    except Defect as defect:
        raise locate_defect(defect, source, line) from defect


class OnError(StrEnum):
    """Treatment of an upload with invalid lines."""

    REJECT = "reject"
    """Store nothing."""
    SKIP = "skip"
    """Store the other lines."""


class Reader(Generic[Record]):
    """Iterates over records, and counts the lines that it skipped."""

    def __init__(
        self,
        rows: Iterable[Row],
        read: Callable[[Fields, int], Record],
        identifier: Callable[[Record], str | None],
        *,
        skip_empty: bool = False,
        on_error: OnError = OnError.REJECT,
        most: int = sys.maxsize,
        way_out: str | None = None,
    ) -> None:
        """Set up the reader: `read` returns a record for a line's fields and number, `most` limits the number of lines,
        and `way_out` is the hint for a rejected upload with some valid lines."""
        self._rows = rows
        self._read = read
        self._identifier = identifier
        self._skip_empty = skip_empty
        self._partial = on_error is OnError.SKIP
        self._most = most
        self._way_out = way_out
        self._usable = 0
        self._ids = UniqueIds()
        self.bytes = 0
        """Approximate size of all lines read so far, in bytes."""
        self.skipped = 0
        """Number of lines without text that were skipped on request."""
        self.skips: list[InvalidLine] = []
        """First of these lines."""
        self.rejected = 0
        self.rejections: list[InvalidLine] = []
        """The first rejected lines."""

    def __iter__(self) -> Iterator[Record]:
        """Yield every record in order.

        Raises:
            InvalidLine: the first invalid line, with the others. If invalid lines may be skipped, this is raised only
                if no line is valid.
            TooLarge: the upload has more lines than allowed.
        """
        found = 0
        for count, (source, line, content) in enumerate(self._rows, start=1):
            if count > self._most:
                raise TooLarge(
                    f"the upload has more than {self._most} lines",
                    hint="split the upload, or raise `limits.upload_rows`",
                )
            self.bytes += size(content)
            try:
                record = self._read(fields(content), line)
                self._ids.check(self._identifier(record), source, line)
            except Defect as defect:
                self._leave_out(locate_defect(defect, source, line))
                continue
            self._usable += 1
            if self._partial or not self.rejected:
                found += 1
                yield record
        if self.rejected and not (self._partial and found):
            raise self._list_rejections()

    def _leave_out(self, invalid: InvalidLine) -> None:
        if self._skip_empty and isinstance(invalid, EmptyText):
            self.skipped += 1
            if self.skipped <= LISTED:
                self.skips.append(invalid)
            return
        self.rejected += 1
        if self.rejected <= LISTED:
            self.rejections.append(invalid)
        if not self._partial and self.rejected == LISTED:
            raise self._list_rejections()

    def _list_rejections(self) -> InvalidLine:
        """Return the first rejection with the others."""
        first, *others = self.rejections
        first.others = tuple(others)
        first.hint = self._way_out if self._usable else None
        if first.hint and isinstance(first, EmptyText):
            first.hint = "skip such lines with --skip-empty (over HTTP `skip_empty=true`)"
        return first
