"""Read CSV: a header of known names, then one row per line; quoted cells may contain line ends."""

import csv
import re
from collections import Counter
from collections.abc import Generator, Iterator
from typing import IO, Any, NamedTuple

import msgspec

from mathrag.errors import Invalid, InvalidLine
from mathrag.messages import format_count
from mathrag.reading import columns, lines
from mathrag.reading.columns import Columns
from mathrag.reading.lines import Content, Defect, Row

_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_PYTHON_TEXT = re.compile(rf"""\s*(?P<text>'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*")\s*(?P<end>,|\])""")
"""Matches a text in the `repr` of a Python list, and the separator after it."""
MOST_SHOWN = 100
"""Largest number of unknown columns that are shown."""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
UTF8 = 4
"""Maximum number of bytes of a character."""
KEPT_EMPTY = frozenset((*columns.QUESTIONS, *columns.PASSAGES))
"""Columns whose empty cells are empty texts; in all other columns an empty cell has no value."""


class ColumnNames(NamedTuple):
    """Columns to read, and the forms of their cells."""

    columns: Columns
    """Columns to read; a header needs at least one of them, and other columns are ignored."""
    kept_empty: frozenset[str]
    nested: frozenset[str]
    """Columns whose cells may contain a list or an object as JSON."""
    empty: str | None = ""
    """Value of an empty cell that is kept."""
    texts: frozenset[str] = frozenset()
    """Columns of `nested` whose texts are rejected when they are read; unread cells are never rejected."""
    shown: bool = False
    """The first row also lists the unknown columns, without values."""
    parquet: bool = False
    """Parquet files are accepted."""


def choose_columns(chosen: Columns) -> ColumnNames:
    """Return the columns of a corpus or dataset, with the user's choices."""
    may_nest = (*columns.MESSAGES, *columns.CHOICES, *columns.RETRIEVED, *columns.METAS, columns.EXCLUDED)
    objects = (*columns.INPUTS, columns.OUTPUTS)
    nested = frozenset((*may_nest, *columns.REFERENCES, *columns.GOLD_DOCUMENTS, *columns.NUGGETS, *objects))
    return ColumnNames(chosen, KEPT_EMPTY, nested, texts=frozenset((*may_nest, *objects)), shown=True, parquet=True)


KNOWN = choose_columns(Columns(columns.UPLOADED))


def rows(
    file: IO[bytes], source: str, longest: int, delimiter: str | None = None, names: ColumnNames = KNOWN
) -> Generator[Row, None, None]:
    """Yield the rows below the header as fields, each with the number of its first line.

    Raises:
        InvalidLine: the header cannot be used.
    """
    csv.field_size_limit(longest)
    text = _DecodedLines(file, longest)
    first = next(iter(text), "").removeprefix("\ufeff")
    chosen = _choose_delimiter(first, source, delimiter, names)
    header = _split(first, chosen)
    _check_header(header, source, names)
    reader = csv.reader(text, delimiter=chosen, strict=True)
    unknown = dict.fromkeys(list_unknown(header, names))
    while True:
        text.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            defect = Defect(f'is not CSV ({error}); close quotes, and double those inside: ""')
            yield source, text.row, lines.make_too_long_defect(longest) if text.too_long else defect
            continue
        if cells:
            content = _read_row(header, cells, text, longest, names)
            if unknown and isinstance(content, dict):
                content, unknown = {**unknown, **content}, {}
            yield source, text.row, content


