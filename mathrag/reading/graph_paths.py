"""Read graphs as rows, one at a time, from plain lines and from the folders of OpenKE and TLogic."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from mathrag.errors import Invalid, InvalidLine, NotFound
from mathrag.messages import format_count
from mathrag.reading import rows
from mathrag.reading.lines import BOM, MAX_LINE_BYTES, Content, Defect, Row
from mathrag.reading.rows import MAX_DECOMPRESSED_BYTES

FACT = ("subject", "relation", "object", "time")
PHRASE = ("relation", "phrase", "inverse")
TEMPLATE = ("relation", "object_question", "subject_question")
WHAT = "subject, relation, object and optionally time, separated by tabs"
PHRASES = "write relation, phrase and optionally the phrase of its inverse, separated by tabs"
TEMPLATES = "write relation, question for the object and question for the subject, separated by tabs"
HEADERS = ({"subject", "head", "s", "h"}, {"relation", "predicate", "r", "p"}, {"object", "tail", "o", "t"})
"""Column names by which a header line is recognised."""

# Files and folders of facts.

LAYOUTS = (
    "a file of tab-separated lines (subject, relation, object and optionally time)",
    "a folder of such files ({split}.tsv or {split}.txt)",
    "an OpenKE folder (entity2id.txt, relation2id.txt, {split}2id.txt)",
    "a TLogic folder (entity2id.json, relation2id.json, ts2id.json, {split}.txt)",
)
"""Known layouts; each file may be compressed with gzip."""
OPENKE = ("entity2id.txt", "relation2id.txt")
TLOGIC = ("entity2id.json", "relation2id.json")
SPLITS = ("train", "valid", "test")


def fact_lines(path: Path, splits: Sequence[str] = ("train",)) -> Iterator[Row]:
    """Yield the facts of a file, or of these splits of a folder, one split after another.

    Raises:
        NotFound: the path does not exist.
        Invalid: the layout or split is unknown; the message lists the known ones.
        InvalidLine: during iteration, if a file is not text, is damaged, or does not match the other files.
    """
    if not path.exists():
        raise NotFound(f"the file or folder {str(path)!r} does not exist", hint="correct the path")
    if path.is_file():
        return _read_plain_file(path)
    if _find_file(path, OPENKE[0]):
        return _read_openke(path, _split_files(path, splits, ("2id.txt",)))
    if _find_file(path, TLOGIC[0]):
        return _read_tlogic(path, _split_files(path, splits, (".txt",)))
    return chain.from_iterable(map(_read_plain_file, _split_files(path, splits, (".tsv", ".txt"))))


def phrase_lines(path: Path) -> Iterator[Row]:
    """Yield the phrases of a file: relation, phrase and optionally the phrase of its inverse.

    Raises:
        NotFound: the file does not exist.
        InvalidLine: during iteration, if the file is not text.
    """
    return _read_lines(path, PHRASE, 2, PHRASES)


def template_lines(path: Path) -> Iterator[Row]:
    """Yield the templates of a file: relation, question for its object and question for its subject.

    Raises:
        NotFound: the file does not exist.
        InvalidLine: during iteration, if the file is not text.
    """
    return _read_lines(path, TEMPLATE, len(TEMPLATE), TEMPLATES)


def _read_lines(path: Path, names: tuple[str, ...], least: int, advice: str) -> Iterator[Row]:
    if not path.is_file():
        raise NotFound(f"the file {str(path)!r} does not exist", hint="correct the path")
    with path.open("rb") as file:
        for number, text in rows.decode_lines(rows.open_unpacked(file, path.name), path.name):
            yield path.name, number, _split_columns(text, names, least, advice)


def _find_file(folder: Path, name: str) -> Path | None:
    """Return the file of this name, compressed or not; None if neither exists."""
    return next((each for each in (folder / name, folder / f"{name}.gz") if each.is_file()), None)


def _split_files(folder: Path, splits: Sequence[str], endings: Sequence[str]) -> list[Path]:
    """Return the files of these splits."""
    found: dict[str, Path] = {}
    for split in dict.fromkeys((*splits, *SPLITS)):
        if file := next(filter(None, (_find_file(folder, f"{split}{ending}") for ending in endings)), None):
            found[split] = file
    if not found:
        raise Invalid(f"the folder {folder.name!r} has no known layout", hint="known layouts: " + "; ".join(LAYOUTS))
    if missing := [split for split in splits if split not in found]:
        hint = f"it has {', '.join(found)}: --split {next(iter(found))}"
        raise Invalid(f"the folder {folder.name!r} has no split {missing[0]!r}", hint=hint)
    return [found[split] for split in splits]


def _read_plain_file(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        yield from read_fact_rows(file, path.name, are_json=False)


def _read_tlogic(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Yield names and times after checking that the maps have them; the map of times is optional."""
    entities, relations = (read_json_names(_require_file(folder, name)) for name in TLOGIC)
    maps = {"subject": entities, "relation": relations, "object": entities}
    if times := _find_file(folder, "ts2id.json"):
        maps["time"] = read_json_names(times)
    for source, number, content in chain.from_iterable(map(_read_plain_file, files)):
        cells = content if isinstance(content, dict) else {}
        stranger = next((each for each in cells if each in maps and cells[each] not in maps[each].names), None)
        if stranger is not None:
            problem = f"{maps[stranger].source} lacks the {stranger} {cells[stranger][:80]!r}"
            yield source, number, Defect(f"{problem}; correct one of the two files")
        else:
            yield source, number, content


