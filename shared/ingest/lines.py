"""Parse one line of an upload into a JSON object; every defect is a `Defect` that says what to change."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec

from shared.errors import InvalidLine

MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line, in bytes, unless the operator sets another (`limits.line_bytes`); checked before
parsing."""
MOST_DIGITS = 4300
"""Maximum number of digits of an integer, which Python converts no more of."""
SHOWN = 40
"""Characters of a number that a message quotes."""
MOST_DEPTH = 100
"""Maximum nesting of arrays and objects; Python can encode about a thousand, fewer if the stack is deep."""
MOST_VALUES = 10_000
"""Maximum number of values on a line: the members of all its lists and objects."""
VALUE_BYTES = 32
"""Memory of a parsed value besides its text, in bytes, about."""
NESTED = "is nested too deeply; write one flat JSON object per line"
BOM = b"\xef\xbb\xbf"
LFS_POINTER = b"version https://git-lfs"

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_FILLED = re.compile(rb"[\[{]\s*+(?![\s\]}])")
"""The beginning of a list or object that is not empty."""

Fields = dict[str, Any]
_fast = msgspec.json.Decoder().decode


class Defect(Exception):
    """Says what is wrong with a line, and what to write instead; the caller adds source and number."""


class NoNumber(msgspec.Struct, frozen=True):
    """Stands for the value of a field that holds a number which JSON has not: it is refused where it is read."""

    said: str
    """Such as "NaN, which is no JSON number"."""


class Empty(Defect):
    """The line is valid but has no text."""


class EmptyText(InvalidLine):
    """An `Empty` line with its place; callers may skip and count it (Cranfield has two)."""


Content = bytes | str | Fields | Defect
"""A line as text, as parsed fields, or as a defect."""
Row = tuple[str, int, Content]
"""A row: (source, number of the line or row from 1, content)."""


def locate_defect(defect: Defect, source: str, line: int) -> InvalidLine:
    """Return `defect` with its place."""
    return (EmptyText if isinstance(defect, Empty) else InvalidLine)(source, line, str(defect))


def number_lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Number lines from 1; of a line over `longest` bytes, only enough is kept to show that it is too long."""
    limit = longest + len(BOM) + len(b"\r\n") + 1
    number = 0
    while raw := file.readline(limit):
        number += 1
        kept = raw
        while len(raw) == limit and not raw.endswith(b"\n"):
            raw = file.readline(limit)
        yield number, kept


def is_too_long(raw: bytes, longest: int) -> bool:
    """Tell whether the line is longer than `longest` bytes, without byte order mark and line end."""
    return len(raw) > longest and len(raw.removeprefix(BOM).rstrip(b"\r\n")) > longest


def make_too_long_defect(longest: int) -> Defect:
    """Make the defect of a line over the limit."""
    return Defect(f"is longer than {longest} bytes; split the document")


def fields(content: Content) -> Fields:
    """Return the fields of a line.

    A field with a number that JSON does not have (NaN, 1e999) is a `NoNumber`, which is a defect only for who reads it.

    Raises:
        Defect: it has none.
    """
    if isinstance(content, bytes | str):
        return parse(content)
    if isinstance(content, Defect):
        raise content
    return content


def size(content: Content) -> int:
    """Estimate the memory of the parsed line in bytes: its length and `VALUE_BYTES` for each value; of fields, only
    the characters of names and texts are counted.
    """
    if isinstance(content, bytes):
        return len(content) + VALUE_BYTES * (content.count(b",") + content.count(b"[") + content.count(b"{"))
    if isinstance(content, str):
        return len(content)
    return 0 if isinstance(content, Defect) else sum(map(len, _strings(content)))


def parse(raw: bytes | str) -> Fields:
    """Parse the JSON object on one line; a byte order mark and a carriage return are tolerated.

    Raises:
        Defect: not UTF-8, a Git LFS pointer, a NUL, a lone surrogate, not JSON, or not an object.
    """
    data = raw if isinstance(raw, bytes) else _utf8(raw)
    check_count(data)
    try:
        value = _fast(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _parse_slowly(data.removeprefix(BOM).strip())
    if not isinstance(value, dict):
        raise Defect(f"holds {name(value)}; write one object such as {{...}} per line")
    if b"\\u" in data:
        check_strings(value)
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH:
        check_depth(value)
    return value


def check_count(data: bytes) -> None:
    """Refuse JSON of too many values before it is parsed: a value of three bytes takes some sixty bytes of memory, and
    the parser keeps all other threads waiting.

    Raises:
        Defect: lists and objects have more than `MOST_VALUES` members in all.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") <= MOST_VALUES:
        return
    bare = _STRING.sub(b"", data)
    commas = bare.count(b",")
    if commas >= MOST_VALUES or commas + len(_FILLED.findall(bare)) > MOST_VALUES:
        raise Defect(f"holds more than {MOST_VALUES} values; remove what is not needed, or split the line")


def check_strings(value: Any) -> None:
    """Refuse characters that only an escape can bring in.

    Raises:
        Defect: a NUL or a lone surrogate; PostgreSQL stores neither.
    """
    if b"\x00" in _utf8("".join(_strings(value))):
        raise Defect(r"holds the character \u0000; remove it")


def check_depth(value: Any) -> None:
    """Refuse what can be decoded here, but not be encoded where the stack is deeper.

    Raises:
        Defect: arrays and objects stand more than `MOST_DEPTH` deep in each other.
    """
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [each for part in level if isinstance(part, dict | list) for each in _parts(part)]
        if not level:
            return
    raise Defect(NESTED)


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def name(value: Any) -> str:
    """Return the name of the type of `value` in JSON."""
    if isinstance(value, NoNumber):
        return value.said
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _parse_slowly(data: bytes) -> Any:
    """Parse the line again with a slower parser, which says where the error is."""

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
            parse_constant=lambda constant: NoNumber(f"{constant}, which is no JSON number"),
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    except RecursionError as error:
        raise Defect(NESTED) from error
    except ValueError as error:
        raise Defect(f"is not JSON ({error}); write one JSON object per line") from error
    return {name: _find_no_number(each) or each for name, each in value.items()} if isinstance(value, dict) else value


def _find_no_number(value: Any) -> NoNumber | None:
    """Return the value if it is no number, or what stands for a list or object that holds one."""
    if isinstance(value, NoNumber):
        return value
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, NoNumber):
            return NoNumber(f"{name(value)} with {part.said}")
        if isinstance(part, dict | list):
            stack += _parts(part)
    return None


def _check_bytes(data: bytes) -> None:
    if not data:
        raise Defect("is empty; remove the line")
    if data.startswith(LFS_POINTER):
        raise Defect("is a Git LFS pointer, not the data; run `git lfs pull` and upload the file")
    if b"\x00" in data:
        raise Defect("holds a NUL byte; the file must be UTF-8 text (is it UTF-16?)")
    if b"\r" in data:
        raise Defect(r"holds a lone carriage return; end lines with \n (`tr '\r' '\n' < FILE`)")


def _strings(value: Any) -> Iterator[str]:
    """Yield every key and string in `value`; without recursion, since uploads may nest deeply."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            stack += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            stack += part


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Defect(r"holds a lone surrogate (such as \ud800); write the whole character") from error
