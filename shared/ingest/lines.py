"""One line of an upload: bytes in, a JSON object out; every defect is a `Defect` that says what to change."""

import json
from collections.abc import Iterable, Iterator
from typing import IO, Any, Never

import msgspec

from shared.errors import InvalidLine

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused before it is parsed, unless the operator allows more (`limits.line_bytes`)."""
MOST_DEPTH = 100
"""Arrays and objects in each other; Python encodes about a thousand, less whatever else is on the stack."""
NESTED = "is nested too deeply; write one flat JSON object per line"
BOM = b"\xef\xbb\xbf"
LFS_POINTER = b"version https://git-lfs"

Fields = dict[str, Any]
_fast = msgspec.json.Decoder().decode


class Defect(Exception):
    """What is wrong with a line, and what to write instead; whoever knows source and number adds them."""


class Empty(Defect):
    """The line is sound but holds no text."""


class EmptyText(InvalidLine):
    """An `Empty` line with its place; a caller may choose to skip it and count it (Cranfield has two)."""


Content = bytes | str | Fields | Defect
"""A line as it stands, or already taken apart, or what is wrong with it."""
Row = tuple[str, int, Content]
"""(source, number of the line or row from 1, its content)."""


def located(defect: Defect, source: str, line: int) -> InvalidLine:
    """`defect` with its place."""
    return (EmptyText if isinstance(defect, Empty) else InvalidLine)(source, line, str(defect))


def numbered(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; of one over `longest` bytes only so much is kept that it shows."""
    limit = longest + len(BOM) + len(b"\r\n") + 1
    number = 0
    while raw := file.readline(limit):
        number += 1
        kept = raw
        while len(raw) == limit and not raw.endswith(b"\n"):
            raw = file.readline(limit)
        yield number, kept


def is_too_long(raw: bytes, longest: int) -> bool:
    """Neither byte order mark nor line end count."""
    return len(raw) > longest and len(raw.removeprefix(BOM).rstrip(b"\r\n")) > longest


def too_long(longest: int) -> Defect:
    """What is said of a line over the limit."""
    return Defect(f"is longer than {longest} bytes; split the document")


def fields(content: Content) -> Fields:
    """The fields of a line.

    Raises:
        Defect: it has none.
    """
    if isinstance(content, bytes | str):
        return parse(content)
    if isinstance(content, Defect):
        raise content
    return content


def size(content: Content) -> int:
    """About how many bytes it takes as a line; of fields, the characters of their names and texts."""
    if isinstance(content, bytes | str):
        return len(content)
    return 0 if isinstance(content, Defect) else sum(map(len, _strings(content)))


def parse(raw: bytes | str) -> Fields:
    """The JSON object on one line; a byte order mark and a carriage return are tolerated.

    Raises:
        Defect: not UTF-8, a Git LFS pointer, a NUL, a lone surrogate, not JSON, or not an object.
    """
    data = raw if isinstance(raw, bytes) else _utf8(raw)
    try:
        value = _fast(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _slow(data.removeprefix(BOM).strip())
    if not isinstance(value, dict):
        raise Defect(f"holds {name(value)}; write one object such as {{...}} per line")
    if b"\\u" in data:
        check_strings(value)
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH:
        check_depth(value)
    return value


def check_strings(value: Any) -> None:
    """What only an escape can smuggle in.

    Raises:
        Defect: a NUL or a lone surrogate; PostgreSQL stores neither.
    """
    if b"\x00" in _utf8("".join(_strings(value))):
        raise Defect(r"holds the character \u0000; remove it")


def check_depth(value: Any) -> None:
    """Refuse what can be decoded here and not be encoded again where the stack is deeper.

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
    """What `value` is, in JSON's words."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _slow(data: bytes) -> Any:
    """The same again by a parser that says where it stopped."""
    _check_bytes(data)
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    except RecursionError as error:
        raise Defect(NESTED) from error
    except ValueError as error:
        raise Defect(f"is not JSON ({error}); write one JSON object per line") from error


def _check_bytes(data: bytes) -> None:
    if not data:
        raise Defect("is empty; remove the line")
    if data.startswith(LFS_POINTER):
        raise Defect("is a Git LFS pointer, not the data; run `git lfs pull` and upload the file")
    if b"\x00" in data:
        raise Defect("holds a NUL byte; the file must be UTF-8 text (is it UTF-16?)")
    if b"\r" in data:
        raise Defect(r"holds a lone carriage return; end lines with \n (`tr '\r' '\n' < FILE`)")


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON number")


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{number} is out of range")
    return value


def _strings(value: Any) -> Iterator[str]:
    """Every key and string inside `value`, without recursion: the depth is the uploader's."""
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