def has_known_header(head: bytes, names: ColumnNames = KNOWN) -> bool:
    """Return True if the first line names a known field."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return any(_count_known_names(line, delimiter, names) for delimiter in DELIMITERS.values())


class _DecodedLines:
    """Yields decoded lines, and records where the current row started; bytes that are not UTF-8 become surrogates."""

    def __init__(self, file: IO[bytes], longest: int) -> None:
        self._lines = lines.number_lines(file, longest)
        self._longest = longest
        self._number = 0
        self._bytes = 0
        self.row = 1
        self.too_long = False

    def begin(self) -> None:
        """Start a row with the next line."""
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
            # Keep only the quotes of a further line in a row that is too long, so that quoting stays right and no cell
            # grows.
            only_quotes = self.too_long and continued
            yield '"' * (raw.count(b'"') % 2) + "\n" if only_quotes else raw.decode("utf-8", "surrogateescape")


def _choose_delimiter(line: str, source: str, given: str | None, names: ColumnNames) -> str:
    """Return the delimiter that splits `line` into the most known names."""
    if given is not None:
        if given not in DELIMITERS:
            problem = f"`delimiter`: {given!r} is not one of {', '.join(DELIMITERS)}"
            raise Invalid(problem, hint="choose one of them, or omit it")
        return DELIMITERS[given]
    known = {delimiter: _count_known_names(line, delimiter, names) for delimiter in DELIMITERS.values()}
    most = max(known.values())
    best = [delimiter for delimiter, count in known.items() if count == most]
    if most and len(best) > 1 and len(_split(line, best[0])) > 1:
        raise InvalidLine(
            source, 1, f"the header fits several delimiters: {best}; choose one, such as --delimiter comma"
        )
    return best[0]


def _count_known_names(line: str, delimiter: str, names: ColumnNames) -> int:
    return sum(names.columns.find(column) is not None for column in _split(line, delimiter))


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _check_header(header: list[str], source: str, names: ColumnNames) -> None:
    """Check the names of columns; ignore a column without a name, such as pandas' index."""
    try:
        lines.check_columns(header)
    except Defect as defect:
        raise lines.locate_defect(defect, source, 1) from defect
    if not any(map(names.columns.find, header)):
        problem = f"the header has no known field (it has {', '.join(header)[:200] or 'nothing'})"
        if not names.shown:
            wanted = " or ".join(f"`{each}`" for each in sorted(names.columns.fields))
            raise InvalidLine(source, 1, f"{problem}; rename a column to {wanted}")
        advice = "rename a column to `text` or `question`, or name one: --column question=COLUMN"
        raise InvalidLine(source, 1, f"{problem}; {advice}")
    twice = next((name for name, count in Counter(header).items() if name and count > 1), None)
    if twice is not None:
        raise InvalidLine(source, 1, f"the header names `{twice}` twice; rename one column")


def list_unknown(header: list[str], names: ColumnNames) -> list[str]:
    """Return the unknown columns to show, without names that JSON or PostgreSQL cannot store."""
    unknown = [name for name in header if name and names.columns.find(name) is None] if names.shown else []
    return [name for name in unknown if "\0" not in name and name.encode(errors="ignore").decode() == name][:MOST_SHOWN]


def _read_row(header: list[str], cells: list[str], text: _DecodedLines, longest: int, names: ColumnNames) -> Content:
    if text.too_long or sum(map(len, cells)) > longest:
        return lines.make_too_long_defect(longest)
    if len(cells) != len(header):
        problem = f"has {format_count(len(cells), 'column')}, but the header has {len(header)}"
        return Defect(f"{problem}; quote cells that contain the delimiter")
    joined = "".join(cells)
    if not joined.isascii() and any("\udc80" <= character <= "\udcff" for character in joined):
        return Defect("is not UTF-8; save the file as UTF-8")
    if "\0" in joined:
        return Defect("contains a NUL byte; the file must be UTF-8 text (is it UTF-16?)")
    try:
        found = (_read_cell(column, cell, names) for column, cell in zip(header, cells, strict=True))
        return {column: value for column, value in zip(header, found, strict=True) if value is not _NOTHING}
    except Defect as defect:
        return defect


_NOTHING = object()
"""Value of an empty cell, or of a cell in an ignored column."""


def _read_cell(column: str, cell: str, names: ColumnNames) -> Any:
    name = names.columns.find(column)
    if name is None or not (cell or name in names.kept_empty or name in names.columns.chosen):
        return _NOTHING
    if name in names.nested:
        return _parse_nested(column, cell, names)
    return cell or (names.empty if name in names.kept_empty else None)


def _parse_python_list(cell: str) -> list[str] | None:
    """Return the texts of a list in Python's `repr` form, such as `['a', "it's"]`; None for any other text.

    Each text is parsed separately: parsed as a whole, NumPy's `['a' 'b']` would be one text.
    """
    text = cell.strip()
    found, at = list[str](), 1
    while text.startswith("[") and (match := _PYTHON_TEXT.match(text, at)) is not None:
        written, at = match["text"][1:-1], match.end()
        try:
            found.append(written.encode("latin-1", "backslashreplace").decode("unicode_escape"))
        except UnicodeDecodeError:
            return None
        if match["end"] == "]":
            return found if at == len(text) else None
    return None


def _parse_nested(column: str, cell: str, names: ColumnNames) -> Any:
    """Parse a cell that looks like a list or an object, as JSON or as the `repr` of a list of texts."""
    if not cell.lstrip().startswith(("[", "{")):
        return cell
    lines.check_values(cell.encode(errors="replace"))
    try:
        value = msgspec.json.decode(cell)
    except (msgspec.DecodeError, RecursionError) as error:
        value = _parse_python_list(cell)
        if value is None and names.columns.find(column) in names.texts:
            return cell
        if value is None:
            raise Defect(f'`{column}` is not JSON ({error}); write a list as ["a", "b"]') from error
    lines.check_strings(value)
    lines.check_depth(value)
    return value
