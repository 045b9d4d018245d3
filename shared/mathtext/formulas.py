r"""Where mathematics stands in a text: between its delimiters, and in plain sentences around an equals sign."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from shared.mathtext.counting_words import SCALING, VALUE_CHANGING

LONGEST = 4000
"""Characters of one formula; a longer one is not read."""
_MARK = re.compile(
    r"\\\\|\\\$|\$\$?|\\[\[\]()]|\\(?P<side>begin|end)\{(?:align|gather|equation|multline|eqnarray)\*?\}"
)
_CLOSED_BY = {"$": "$", "$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_SENTENCE = re.compile(r"[\n;:!?。，；：！？、<>]+|[.,](?=\s|$)")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\x00-\xff×÷−π√≤≥≠≈]+")
_SCALE = re.compile(rf"\s*(?:{SCALING})\b")
"""Words behind a formula that change what its last number is worth."""


class Formula(NamedTuple):
    """A piece of mathematics in a text."""

    text: str
    start: int
    """Where it begins in the text."""
    tex: bool
    """Between delimiters; else plain."""
    cut: bool = False
    """A word stands before it that it may be a part of: its first side is not all of what is said."""
    goes_on: bool = False
    """The same, behind it."""


def formulas(text: str) -> Iterator[Formula]:
    """The formulas of a text, in order. Drawings (`[asy]`) are left out."""
    for start, end in _without_drawings(text):
        yield from _between(text, start, end)


def _without_drawings(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        drawing = text.find("[asy]", start)
        if drawing < 0:
            yield start, len(text)
            return
        yield start, drawing
        closed = text.find("[/asy]", drawing)
        start = len(text) if closed < 0 else closed + len("[/asy]")


def _between(text: str, start: int, end: int) -> Iterator[Formula]:
    """The formulas of one stretch of the text; a delimiter that is never closed is one of plain text."""
    opened: re.Match[str] | None = None
    plain = start
    for mark in _MARK.finditer(text, start, end):
        if opened is None and (mark[0] in _CLOSED_BY or mark["side"] == "begin"):
            yield from _plain(text, plain, mark.start())
            opened = mark
        elif opened is not None and _closes(opened, mark):
            scaled = bool(_SCALE.match(text, mark.end()))
            yield Formula(text[opened.end() : mark.start()], opened.end(), tex=True, goes_on=scaled)
            opened, plain = None, mark.end()
    yield from _plain(text, plain if opened is None else opened.end(), end)


def _closes(opened: re.Match[str], mark: re.Match[str]) -> bool:
    if opened["side"]:
        return mark["side"] == "end" and mark[0][len(r"\end") :] == opened[0][len(r"\begin") :]
    return _CLOSED_BY[opened[0]] == mark[0]


def _plain(text: str, start: int, end: int) -> Iterator[Formula]:
    """Stretches of a plain text without words, around an equals sign."""
    for first, last in _pieces(_SENTENCE, text, start, end):
        if text.find("=", first, last) < 0:
            continue
        words = [match.span() for match in _WORD.finditer(text, first, last)]
        before = (first, first)
        for word in [*words, (last, last)]:
            stretch = text[before[1] : word[0]]
            if "=" in stretch:
                yield _stretch(text, stretch, before, word)
            before = word


def _stretch(text: str, stretch: str, before: tuple[int, int], behind: tuple[int, int]) -> Formula:
    """A single number behind a word may belong to it: half of 12 = 6; so may a bracket: sqrt(16) = 4."""
    word = text[before[0] : before[1]].lower()
    alone = stretch.partition("=")[0].strip().isdecimal() or stretch[:1] in ("(", "[", "{", "^", "_")
    return Formula(
        stretch,
        before[1],
        tex=False,
        cut=word in VALUE_CHANGING or (bool(word) and alone),
        goes_on=text[behind[0] : behind[1]].lower() in VALUE_CHANGING,
    )


def _pieces(cut: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in cut.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end
