"""CSV: a header of known names, then a row of cells each; quoted cells may hold line ends."""

import csv
from collections import Counter
from collections.abc import Generator, Iterator
from typing import IO, Any, NamedTuple

import msgspec

from shared.errors import Invalid, InvalidLine
from shared.ingest import fields, lines
from shared.ingest.lines import Content, Defect, Fields, Row

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
UTF8 = 4
"""Bytes of a character at most."""
KEPT_EMPTY = frozenset((*fields.QUESTIONS, *fields.PASSAGES))
"""Any other empty cell is no value; an empty text is said to be one."""


class Names(NamedTuple):
    """What columns may be called."""

    known: frozenset[str]
    """Others are left alone; a header has at least one of them."""
    kept_empty: frozenset[str]
    nested: frozenset[str]
    """In whose cells a list or an object is written as JSON."""


KNOWN = Names(fields.KNOWN, KEPT_EMPTY, fields.NESTED)


def rows(
    file: IO[bytes], source: str, longest: int, delimiter: str | None = None, names: Names = KNOWN
) -> Generator[Row, None, None]:
    """The rows below the header, as fields, under the number of the line that they begin in.

    Raises:
        InvalidLine: the header cannot be used.
    """
    csv.field_size_limit(longest)
    text = _Text(file, longest)
    first = next(iter(text), "").removeprefix("\ufeff")
    chosen = _delimiter(first, source, delimiter, names)
    header = _header(_split(first, chosen), source, names)
    reader = csv.reader(text, delimiter=chosen, strict=True)
    while True:
        text.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            said = Defect(f'is not CSV ({error}); close quotes, and double those inside: ""')
            yield source, text.row, lines.too_long(longest) if text.too_long else said
            continue
        if cells:
            yield source, text.row, _content(header, cells, text, longest, names)


def has_known_header(head: bytes, names: Names = KNOWN) -> bool:
    """Whether the first line names a field that means something."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return any(_known(line, delimiter, names) for delimiter in DELIMITERS.values())


class _Text:
    """Decoded lines, and where the row that is being read began; bytes that are not UTF-8 survive as surrogates."""

    def __init__(self, file: IO[bytes], longest: int) -> None:
        self._lines = lines.numbered(file, longest)
        self._longest = longest
        self._number = 0
        self._bytes = 0
        self.row = 1
        self.too_long = False

    def begin(self) -> None:
        """The next line begins a row."""
        self.row = self._number + 1
        self._bytes = 0
        self.too_long = False

    def __iter__(self) -> Iterator[str]:
        for number, raw in self._lines:
            self._number = number
            self._bytes += len(raw)
            continued = self._bytes > len(raw)
            is_over = self._bytes > UTF8 * self._longest if continued else lines.is_too_long(raw, self._longest)
            self.too_long = self.too_long or is_over
            yield _quotes(raw) if self.too_long and continued else raw.decode("utf-8", "surrogateescape")


def _quotes(raw: bytes) -> str:
    """A further line of a row that is too long: it opens or closes quotes as it did, and fills no cell."""
    return '"' * (raw.count(b'"') % 2) + "\n"


def _delimiter(line: str, source: str, given: str | None, names: Names) -> str:
    """The one that splits `line` into most known names."""
    if given is not None:
        if given not in DELIMITERS:
            raise Invalid(f"`delimiter`: {given!r} is none of {', '.join(DELIMITERS)}")
        return DELIMITERS[given]
    known = {delimiter: _known(line, delimiter, names) for delimiter in DELIMITERS.values()}
    most = max(known.values())
    best = [delimiter for delimiter, count in known.items() if count == most]
    if most and len(best) > 1 and len(_split(line, best[0])) > 1:
        raise InvalidLine(source, 1, f"the header may be split at any of {best}; give the delimiter")
    return best[0]


def _known(line: str, delimiter: str, names: Names) -> int:
    return len(names.known.intersection(_split(line, delimiter)))


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _header(header: list[str], source: str, names: Names) -> list[str]:
    """Names of columns; one without a name (pandas writes its index so) is left alone.

    Raises:
        InvalidLine: there are too many, no name is known, or one is there twice.
    """
    try:
        fields.check_count(header)
    except Defect as defect:
        raise lines.located(defect, source, 1) from defect
    if not names.known.intersection(header):
        said = f"the header names no field that is known (it says {', '.join(header)[:200] or 'nothing'})"
        wanted = "`text` or `question`" if names is KNOWN else " or ".join(f"`{each}`" for each in sorted(names.known))
        raise InvalidLine(source, 1, f"{said}; name a column {wanted}")
    twice = next((name for name, count in Counter(header).items() if name and count > 1), None)
    if twice is not None:
        raise InvalidLine(source, 1, f"the header names `{twice}` twice; rename one column")
    return header


def _content(header: list[str], cells: list[str], text: _Text, longest: int, names: Names) -> Content:
    if text.too_long or sum(map(len, cells)) > longest:
        return lines.too_long(longest)
    if len(cells) != len(header):
        said = f"has {len(cells)} columns, the header has {len(header)}"
        return Defect(f"{said}; put cells that hold the delimiter into quotes")
    try:
        _check("".join(cells))
        return _fields(header, cells, names)
    except Defect as defect:
        return defect


def _check(joined: str) -> None:
    if not joined.isascii() and any("\udc80" <= character <= "\udcff" for character in joined):
        raise Defect("is not UTF-8; save the file as UTF-8")
    if "\0" in joined:
        raise Defect("holds a NUL byte; the file must be UTF-8 text (is it UTF-16?)")


def _fields(header: list[str], cells: list[str], names: Names) -> Fields:
    return {
        name: _nested(name, cell) if name in names.nested else cell
        for name, cell in zip(header, cells, strict=True)
        if name in names.known and (cell or name in names.kept_empty)
    }


def _nested(name: str, cell: str) -> Any:
    """A list or an object, where the cell looks like one."""
    if not cell.lstrip().startswith(("[", "{")):
        return cell
    try:
        value = msgspec.json.decode(cell)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Defect(f'`{name}` is not JSON ({error}); write a list as ["a", "b"]') from error
    lines.check_strings(value)
    lines.check_depth(value)
    return value
