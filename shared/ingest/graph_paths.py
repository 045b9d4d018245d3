"""Read files and folders that hold graphs as rows, one at a time: plain lines, and the folders of OpenKE and TLogic."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from shared.errors import Invalid, InvalidLine, NotFound
from shared.ingest import lines, rows
from shared.ingest.lines import BOM, MAX_LINE_BYTES, Content, Defect, Fields, Row
from shared.ingest.rows import MAX_DECOMPRESSED_BYTES
from shared.messages import format_count

# Read facts, phrases and templates as rows, from tab-separated lines and from the JSON lines that a client sends.

FACT = ("subject", "relation", "object", "time")
PHRASE = ("relation", "phrase", "inverse")
TEMPLATE = ("relation", "object_question", "subject_question")
WHAT = "subject, relation, object and optionally time, separated by tabs"
TEMPLATES = "write relation, question for the object and question for the subject, separated by tabs"
HEADERS = ({"subject", "head", "s", "h"}, {"relation", "predicate", "r", "p"}, {"object", "tail", "o", "t"})
"""Names that a header gives to the columns."""


def read_fact_rows(
    file: IO[bytes],
    source: str,
    *,
    are_json: bool | None = None,
    longest: int = MAX_LINE_BYTES,
    decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[Row]:
    """Yield the rows of `file`, which may be compressed with gzip.

    Args:
        are_json: whether its lines are JSON; None: as its first character says.
        longest: bytes that a line may have.
        decompressed: bytes that a packed file may unpack to.

    Raises:
        InvalidLine: it is no text; later on, where it is damaged.
        TooLarge: later on, where more is unpacked than `decompressed`.
    """
    content = rows.open_unpacked(file, source, decompressed)
    if are_json is None:
        head: bytes = content.peek(1)  # type: ignore[attr-defined]
        are_json = head.removeprefix(BOM).lstrip().startswith(b"{")
    found = rows.decode_lines(content, source, longest)
    return _json(found, source) if are_json else tsv(found, source)


def tsv(found: Iterator[rows.Line], source: str) -> Iterator[Row]:
    """Yield one fact per line; quotes are ordinary characters."""
    for number, text in found:
        cells = text.split("\t") if isinstance(text, str) else []
        if number == 1 and len(cells) >= len(HEADERS) and _is_header(cells):
            raise InvalidLine(source, 1, "is a header; remove it and keep this order: " + WHAT)
        yield source, number, text if isinstance(text, Defect) else _fields(cells)


def phrases(file: IO[bytes], source: str) -> Iterator[Row]:
    """Yield relation, phrase and optionally the phrase of the inverse, separated by tabs."""
    for number, text in rows.decode_lines(rows.open_unpacked(file, source), source):
        yield source, number, text if isinstance(text, Defect) else _phrase(text.split("\t"))


def templates(file: IO[bytes], source: str) -> Iterator[Row]:
    """Yield relation, question for its object and question for its subject, separated by tabs."""
    for number, text in rows.decode_lines(rows.open_unpacked(file, source), source):
        yield source, number, text if isinstance(text, Defect) else _template(text.split("\t"))


def _json(found: Iterator[rows.Line], source: str) -> Iterator[Row]:
    for number, text in found:
        yield source, number, text


def _is_header(cells: list[str]) -> bool:
    return all(cell.strip().lower() in names for cell, names in zip(cells, HEADERS, strict=False))


def _fields(cells: list[str]) -> Content:
    if not 3 <= len(cells) <= len(FACT):
        return Defect(f"has {format_count(len(cells), 'column')}; write {WHAT} (for OpenKE, name the folder)")
    return dict(zip(FACT, cells, strict=False))


def _phrase(cells: list[str]) -> Content:
    if not 2 <= len(cells) <= len(PHRASE):
        return Defect(
            f"has {format_count(len(cells), 'column')}; write relation, phrase and optionally that of its inverse, "
            "separated by tabs"
        )
    found: Fields = dict(zip(PHRASE, cells, strict=False))
    return found


def _template(cells: list[str]) -> Content:
    if len(cells) != len(TEMPLATE):
        return Defect(f"has {format_count(len(cells), 'column')}; {TEMPLATES}")
    found: Fields = dict(zip(TEMPLATE, cells, strict=True))
    return found


# Read names and their numbers from the files in folders of OpenKE (text) and TLogic (JSON).

MAX_JSON_BYTES = 256 << 20
"""Maximum size of TLogic's map, which is read as a whole, in bytes."""


