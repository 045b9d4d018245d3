"""Read files and folders that hold graphs as rows, one at a time: plain lines, and the folders of OpenKE and TLogic."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

from shared.errors import Invalid, NotFound
from shared.ingest import fact_rows, name_maps, text_files
from shared.ingest.lines import Content, Defect, Row
from shared.ingest.name_maps import NameMap

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
    return _lines(path, fact_rows.phrases)


def template_lines(path: Path) -> Iterator[Row]:
    """Yield the templates of a file: relation, question for its object and question for its subject.

    Raises:
        NotFound: no such file.
        InvalidLine: later on, where it is no text.
    """
    return _lines(path, fact_rows.templates)


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
        yield from fact_rows.read(file, path.name, are_json=False)


def _tlogic(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Yield names and times as they are, after checking that the maps have them."""
    entities, relations, *steps = (
        name_maps.json(file) for name in TLOGIC if (file := _require_file(folder, name, TLOGIC[2]))
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
    entities, relations = (name_maps.openke(file) for name in OPENKE if (file := _require_file(folder, name)))
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
        for number, text in text_files.decode_lines(text_files.open_unpacked(file, path.name), path.name):
            found += 1
            if found:
                yield path.name, number, text if isinstance(text, Defect) else read(text)
            else:
                declared = name_maps.count(text, path.name, number)
    name_maps.check_count(path.name, declared, max(found, 0))


def _numbers(text: str, entities: NameMap, relations: NameMap) -> Content:
    cells = text.split()
    if len(cells) != 3 or not all(cell.isdecimal() for cell in cells):
        return Defect("is not three numbers; OpenKE's order is head, tail, relation")
    head, tail, relation = map(int, cells)
    for number, known in ((head, entities), (tail, entities), (relation, relations)):
        if number not in known.by_id:
            return Defect(f"{known.source} does not have the number {number}; OpenKE's order is head, tail, relation")
    return {"subject": entities.by_id[head], "relation": relations.by_id[relation], "object": entities.by_id[tail]}