def _read_openke(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Yield the names for the numbers, which are in the order head, tail, relation."""
    entities, relations = (read_openke_names(_require_file(folder, name)) for name in OPENKE)
    for file in files:
        for number, text in _read_counted_lines(file):
            yield file.name, number, text if isinstance(text, Defect) else _name_fact(text, entities, relations)


def _require_file(folder: Path, name: str) -> Path:
    if found := _find_file(folder, name):
        return found
    raise Invalid(f"the folder {folder.name!r} has no file {name}", hint="known layouts: " + "; ".join(LAYOUTS))


# Names and their numbers, from the files in folders of OpenKE (text) and TLogic (JSON).

MAX_JSON_BYTES = 256 << 20
"""Maximum size of TLogic's map in bytes, because it is read as a whole."""


class NameMap(NamedTuple):
    """The names of a file, and their numbers."""

    source: str
    names: dict[str, int]
    by_id: dict[int, str]


def read_openke_names(path: Path) -> NameMap:
    """Read OpenKE's file: the number of names on the first line, then each name with its number.

    Raises:
        InvalidLine: a line has another form, or the number of lines differs.
    """
    names: dict[str, int] = {}
    for line, text in rows.require_sound(_read_counted_lines(path), path.name):
        cells = text.rsplit("\t", 1) if "\t" in text else text.rsplit(maxsplit=1)
        if len(cells) != 2 or not cells[1].strip().isdecimal():
            raise InvalidLine(path.name, line, f"is {text[:80]!r}; write a name, a tab and its number")
        name, number = cells[0], int(cells[1])
        if name in names:
            raise InvalidLine(path.name, line, f"repeats the name {name[:80]!r}; remove one")
        names[name] = number
    return _invert(path.name, names)


def read_json_names(path: Path) -> NameMap:
    """Read a JSON object that maps names to numbers.

    Raises:
        InvalidLine: the file is not such an object.
        TooLarge: the file has more than `MAX_JSON_BYTES`.
    """
    try:
        with path.open("rb") as file:
            names = msgspec.json.decode(rows.read_whole(file, path.name, MAX_JSON_BYTES), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidLine(path.name, 1, f"is not a JSON object of names and numbers ({error})") from error
    return _invert(path.name, names)


def _read_counted_lines(path: Path) -> Iterator[rows.Line]:
    """Yield the lines of a file of OpenKE after the first line, which is their number."""
    with path.open("rb") as file:
        found = rows.decode_lines(rows.open_unpacked(file, path.name), path.name)
        line, first = next(rows.require_sound(found, path.name), (1, "0"))
        if not first.strip().isdecimal():
            rule = "the first line of an OpenKE file is the number of lines that follow"
            raise InvalidLine(path.name, line, f"is {first[:80]!r}; {rule}")
        count = 0
        for each in found:
            count += 1
            yield each
    if count != int(first):
        message = f"announces {int(first)} lines, but {count} follow; download the file again"
        raise InvalidLine(path.name, 1, message)


def _invert(source: str, names: dict[str, int]) -> NameMap:
    by_id = {number: name for name, number in names.items()}
    if len(by_id) != len(names):
        raise InvalidLine(source, 1, "gives two names the same number; renumber one")
    return NameMap(source, names, by_id)


def _name_fact(text: str, entities: NameMap, relations: NameMap) -> Content:
    cells = text.split()
    if len(cells) != 3 or not all(cell.isdecimal() for cell in cells):
        return Defect("is not three numbers; OpenKE's order is head, tail, relation")
    head, tail, relation = map(int, cells)
    for number, known in ((head, entities), (tail, entities), (relation, relations)):
        if number not in known.by_id:
            return Defect(f"{known.source} lacks the number {number}; OpenKE's order is head, tail, relation")
    return {"subject": entities.by_id[head], "relation": relations.by_id[relation], "object": entities.by_id[tail]}


# Facts, phrases and templates as rows, from tab-separated lines and from the JSON lines of a client.


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
        are_json: the lines are JSON; None detects it from the first character.
        longest: largest number of bytes of a line.
        decompressed: largest number of bytes that a compressed file may unpack to.

    Raises:
        InvalidLine: the file is not text, or, during iteration, it is damaged.
        TooLarge: during iteration, if the file unpacks to more than `decompressed`.
    """
    content = rows.open_unpacked(file, source, decompressed)
    if are_json is None:
        head: bytes = content.peek(1)  # type: ignore[attr-defined]
        are_json = head.removeprefix(BOM).lstrip().startswith(b"{")
    found = rows.decode_lines(content, source, longest)
    return ((source, number, text) for number, text in found) if are_json else _read_facts(found, source)


def _read_facts(found: Iterator[rows.Line], source: str) -> Iterator[Row]:
    """Yield one fact per line; quotes are ordinary characters."""
    for number, text in found:
        if number == 1 and isinstance(text, str):
            cells = text.split("\t")
            are_names = (cell.strip().lower() in names for cell, names in zip(cells, HEADERS, strict=False))
            if len(cells) >= len(HEADERS) and all(are_names):
                raise InvalidLine(source, 1, "is a header; remove it and keep this order of columns: " + WHAT)
        yield source, number, _split_columns(text, FACT, 3, f"write {WHAT} (for OpenKE, name the folder)")


def _split_columns(text: str | Defect, names: tuple[str, ...], least: int, advice: str) -> Content:
    """Return the columns of a line by name; all but the first `least` are optional."""
    if isinstance(text, Defect):
        return text
    cells = text.split("\t")
    if not least <= len(cells) <= len(names):
        return Defect(f"has {format_count(len(cells), 'column')}; {advice}")
    return dict(zip(names, cells, strict=False))
