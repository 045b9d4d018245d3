"""Read files and folders of corpora and datasets: rows, passages and relevance judgements."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mathrag.errors import Invalid, InvalidLine, NotFound, TooLarge
from mathrag.installation import find_missing_package
from mathrag.messages import find_nearest, format_count
from mathrag.reading import document_process, lines, row_process, rows, tables
from mathrag.reading.columns import UPLOADED, Columns
from mathrag.reading.lines import BOM, MAX_LINE_BYTES, Content, Defect, Empty, Row
from mathrag.reading.rows import Format

# Users' files and folders as rows, one at a time.

LAYOUTS = (
    "a JSONL (JSON lines), JSON (an array), CSV or Parquet file",
    "a MATH folder ({train,test}/{subject}/{n}.json, or {subject}/{n}.json)",
    "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/{split}.tsv)",
    "an AutoRAG folder (corpus.parquet, qa.parquet)",
    "a FlashRAG folder ({split}.jsonl)",
    "for a corpus, PDF, Word, HTML, Markdown or text files (.pdf, .docx, .html, .md, .rst, .txt), or a folder of them",
)
_SUFFIXES = {
    ".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".csv": Format.CSV, ".tsv": Format.CSV, ".parquet": Format.PARQUET
}  # fmt: skip


class Chunking(msgspec.Struct, frozen=True, kw_only=True):
    """The length of passages, in characters."""

    size: int = 1200
    """Length up to which a passage grows; a code or formula block may be longer."""
    overlap: int = 150
    """Maximum length of the end of a passage that the next passage repeats, in whole sentences."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.size:
            message = f"the overlap of passages is {self.overlap}; it must be at least 0 and less than their size"
            raise Invalid(message, hint=f"choose a --chunk-overlap below --chunk-size, which is {self.size}")


DEFAULT = Chunking()


