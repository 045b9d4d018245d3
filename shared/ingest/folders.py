"""Read folders of many files: MATH, with a problem in each file, and notes, which are cut into passages."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from shared.ingest import lines, passages, rows
from shared.ingest.lines import BOM, MAX_LINE_BYTES, Content, Defect, Empty, Fields, Row
from shared.ingest.passages import Chunking, Passage

TEXTS = (".md", ".markdown", ".txt", ".rst")
MAX_TEXT_BYTES = 16 << 20
"""Maximum size of a text file, which is read as a whole, in bytes."""


def math_files(folder: Path, split: str) -> list[Path]:
    """List the problems of a MATH folder (of its `split`, if it has splits), in natural order.

    The list is empty for a folder of texts that also has JSON files, since only MATH numbers its files.
    """
    root = folder / split if (folder / split).is_dir() else folder
    found = sorted(root.glob("*/*.json"), key=_make_natural_key)
    numbered = all(file.stem.isdecimal() for file in found)
    return found if numbered or not text_files(folder) else []


def math(folder: Path, files: Iterable[Path]) -> Iterator[Row]:
    """Yield one row per problem, with the path below the folder as `unique_id` (as in MATH-500)."""
    for file in files:
        source = file.relative_to(folder).as_posix()
        yield source, 1, _problem(file, source)


def text_files(folder: Path) -> list[Path]:
    """List Markdown and text files below a folder, sorted by path; hidden files and folders are ignored."""
    found = (file for file in folder.rglob("*") if file.suffix.lower() in TEXTS and file.is_file())
    visible = (file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return sorted(visible, key=lambda file: file.relative_to(folder).as_posix())


def texts(folder: Path, files: Iterable[Path], chunking: Chunking) -> Iterator[Row]:
    """Yield the passages of every file; ids are the path below the folder with a number, as in `notes/sums.md#1`."""
    for file in files:
        source = file.relative_to(folder).as_posix()
        try:
            text = _text(file)
        except Defect as defect:
            yield source, 1, defect
            continue
        for number, passage in enumerate(passages.passages(text, chunking), start=1):
            yield source, passage.line, _document(source, number, passage)


def _document(source: str, number: int, passage: Passage) -> Fields:
    found = {"id": f"{source}#{number}", "text": passage.text, "metadata": {"path": source, "line": passage.line}}
    return {**found, "title": passage.title} if passage.title else found


def _make_natural_key(file: Path) -> tuple[str, int, str]:
    number = int(file.stem) if file.stem.isdecimal() else -1
    return file.parent.name, number, file.stem


def _problem(file: Path, source: str) -> Content:
    with file.open("rb") as opened:
        raw = opened.read(MAX_LINE_BYTES + len(BOM) + 1)
    if lines.is_too_long(raw, MAX_LINE_BYTES):
        return lines.make_too_long_defect(MAX_LINE_BYTES)
    try:
        return {"unique_id": source, **lines.fields(raw)}
    except Defect as defect:
        return defect


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        raw = opened.read(MAX_TEXT_BYTES + 1)
    if len(raw) > MAX_TEXT_BYTES:
        raise Defect(f"is longer than {MAX_TEXT_BYTES} bytes; split the file")
    if problem := rows.explain_refusal(raw):
        raise Defect(problem)
    try:
        text = raw.removeprefix(BOM).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise Defect(f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    if "\0" in text:
        raise Defect("holds a NUL byte; the file must be UTF-8 text")
    if not text.strip():
        raise Empty("has no text; write some or remove the file")
    return text