class NameMap(NamedTuple):
    """The names of a file, and their numbers."""

    source: str
    names: dict[str, int]
    by_id: dict[int, str]


def read_openke_names(path: Path) -> NameMap:
    """Read OpenKE's file: the number of names on the first line, then each name with its number.

    Raises:
        InvalidLine: a line is something else, or they are not as many.
    """
    with path.open("rb") as file:
        content = rows.open_unpacked(file, path.name)
        found = list(rows.require_sound(rows.decode_lines(content, path.name), path.name))
    declared = count_names(found[0][1], path.name, found[0][0]) if found else 0
    names: dict[str, int] = {}
    for line, text in found[1:]:
        cells = text.rsplit("\t", 1) if "\t" in text else text.rsplit(maxsplit=1)
        if len(cells) != 2 or not cells[1].strip().isdecimal():
            raise InvalidLine(path.name, line, f"is {text[:80]!r}; write a name, a tab and its number")
        name, number = cells[0], int(cells[1])
        if name in names:
            raise InvalidLine(path.name, line, f"repeats the name {name[:80]!r}; remove one")
        names[name] = number
    check_name_count(path.name, declared, len(names))
    return _map(path.name, names)


def read_json_names(path: Path) -> NameMap:
    """Read a JSON object that maps names to numbers.

    Raises:
        InvalidLine: it is none.
        TooLarge: it has more than `MAX_JSON_BYTES`.
    """
    try:
        with path.open("rb") as file:
            names = msgspec.json.decode(rows.read_whole(file, path.name, MAX_JSON_BYTES), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidLine(path.name, 1, f"is not a JSON object of names and numbers ({error})") from error
    return _map(path.name, names)


def count_names(text: str | Defect, source: str, line: int) -> int:
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


def check_name_count(source: str, declared: int, found: int) -> None:
    """Refuse a file that has more or fewer lines than it says.

    Raises:
        InvalidLine: it has.
    """
    if declared != found:
        raise InvalidLine(source, 1, f"says that {declared} lines follow, but {found} do; download the file again")


def _map(source: str, names: dict[str, int]) -> NameMap:
    by_id = {number: name for name, number in names.items()}
    if len(by_id) != len(names):
        raise InvalidLine(source, 1, "gives two names the same number; renumber one")
    return NameMap(source, names, by_id)


LAYOUTS = (
    "a file of tab-separated lines (subject, relation, object and optionally time)",
    "a folder of such files ({split}.tsv or {split}.txt)",
    "an OpenKE folder (entity2id.txt, relation2id.txt, {split}2id.txt)",
    "a TLogic folder (entity2id.json, relation2id.json, ts2id.json, {split}.txt)",
)
"""The known layouts; each file may be compressed with gzip."""
OPENKE = ("entity2id.txt", "relation2id.txt")
TLOGIC = ("entity2id.json", "relation2id.json", "ts2id.json")
PACKED = ".gz"
SPLITS = ("train", "valid", "test")


def fact_lines(path: Path, splits: Sequence[str] = ("train",)) -> Iterator[Row]:
    """Yield the facts of a file, or of these splits of a folder one after another.

    Raises:
        NotFound: no such path.
        Invalid: an unknown layout or split; the message lists the known ones.
        InvalidLine: later on, where a file is no text, is damaged, or does not fit the others.
    """
    if not path.exists():
        raise NotFound(f"there is no file or folder {str(path)!r}")
    if path.is_file():
        return _read_plain_file(path)
    if _file(path, OPENKE[0]):
        return _openke(path, _split_files(path, splits, ("2id.txt",)))
    if _file(path, TLOGIC[0]):
        return _tlogic(path, _split_files(path, splits, (".txt",)))
    return chain.from_iterable(map(_read_plain_file, _split_files(path, splits, (".tsv", ".txt"))))


def phrase_lines(path: Path) -> Iterator[Row]:
    """Yield the phrases of a file: relation, phrase and optionally that of its inverse.

    Raises:
        NotFound: no such file.
        InvalidLine: later on, where it is no text.
    """
    return _lines(path, phrases)


def template_lines(path: Path) -> Iterator[Row]:
    """Yield the templates of a file: relation, question for its object and question for its subject.

    Raises:
        NotFound: no such file.
        InvalidLine: later on, where it is no text.
    """
    return _lines(path, templates)


def _lines(path: Path, read: Callable[[IO[bytes], str], Iterator[Row]]) -> Iterator[Row]:
    if not path.is_file():
        raise NotFound(f"there is no file {str(path)!r}")
    with path.open("rb") as file:
        yield from read(file, path.name)


def _file(folder: Path, name: str) -> Path | None:
    """Return the file of this name, compressed or not; None if there is neither."""
    return next((each for each in (folder / name, folder / f"{name}{PACKED}") if each.is_file()), None)


def _split_files(folder: Path, splits: Sequence[str], endings: Sequence[str]) -> list[Path]:
    """Return the files of these splits.

    Raises:
        Invalid: one is not there; the message says which are.
    """
    found = {split: _split_file(folder, split, endings) for split in dict.fromkeys((*splits, *SPLITS))}
    there = [split for split, file in found.items() if file]
    if not there:
        raise Invalid(f"{folder.name!r} has no known layout", hint="known layouts: " + "; ".join(LAYOUTS))
    missing = next((split for split in splits if found[split] is None), None)
    if missing is not None:
        hint = f"it has {', '.join(there)}: --split {there[0]}"
        raise Invalid(f"{folder.name!r} has no split {missing!r}", hint=hint)
    return [file for split in splits if (file := found[split])]


def _split_file(folder: Path, split: str, endings: Sequence[str]) -> Path | None:
    return next((file for ending in endings if (file := _file(folder, f"{split}{ending}"))), None)


def _read_plain_file(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        yield from read_fact_rows(file, path.name, are_json=False)


def _tlogic(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Yield names and times as they are, after checking that the maps have them."""
    entities, relations, *steps = (
        read_json_names(file) for name in TLOGIC if (file := _require_file(folder, name, TLOGIC[2]))
    )
    maps = {"subject": entities, "relation": relations, "object": entities, **({"time": steps[0]} if steps else {})}
    for source, number, content in chain.from_iterable(map(_read_plain_file, files)):
        yield source, number, _check_names(content, maps)


def _check_names(content: Content, maps: dict[str, NameMap]) -> Content:
    if isinstance(content, dict):
        for field, value in content.items():
            if field in maps and value not in maps[field].names:
                return Defect(
                    f"{maps[field].source} does not have the {field} {value[:80]!r}; correct one of the two files"
                )
    return content


def _openke(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Yield the names for the numbers, which are in the order head, tail, relation."""
    entities, relations = (read_openke_names(file) for name in OPENKE if (file := _require_file(folder, name)))
    for file in files:
        yield from _read_counted_lines(file, lambda text: _numbers(text, entities, relations))


def _require_file(folder: Path, name: str, optional: str = "") -> Path | None:
    """Return the file of this name; None if it is `optional` and does not exist.

    Raises:
        Invalid: there is none, and it is not `optional`.
    """
    found = _file(folder, name)
    if found is None and name != optional:
        raise Invalid(f"{folder.name!r} has no {name}", hint="known layouts: " + "; ".join(LAYOUTS))
    return found


def _read_counted_lines(path: Path, read: Callable[[str], Content]) -> Iterator[Row]:
    """Yield the lines below a first line with their number.

    Raises:
        InvalidLine: they are not as many.
    """
    found = -1
    declared = 0
    with path.open("rb") as file:
        for number, text in rows.decode_lines(rows.open_unpacked(file, path.name), path.name):
            found += 1
            if found:
                yield path.name, number, text if isinstance(text, Defect) else read(text)
            else:
                declared = count_names(text, path.name, number)
    check_name_count(path.name, declared, max(found, 0))


def _numbers(text: str, entities: NameMap, relations: NameMap) -> Content:
    cells = text.split()
    if len(cells) != 3 or not all(cell.isdecimal() for cell in cells):
        return Defect("is not three numbers; OpenKE's order is head, tail, relation")
    head, tail, relation = map(int, cells)
    for number, known in ((head, entities), (tail, entities), (relation, relations)):
        if number not in known.by_id:
            return Defect(f"{known.source} does not have the number {number}; OpenKE's order is head, tail, relation")
    return {"subject": entities.by_id[head], "relation": relations.by_id[relation], "object": entities.by_id[tail]}
