"""Markdown and plain text cut into passages: at headings, then at sentences; code and formulas stay whole."""

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
"""How a block that is not cut opens, and how it closes; None: as its opening says."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])\s*|\n+")


class Chunking(msgspec.Struct, frozen=True, kw_only=True):
    """How long passages are, in characters."""

    size: int = 1200
    """A passage grows up to it; a code or formula block may be longer."""
    overlap: int = 150
    """At most so much of a passage's end is repeated at the beginning of the next, in whole sentences."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.size:
            raise Invalid("the overlap of passages must be at least 0 and below their size")


class Passage(NamedTuple):
    """A part of a text."""

    line: int
    """Where it begins, from 1."""
    title: str
    """The headings above it, outermost first."""
    text: str


class _Piece(NamedTuple):
    """What is never cut, with the blanks after it."""

    line: int
    text: str


def passages(text: str, chunking: Chunking) -> Iterator[Passage]:
    """The passages of a text in order; none spans a heading."""
    for title, numbered in _sections(text):
        pieces = list(_pieces(numbered, chunking.size))
        for chunk in _packed(pieces, chunking):
            body = "".join(piece.text for piece in chunk).strip()
            if body:
                yield Passage(chunk[0].line, title, body)


Numbered = list[tuple[int, str]]
"""Lines with their numbers."""


def _sections(text: str) -> Iterator[tuple[str, Numbered]]:
    """(headings, lines) between two headings; what looks like one inside a block is none."""
    trail: list[str] = []
    section: Numbered = []
    closing: re.Pattern[str] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        heading = HEADING.match(line) if closing is None else None
        if heading is None:
            closing = _closing(line, closing)
            section.append((number, line))
            continue
        yield " > ".join(filter(None, trail)), section
        depth = len(heading[1])
        trail = [*trail[: depth - 1], *[""] * (depth - 1 - len(trail)), heading[2]]
        section = []
    yield " > ".join(filter(None, trail)), section


def _closing(line: str, closing: re.Pattern[str] | None) -> re.Pattern[str] | None:
    """What closes the block that is open after `line`, if one is."""
    if closing is not None:
        return None if closing.search(line) else closing
    for opening, end in BLOCKS:
        if opened := opening.match(line):
            return end or _own_end(opened[1])
    return None


def _own_end(opened: str) -> re.Pattern[str]:
    if opened[0] in "`~":
        return re.compile(rf"^\s*{re.escape(opened)}{opened[0]}*\s*$")
    return re.compile(rf"\\end\{{{re.escape(opened)}\}}")


def _pieces(numbered: Numbered, size: int) -> Iterator[_Piece]:
    """Blocks as they stand; sentences of everything else, cut where even they are too long."""
    prose: Numbered = []
    block: Numbered = []
    closing: re.Pattern[str] | None = None
    for number, line in numbered:
        before, closing = closing, _closing(line, closing)
        if before is None and closing is None:
            prose.append((number, line))
            continue
        block.append((number, line))
        if closing is None:
            yield from _sentences(prose, size)
            yield _whole(block)
            prose, block = [], []
    yield from _sentences(prose, size)
    if block:
        yield _whole(block)


def _whole(block: Numbered) -> _Piece:
    return _Piece(block[0][0], "\n".join(line for _, line in block) + "\n")


def _sentences(prose: Numbered, size: int) -> Iterator[_Piece]:
    for number, line in _joined(prose):
        start = 0
        for end in [*(found.end() for found in _SENTENCE.finditer(line)), len(line)]:
            at = number + line.count("\n", 0, start)
            yield from (_Piece(at, part) for part in _cut(line[start:end], size) if part)
            start = end


def _joined(prose: Numbered) -> Iterator[tuple[int, str]]:
    if prose:
        yield prose[0][0], "\n".join(line for _, line in prose) + "\n"


def _cut(text: str, size: int) -> Iterator[str]:
    """At the last blank before the limit, or at the limit."""
    while len(text) > size:
        at = text.rfind(" ", 1, size) + 1 or size
        yield text[:at]
        text = text[at:]
    yield text


def _packed(pieces: Sequence[_Piece], chunking: Chunking) -> Iterator[list[_Piece]]:
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
    """The last pieces that are not longer than `overlap` together."""
    kept = len(chunk)
    while kept and _length(chunk[kept - 1 :]) <= overlap:
        kept -= 1
    return chunk[kept:]


def _length(chunk: Sequence[_Piece]) -> int:
    return sum(len(piece.text) for piece in chunk)
