"""Words of a question marked in a text; formulas stay whole, so that they can be typeset."""

import re
from collections.abc import Collection, Iterator
from itertools import groupby, pairwise

from markupsafe import Markup

from shared.pages.texts import visible

_FORMULA = re.compile(
    r"(\$\$[\s\S]+?\$\$|\\\[[\s\S]+?\\\]|\$[^$\n]+?\$|\\\([\s\S]+?\\\)|\\boxed\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
)
"""The delimiters of the script that typesets them."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"(\\[A-Za-z]+|[{_CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{_CJK}]+)")


def words(text: str) -> frozenset[str]:
    """What of `text` is looked for: its words and numbers, and every two neighbours of a run of Chinese."""
    return frozenset(term for found in _WORD.findall(text) for term in _terms(found))


def highlighted(text: str, terms: Collection[str]) -> Markup:
    """`text` as `texts.math` shows it, with the words of `terms` marked, and formulas that hold one."""
    parts = _FORMULA.split(text)
    return Markup("").join(_formula(part, terms) if n % 2 else _prose(part, terms) for n, part in enumerate(parts))


def _formula(part: str, terms: Collection[str]) -> Markup:
    typeset = Markup('<span class="math">%s</span>') % visible(part)
    return Markup("<mark>%s</mark>") % typeset if words(part) & frozenset(terms) else typeset


def _prose(part: str, terms: Collection[str]) -> Markup:
    pieces = (_pieces(piece, terms) if n % 2 else [(piece, False)] for n, piece in enumerate(_WORD.split(part)))
    return Markup("").join(
        Markup("<mark>%s</mark>") % visible(piece) if matches else visible(piece)
        for found in pieces
        for piece, matches in found
        if piece
    )


def _pieces(word: str, terms: Collection[str]) -> Iterator[tuple[str, bool]]:
    """A word, or what of a run of Chinese is in a pair of `terms`."""
    if not _RUN.fullmatch(word) or len(word) == 1:
        yield word, word.casefold() in terms
        return
    pairs = [one + other in terms for one, other in pairwise(word)]
    flags = [before or after for before, after in zip([False, *pairs], [*pairs, False], strict=True)]
    for matches, piece in groupby(zip(word, flags, strict=True), key=lambda each: each[1]):
        yield "".join(character for character, _ in piece), matches


def _terms(word: str) -> list[str]:
    if _RUN.fullmatch(word) and len(word) > 1:
        return [one + other for one, other in pairwise(word)]
    return [word.casefold()]
