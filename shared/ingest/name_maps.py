"""Read names and their numbers from the files in folders of OpenKE (text) and TLogic (JSON)."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from shared.errors import InvalidLine
from shared.ingest import lines, text_files
from shared.ingest.lines import Defect

MAX_JSON_BYTES = 256 << 20
"""Maximum size of TLogic's map, which is read as a whole, in bytes."""


class NameMap(NamedTuple):
    """The names of a file, and their numbers."""

    source: str
    names: dict[str, int]
    by_id: dict[int, str]


def openke(path: Path) -> NameMap:
    """Read OpenKE's file: the number of names on the first line, then each name with its number.

    Raises:
        InvalidLine: a line is something else, or they are not as many.
    """
    with path.open("rb") as file:
        content = text_files.open_unpacked(file, path.name)
        found = list(text_files.require_sound(text_files.decode_lines(content, path.name), path.name))
    declared = count(found[0][1], path.name, found[0][0]) if found else 0
    names: dict[str, int] = {}
    for line, text in found[1:]:
        name, number = _pair(text, path.name, line)
        if name in names:
            raise InvalidLine(path.name, line, f"repeats the name {name[:80]!r}; remove one")
        names[name] = number
    check_count(path.name, declared, len(names))
    return _map(path.name, names)


def json(path: Path) -> NameMap:
    """Read a JSON object that maps names to numbers.

    Raises:
        InvalidLine: it is none.
        TooLarge: it has more than `MAX_JSON_BYTES`.
    """
    try:
        with path.open("rb") as file:
            names = msgspec.json.decode(text_files.read_whole(file, path.name, MAX_JSON_BYTES), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidLine(path.name, 1, f"is not a JSON object of names and numbers ({error})") from error
    return _map(path.name, names)


def count(text: str | Defect, source: str, line: int) -> int:
    """Read the number on the first line.

    Raises:
        InvalidLine: there is none.
    """
    if isinstance(text, Defect):
        raise lines.locate_defect(text, source, line)
    if not text.strip().isdecimal():
        raise InvalidLine(
            source, line, f"is {text[:80]!r}; the first line of an OpenKE file is the number of lines that follow"
        )
    return int(text)


def check_count(source: str, declared: int, found: int) -> None:
    """Refuse a file that has more or fewer lines than it says.

    Raises:
        InvalidLine: it has.
    """
    if declared != found:
        raise InvalidLine(source, 1, f"says that {declared} lines follow, but {found} do; download the file again")


def _pair(text: str, source: str, line: int) -> tuple[str, int]:
    cells = text.rsplit("\t", 1) if "\t" in text else text.rsplit(maxsplit=1)
    if len(cells) != 2 or not cells[1].strip().isdecimal():
        raise InvalidLine(source, line, f"is {text[:80]!r}; write a name, a tab and its number")
    return cells[0], int(cells[1])


def _map(source: str, names: dict[str, int]) -> NameMap:
    by_id = {number: name for name, number in names.items()}
    if len(by_id) != len(names):
        raise InvalidLine(source, 1, "gives two names the same number; renumber one")
    return NameMap(source, names, by_id)
