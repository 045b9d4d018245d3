"""Cut Markdown and plain text into passages: at headings, then at sentences; code and formulas stay whole."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from shared.errors import Invalid

HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
BLOCKS = (
    (re.compile(r"\s*(```+|~~~+)"), None),
    (re.compile(r"\s*\$\$(?!.*\$\$)"), re.compile(r"\$\$")),
    (re.compile(r"\s*\\\[(?!.*\\\])"), re.compile(r"\\\]")),
    (re.compile(r"\s*\\begin\{(\w+\*?)\}(?!.*\\end\{\1\})"), None),
)
"""How a block that stays whole begins, and how it ends; None: with the characters that opened it."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])\s*|\n+")


class Chunking(msgspec.Struct, frozen=True, kw_only=True):
    """The length of passages, in characters."""

    size: int = 1200
    """Length up to which a passage grows; a code or formula block may be longer."""
    overlap: int = 150
    """Maximum length of a passage's end that the next one repeats, in whole sentences."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.size:
            raise Invalid("the overlap of passages must be at least 0 and less than their size")


class Passage(NamedTuple):
    """A part of a text."""

    line: int
    """Number of its first line, from 1."""
    title: str
    """Headings above the passage, outermost first."""
    text: str


class _Piece(NamedTuple):
    """A text that is never cut, with the blanks after it."""

    line: int
    text: str


def passages(text: str, chunking: Chunking) -> Iterator[Passage]:
    """Cut a text into passages, in order; no passage spans a heading."""
    for title, numbered in _sections(text):
        pieces = list(_pieces(numbered, chunking.size))
        for chunk in _pack(pieces, chunking):
            body = "".join(piece.text for piece in chunk).strip()
            if body:
                yield Passage(chunk[0].line, title, body)


Numbered = list[tuple[int, str]]
"""Lines with their numbers."""


def _sections(text: str) -> Iterator[tuple[str, Numbered]]:
    """Yield (headings, lines) between two headings; a line inside a block is never a heading."""
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
        depth = len(heading[1])
        trail = [*trail[: depth - 1], *[""] * (depth - 1 - len(trail)), heading[2]]
        section = []
    yield " > ".join(filter(None, trail)), section


def _find_closing(line: str, closing: re.Pattern[str] | None) -> re.Pattern[str] | None:
    """Return what ends the block that is open after `line`; None if none is open."""
    if closing is not None:
        return None if closing.search(line) else closing
    for opening, end in BLOCKS:
        if opened := opening.match(line):
            return end or _make_end_pattern(opened[1])
    return None


def _make_end_pattern(opened: str) -> re.Pattern[str]:
    if opened[0] in "`~":
        return re.compile(rf"^\s*{re.escape(opened)}{opened[0]}*\s*$")
    return re.compile(rf"\\end\{{{re.escape(opened)}\}}")


def _pieces(numbered: Numbered, size: int) -> Iterator[_Piece]:
    """Yield blocks as they are, and the sentences of everything else, cut where a sentence is too long."""
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
            yield _keep_whole(block)
            prose, block = [], []
    yield from _sentences(prose, size)
    if block:
        yield _keep_whole(block)


def _keep_whole(block: Numbered) -> _Piece:
    return _Piece(block[0][0], "\n".join(line for _, line in block) + "\n")


def _sentences(prose: Numbered, size: int) -> Iterator[_Piece]:
    for number, line in _join(prose):
        start = 0
        for end in [*(found.end() for found in _SENTENCE.finditer(line)), len(line)]:
            at = number + line.count("\n", 0, start)
            yield from (_Piece(at, part) for part in _cut(line[start:end], size) if part)
            start = end


def _join(prose: Numbered) -> Iterator[tuple[int, str]]:
    if prose:
        yield prose[0][0], "\n".join(line for _, line in prose) + "\n"


def _cut(text: str, size: int) -> Iterator[str]:
    """Cut at the last blank before the limit, or at the limit."""
    while len(text) > size:
        at = text.rfind(" ", 1, size) + 1 or size
        yield text[:at]
        text = text[at:]
    yield text


def _pack(pieces: Sequence[_Piece], chunking: Chunking) -> Iterator[list[_Piece]]:
    chunk: list[_Piece] = []
    for piece in pieces:
        if chunk and _length(chunk) + len(piece.text.rstrip()) > chunking.size:
            yield chunk
            chunk = _tail(chunk, min(chunking.overlap, max(0, chunking.size - len(piece.text))))
        if chunk or not piece.text.isspace():
            chunk.append(piece)
    if chunk:
        yield chunk


def _tail(chunk: list[_Piece], overlap: int) -> list[_Piece]:
    """Return the last pieces that are together at most `overlap` long."""
    kept = len(chunk)
    while kept and _length(chunk[kept - 1 :]) <= overlap:
        kept -= 1
    return chunk[kept:]


def _length(chunk: Sequence[_Piece]) -> int:
    return sum(len(piece.text) for piece in chunk)