def corpus_lines(
    path: Path,
    *,
    split: str = "train",
    format: Format = Format.AUTO,  # noqa: A002 - the API's name
    delimiter: str | None = None,
    chunking: Chunking = DEFAULT,
    pairs: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the rows of a corpus; `pairs` such as "text=Inhalt" are the columns that the user chose.

    Raises:
        NotFound: the path does not exist.
        NotInstalled: the path has PDF or Word files, and the extra `documents` is missing.
        Invalid: the layout is unknown or ambiguous; the message lists the known ones.
        InvalidLine: a file has no data.
    """
    _check_exists(path)
    if path.is_file():
        is_text = path.suffix.lower() in TEXTS
        return texts(path.parent, [path], chunking) if is_text else _open_file(path, format, delimiter, pairs)
    if found := _find_table(path, ("corpus.jsonl", "corpus.parquet", f"{split}.jsonl")):
        return _open_file(found, format, delimiter, pairs)
    if problems := math_files(path, split):
        return math(path, problems)
    return texts(path, _require_files(path, text_files(path)), chunking)


def dataset_lines(
    path: Path,
    *,
    split: str = "test",
    format: Format = Format.AUTO,  # noqa: A002
    delimiter: str | None = None,
    pairs: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the rows of a dataset; BEIR's queries of `split` are joined with their `gold_documents`. `pairs` such as
    "question=Frage" are the columns that the user chose.

    Raises:
        NotFound: the path does not exist.
        Invalid: the layout or split is unknown, or the layout is ambiguous; the message lists the known ones.
        InvalidLine: a file has no data, or a judgement cannot be read.
    """
    _check_exists(path)
    if path.is_file():
        return _open_file(path, format, delimiter, pairs)
    found = _find_table(path, ("queries.jsonl", "qa.parquet", f"{split}.jsonl"))
    if found is None:
        return math(path, _require_files(path, math_files(path, split)))
    if found.name == "queries.jsonl":
        # Yield the queries that `split` judges: BEIR stores the queries of all splits in one file.
        file = path / "qrels" / f"{split}.tsv"
        if not file.is_file():
            known = sorted(each.stem for each in (path / "qrels").glob("*.tsv"))
            other = f"choose one of its splits: --split {' or --split '.join(known)}"
            hint = other if known else "add the file, or name queries.jsonl itself to have questions without judgements"
            raise Invalid(f"the folder {path.name!r} has no judgements for the split {split!r} ({file})", hint=hint)
        judged = read_judgements(file, f"qrels/{split}.tsv")
        return _join_golds(_open_file(found, Format.JSONL, None, pairs), judged)
    return _open_file(found, format, delimiter, pairs)


def _check_exists(path: Path) -> None:
    if not path.exists():
        near = find_nearest(path.name, (each.name for each in path.parent.glob("*")) if path.parent.is_dir() else ())
        meant = f"did you mean {str(path.parent / near)!r}? Otherwise: " if near else ""
        raise NotFound(f"the file or folder {str(path)!r} does not exist", hint=f"{meant}correct the path of --from")


def _find_table(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the folder's file that contains all rows."""
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        names = tuple(file.name for file in found)
        raise Invalid(
            f"the folder {folder.name!r} fits several layouts: {', '.join(names)}",
            hint=f"choose one: --from {found[0]}",
        )
    return found[0] if found else None


def _require_files(path: Path, files: list[Path]) -> list[Path]:
    if not files:
        raise _make_unknown_layout(path)
    return files


def _make_unknown_layout(path: Path) -> Invalid:
    if path.is_file():
        problem = f"{path.name!r} has no known layout: it is not JSON, CSV with a known column or Parquet"
        advice = "name the columns of a CSV file in its first line, or write Markdown or text as .md or .txt (corpora)"
        return Invalid(problem, hint=f"{advice}; known layouts: {'; '.join(LAYOUTS)}")
    return Invalid(f"{path.name!r} has no known layout", hint=f"arrange it as one of: {'; '.join(LAYOUTS)}")


def _open_file(path: Path, format: Format, delimiter: str | None, pairs: Sequence[str]) -> Iterator[Row]:  # noqa: A002
    """Open the file in the format of its content; if the content does not show the format, use the name."""
    with path.open("rb") as file:
        head = file.read(rows.HEAD)
    names = tables.choose_columns(Columns(UPLOADED, pairs)) if pairs else tables.KNOWN
    chosen = rows.recognise(head, path.name, format, names) or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise _make_unknown_layout(path)

    def read() -> Iterator[Row]:
        with path.open("rb") as file:
            yield from rows.read(file, path.name, chosen, delimiter=delimiter, names=names)

    return read()


def _join_golds(queries: Iterator[Row], judged: dict[str, dict[str, int]]) -> Iterator[Row]:
    for source, number, content in queries:
        try:
            query = lines.fields(content)
            identifier = lines.identifier(query, ("_id",))
        except Defect as defect:
            yield source, number, defect
            continue
        if identifier is None:
            yield source, number, Defect("has no `_id`; add one to the query")
        elif identifier in judged:
            yield source, number, {**query, "gold_documents": judged[identifier]}


# Folders of many files: MATH with one problem per file, and texts, which are cut into passages.

TEXTS = (".md", ".markdown", ".txt", ".rst", *document_process.PACKAGES)
MAX_TEXT_BYTES = 16 << 20
"""Maximum size of a text file in bytes, because it is read as a whole."""
MAX_SECTION_CHARS = 200
"""Maximum length of the headings in the id of a passage; the innermost headings are kept."""
UNREAD_NAMES = 5
"""Largest number of files that a warning names."""
DOCUMENT_HINT = "split the file, or convert it to text"


def math_files(folder: Path, split: str) -> list[Path]:
    """List the problems of a MATH folder (of its `split`, if it has splits), in natural order.

    The list is empty for a folder of texts that also has JSON files, because only MATH numbers its files.
    """
    root = folder / split if (folder / split).is_dir() else folder
    found = sorted(
        root.glob("*/*.json"),
        key=lambda file: (file.parent.name, int(file.stem) if file.stem.isdecimal() else -1, file.stem),
    )
    numbered = all(file.stem.isdecimal() for file in found)
    return found if numbered or not text_files(folder) else []


def math(folder: Path, files: Iterable[Path]) -> Iterator[Row]:
    """Yield one row per problem, with the path below the folder as `unique_id` (as in MATH-500)."""
    for file in files:
        source = file.relative_to(folder).as_posix()
        yield source, 1, _read_problem(file, source)


def text_files(folder: Path) -> list[Path]:
    """List the files below a folder that are cut into passages, sorted by path; hidden files and folders are
    ignored."""
    return [file for file in _visible_files(folder) if file.suffix.lower() in TEXTS]


def unread_files(path: Path, split: str) -> list[str]:
    """List the other files of a folder of texts, which `corpus_lines` does not read, as paths below the folder."""
    tables = ("corpus.jsonl", "corpus.parquet", f"{split}.jsonl")
    if path.is_file() or any((path / name).is_file() for name in tables) or math_files(path, split):
        return []
    return [file.relative_to(path).as_posix() for file in _visible_files(path) if file.suffix.lower() not in TEXTS]


def warn_of_unread_files(path: Path, split: str) -> list[str]:
    """Return a sentence that names the files of `unread_files`; return an empty list if there are none."""
    unread = unread_files(path, split)
    if not unread:
        return []
    names = ", ".join(unread[:UNREAD_NAMES]) + (", …" if len(unread) > UNREAD_NAMES else "")
    count = format_count(len(unread), "file has a suffix that is", "files have suffixes that are")
    return [f"{count} not read: {names}"]


def _visible_files(folder: Path) -> list[Path]:
    found = (file for file in folder.rglob("*") if file.is_file())
    visible = (file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return sorted(visible, key=lambda file: file.relative_to(folder).as_posix())


def texts(folder: Path, files: Sequence[Path], chunking: Chunking) -> Iterator[Row]:
    """Yield the passages of every file. Their ids name the place, such as `notes/sums.md, Sums > Of squares` or
    `manual.pdf, page 12`; further passages of a place are numbered, such as `manual.pdf, page 12 (2)`.

    Raises:
        NotInstalled: a package for one of the files is missing; no file was read.
    """
    for package in sorted(filter(None, {document_process.PACKAGES.get(file.suffix.lower()) for file in files})):
        if missing := find_missing_package(package, "mathrag[documents]"):
            raise missing
    return (row for file in files for row in _text_rows(file, file.relative_to(folder).as_posix(), chunking))


def _text_rows(file: Path, source: str, chunking: Chunking) -> Iterator[Row]:
    is_document = file.suffix.lower() in document_process.PACKAGES
    try:
        found = _document_passages(file, source, chunking) if is_document else passages(_read_text(file), chunking)
    except Defect as defect:
        yield source, 1, defect
        return
    used: dict[str, int] = {}
    for line, title, passage, page in found:
        place = f"page {page}" if page else title
        if len(place) > MAX_SECTION_CHARS:
            place = f"…{place[1 - MAX_SECTION_CHARS :]}"
        identifier = _number(f"{source}, {place}" if place else source, used)
        where = {"page": page} if page else {"section": title} if is_document else {"line": line}
        document = {"id": identifier, "text": passage, "metadata": {"path": source, **where}}
        yield source, line, {**document, "title": title} if title else document


def _number(name: str, used: dict[str, int]) -> str:
    """Return the name, followed by a number if it is already used, and record it as used."""
    identifier = name
    while identifier in used:
        used[name] += 1
        identifier = f"{name} ({used[name]})"
    used[identifier] = 1
    return identifier


def _document_passages(file: Path, source: str, chunking: Chunking) -> list["Passage"]:
    """Return the passages of a PDF, Word or HTML file, which one process reads; if it fails, keep nothing of the file.

    Raises:
        Defect: the file cannot be read, is larger than a limit, or has no text.
    """
    suffix = file.suffix.lower()
    module, what = document_process.__name__, f"{suffix[1:].upper()} file"
    found: list[Passage] = []
    trail: list[str] = []
    try:
        with file.open("rb") as opened:
            for _, number, content in row_process.read_rows(module, (suffix,), opened, source, what, DOCUMENT_HINT):
                part = lines.fields(content)
                page = part.get("page", 0)
                if not page:
                    trail = _extend_trail(trail, part["level"], part["heading"])
                numbered = list(enumerate(part["text"].split("\n"), start=1))
                chunks = _cut_section(" > ".join(filter(None, trail)), numbered, chunking)
                found += [passage._replace(line=page or number, page=page) for passage in chunks]
    except InvalidLine as error:
        raise Defect(error.said) from error
    except TooLarge as error:
        raise Defect(f"{error.message.removeprefix(f'{source}: ')}; {error.hint}") from error
    if not found:
        raise Empty("has no text; add text, or skip such files with --skip-empty")
    return found


def _read_problem(file: Path, source: str) -> Content:
    with file.open("rb") as opened:
        raw = opened.read(MAX_LINE_BYTES + len(BOM) + 1)
    if lines.is_too_long(raw, MAX_LINE_BYTES):
        return lines.make_too_long_defect(MAX_LINE_BYTES)
    try:
        return {"unique_id": source, **lines.fields(raw)}
    except Defect as defect:
        return defect


def _read_text(file: Path) -> str:
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
        raise Defect("contains a NUL byte; the file must be UTF-8 text")
    if not text.strip():
        raise Empty("has no text; add text, or skip such files with --skip-empty")
    return text


# BEIR's relevance judgements: tab-separated `query-id corpus-id score`, with or without a header.


def read_judgements(path: Path, source: str) -> dict[str, dict[str, int]]:
    """Read query id -> {document id -> grade}; omit grades of 0 and below, which mean "not relevant".

    Raises:
        InvalidLine: a row does not have three columns, a grade is not a whole number, or the file is not UTF-8.
    """
    judged: dict[str, dict[str, int]] = {}
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                cells = raw.decode("utf-8-sig").strip().split("\t")
            except UnicodeDecodeError as error:
                raise InvalidLine(source, number, "is not UTF-8; save the file as UTF-8") from error
            if cells == [""] or (number == 1 and cells[0] == "query-id"):
                continue
            if len(cells) != 3:
                columns = format_count(len(cells), "column")
                advice = "write query-id, corpus-id and score, separated by tabs"
                raise InvalidLine(source, number, f"has {columns}, not three; {advice}")
            query, document, score = cells
            try:
                grade = int(score)
            except ValueError as error:
                raise InvalidLine(
                    source, number, f"score {score!r} is not a whole number; write a grade such as 0 or 1"
                ) from error
            documents = judged.setdefault(query.strip(), {})
            if grade > 0:
                documents[document.strip()] = grade
    return judged


# Passages of Markdown and plain text: cut at headings, then at sentences; code and formulas are never cut.

HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
BLOCKS = (
    (re.compile(r"\s*(```+|~~~+)"), None),
    (re.compile(r"\s*\$\$(?!.*\$\$)"), re.compile(r"\$\$")),
    (re.compile(r"\s*\\\[(?!.*\\\])"), re.compile(r"\\\]")),
    (re.compile(r"\s*\\begin\{(\w+\*?)\}(?!.*\\end\{\1\})"), None),
)
"""Patterns for the start and the end of a block that is never cut; None means the characters that opened it."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])\s*|\n+")


class Passage(NamedTuple):
    """A part of a text."""

    line: int
    """Number of its first line, from 1."""
    title: str
    """Headings above the passage, outermost first."""
    text: str
    page: int = 0
    """Number of its page, from 1; 0 in files without pages."""


Numbered = list[tuple[int, str]]
"""Lines or uncut pieces of text, each with the number of its first line."""


def passages(text: str, chunking: Chunking) -> Iterator[Passage]:
    """Cut a text into passages, in order; no passage spans a heading."""
    for title, numbered in _sections(text):
        yield from _cut_section(title, numbered, chunking)


def _cut_section(title: str, numbered: Numbered, chunking: Chunking) -> Iterator[Passage]:
    for chunk in _pack(_pieces(numbered, chunking.size), chunking):
        body = "".join(piece for _, piece in chunk).strip()
        if body:
            yield Passage(chunk[0][0], title, body)


def _sections(text: str) -> Iterator[tuple[str, Numbered]]:
    """Yield (headings, lines) for the text between two headings; a line inside a block is never a heading."""
    trail: list[str] = []
    section: Numbered = []
    closing: re.Pattern[str] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        heading = HEADING.match(line) if closing is None else None
        if heading is None:
            closing = _find_closing(line, closing)
            section.append((number, line))
            continue
        yield " > ".join(filter(None, trail)), section
        trail = _extend_trail(trail, len(heading[1]), heading[2])
        section = []
    yield " > ".join(filter(None, trail)), section


def _extend_trail(trail: list[str], level: int, heading: str) -> list[str]:
    """Return the headings up to and including a heading of this level, outermost first; none for level 0."""
    return [*trail[: level - 1], *[""] * (level - 1 - len(trail)), heading] if level else []


def _find_closing(line: str, closing: re.Pattern[str] | None) -> re.Pattern[str] | None:
    """Return the pattern that ends the block that is open after `line`; None if no block is open."""
    if closing is not None:
        return None if closing.search(line) else closing
    for opening, end in BLOCKS:
        if opened := opening.match(line):
            if end:
                return end
            begun = opened[1]
            fence = rf"^\s*{re.escape(begun)}{begun[0]}*\s*$"
            return re.compile(fence if begun[0] in "`~" else rf"\\end\{{{re.escape(begun)}\}}")
    return None


def _pieces(numbered: Numbered, size: int) -> Iterator[tuple[int, str]]:
    """Yield blocks unchanged, and the sentences of all other text; cut a sentence that is too long."""
    prose: Numbered = []
    block: Numbered = []
    closing: re.Pattern[str] | None = None
    for number, line in numbered:
        before, closing = closing, _find_closing(line, closing)
        if before is None and closing is None:
            prose.append((number, line))
            continue
        block.append((number, line))
        if closing is None:
            yield from _sentences(prose, size)
            yield from _join(block)
            prose, block = [], []
    yield from _sentences(prose, size)
    yield from _join(block)


def _sentences(prose: Numbered, size: int) -> Iterator[tuple[int, str]]:
    for number, text in _join(prose):
        start = 0
        for end in [*(found.end() for found in _SENTENCE.finditer(text)), len(text)]:
            at = number + text.count("\n", 0, start)
            yield from ((at, part) for part in _cut(text[start:end], size) if part)
            start = end


def _join(numbered: Numbered) -> Numbered:
    """Join lines into one text; return none if there are no lines."""
    return [(numbered[0][0], "\n".join(line for _, line in numbered) + "\n")] if numbered else []


def _cut(text: str, size: int) -> Iterator[str]:
    """Cut at the last blank before the limit, or at the limit."""
    while len(text) > size:
        at = text.rfind(" ", 1, size) + 1 or size
        yield text[:at]
        text = text[at:]
    yield text


def _pack(pieces: Iterable[tuple[int, str]], chunking: Chunking) -> Iterator[Numbered]:
    """Collect pieces into chunks of at most `size`; each chunk repeats the end of the previous one."""
    chunk: Numbered = []
    for number, piece in pieces:
        if chunk and _length(chunk) + len(piece.rstrip()) > chunking.size:
            yield chunk
            overlap = min(chunking.overlap, max(0, chunking.size - len(piece)))
            kept = len(chunk)
            while kept and _length(chunk[kept - 1 :]) <= overlap:
                kept -= 1
            chunk = chunk[kept:]
        if chunk or not piece.isspace():
            chunk.append((number, piece))
    if chunk:
        yield chunk


def _length(chunk: Numbered) -> int:
    return sum(len(piece) for _, piece in chunk)
