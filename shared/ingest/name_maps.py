"""Names and their numbers, as the folders of OpenKE (text) and TLogic (JSON) keep them in files of their own."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from shared.errors import InvalidLine
from shared.ingest import lines, text_files
from shared.ingest.lines import Defect

MAX_JSON_BYTES = 256 << 20
"""A map of TLogic is read whole."""


class NameMap(NamedTuple):
    """The names of a file."""

    source: str
    names: dict[str, int]
    by_id: dict[int, str]


def openke(path: Path) -> NameMap:
    """How many there are on the first line, then a name and its number each.

    Raises:
        InvalidLine: a line is something else, or they are not as many.
    """
    with path.open("rb") as file:
        content = text_files.unpacked(file, path.name)
        found = list(text_files.sound(text_files.decoded(content, path.name), path.name))
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
    """An object of names and numbers.

    Raises:
        InvalidLine: it is none.
        TooLarge: it has more than `MAX_JSON_BYTES`.
    """
    try:
        with path.open("rb") as file:
            names = msgspec.json.decode(text_files.whole(file, path.name, MAX_JSON_BYTES), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidLine(path.name, 1, f"is no JSON object of names and numbers ({error})") from error
    return _map(path.name, names)


def count(text: str | Defect, source: str, line: int) -> int:
    """The number that stands alone on the first line.

    Raises:
        InvalidLine: there is none.
    """
    if isinstance(text, Defect):
        raise lines.located(text, source, line)
    if not text.strip().isdecimal():
        raise InvalidLine(source, line, f"is {text[:80]!r}; OpenKE's files begin with how many lines follow")
    return int(text)


def check_count(source: str, declared: int, found: int) -> None:
    """Refuse a file that has more or fewer lines than it says.

    Raises:
        InvalidLine: it has.
    """
    if declared != found:
        raise InvalidLine(source, 1, f"says that {declared} lines follow, and {found} do; download it again")


def _pair(text: str, source: str, line: int) -> tuple[str, int]:
    cells = text.rsplit("\t", 1) if "\t" in text else text.rsplit(maxsplit=1)
    if len(cells) != 2 or not cells[1].strip().isdecimal():
        raise InvalidLine(source, line, f"is {text[:80]!r}; write a name, a tab and its number")
    return cells[0], int(cells[1])


def _map(source: str, names: dict[str, int]) -> NameMap:
    by_id = {number: name for name, number in names.items()}
    if len(by_id) != len(names):
        raise InvalidLine(source, 1, "gives two names the same number; mend it")
    return NameMap(source, names, by_id)
