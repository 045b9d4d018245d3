"""One line of an upload: bytes in, a JSON object out; every defect is an `InvalidLine` that says what to change."""

import json
from collections.abc import Iterator
from typing import Any, Never

from shared.errors import InvalidLine

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused before it is parsed."""
BOM = b"\xef\xbb\xbf"
LFS_POINTER = b"version https://git-lfs"

Fields = dict[str, Any]


class EmptyText(InvalidLine):
    """The line is sound but holds no text; a caller may choose to skip it and count it (Cranfield has two)."""


def parse(raw: bytes | str, source: str, line: int) -> Fields:
    """The JSON object on one line; a byte order mark and a carriage return are tolerated.

    Raises:
        InvalidLine: too long, not UTF-8, a Git LFS pointer, a NUL, a lone surrogate, not JSON, or not an object.
    """
    data = _bytes(raw, source, line).removeprefix(BOM).strip()
    _check_bytes(data, source, line)
    value = _decode(data, source, line)
    if not isinstance(value, dict):
        raise InvalidLine(source, line, f"holds a JSON {_name(value)}; write one object such as {{...}} per line")
    _check_strings(data, value, source, line)
    return value


def first(fields: Fields, names: tuple[str, ...]) -> str | None:
    """The first of `names` that the object has with a value other than null."""
    return next((name for name in names if fields.get(name) is not None), None)


def text(fields: Fields, name: str, source: str, line: int) -> str:
    """The string in field `name`.

    Raises:
        InvalidLine: it is not a string.
    """
    value = fields[name]
    if not isinstance(value, str):
        raise InvalidLine(source, line, f"`{name}` is a JSON {_name(value)}; write it as a string")
    return value


def scalar(fields: Fields, name: str, source: str, line: int) -> str:
    """The string or number in field `name`, as text ("5" for 5); blanks around it are dropped.

    Raises:
        InvalidLine: it is neither, or it is empty.
    """
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidLine(source, line, f"`{name}` is a JSON {_name(value)}; write it as a string or a number")
    if not str(value).strip():
        raise InvalidLine(source, line, f"`{name}` is empty; give it a value or leave the field out")
    return str(value).strip()


def identifier(fields: Fields, names: tuple[str, ...], source: str, line: int) -> str | None:
    """The line's id from the first of `names` that it has, or None."""
    name = first(fields, names)
    return None if name is None else scalar(fields, name, source, line)


def label(fields: Fields, names: tuple[str, ...], source: str, line: int) -> str | None:
    """A subject or level as text; absent and blank are None."""
    name = first(fields, names)
    if name is None or fields[name] == "":
        return None
    return scalar(fields, name, source, line)


def level(fields: Fields, source: str, line: int) -> str | None:
    """The difficulty as text: "5" for 5 and for "Level 5"; "Level ?" is None."""
    value = label(fields, ("level",), source, line)
    if value is None:
        return None
    value = value.removeprefix("Level").strip()
    return None if value in ("", "?") else value


def _bytes(raw: bytes | str, source: str, line: int) -> bytes:
    if isinstance(raw, bytes):
        return raw
    try:
        return raw.encode()
    except UnicodeEncodeError as error:
        raise _surrogate(source, line) from error


def _check_bytes(data: bytes, source: str, line: int) -> None:
    if len(data) > MAX_LINE_BYTES:
        raise InvalidLine(source, line, f"is longer than {MAX_LINE_BYTES} bytes; split the document")
    if not data:
        raise InvalidLine(source, line, "is empty; remove the line")
    if data.startswith(LFS_POINTER):
        raise InvalidLine(source, line, "is a Git LFS pointer, not the data; run `git lfs pull` and upload the file")
    if b"\x00" in data:
        raise InvalidLine(source, line, "holds a NUL byte; the file must be UTF-8 text (is it UTF-16?)")


def _decode(data: bytes, source: str, line: int) -> Any:
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise InvalidLine(source, line, f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    except RecursionError as error:
        raise InvalidLine(source, line, "is nested too deeply; write one flat JSON object per line") from error
    except ValueError as error:
        raise InvalidLine(source, line, f"is not JSON ({error}); write one JSON object per line") from error


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON number")


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{number} is out of range")
    return value


def _check_strings(data: bytes, value: Fields, source: str, line: int) -> None:
    """What only an escape can smuggle in; PostgreSQL stores neither."""
    if b"\\u" not in data:
        return
    if b"\x00" in _utf8("".join(_strings(value)), source, line):
        raise InvalidLine(source, line, r"holds the character \u0000; remove it")


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


def _utf8(text: str, source: str, line: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _surrogate(source, line) from error


def _surrogate(source: str, line: int) -> InvalidLine:
    return InvalidLine(source, line, r"holds a lone surrogate (such as \ud800); write the whole character")


def _name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
