"""Mark the words of a question in a text; formulas stay whole, so that they can be typeset."""

import re
from collections.abc import Collection, Iterator
from itertools import groupby, pairwise

from markupsafe import Markup

from shared.pages.texts import escape_visible

_FORMULA = re.compile(
    r"(\$\$[\s\S]+?\$\$|\\\[[\s\S]+?\\\]|\$[^$\n]+?\$|\\\([\s\S]+?\\\)|\\boxed\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
)
"""The same delimiters as in the script that typesets formulas."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"(\\[A-Za-z]+|[{_CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{_CJK}]+)")


def extract_terms(text: str) -> frozenset[str]:
    """Return the words and numbers of `text` in lower case, and each pair of adjacent Chinese characters."""
    return frozenset(term for found in _WORD.findall(text) for term in _split_terms(found))


def highlight(text: str, terms: Collection[str]) -> Markup:
    """Show `text` as `texts.mark_math` does, with the words of `terms` and the formulas that contain one marked."""
    parts = _FORMULA.split(text)
    return Markup("").join(
        _mark_formula(part, terms) if n % 2 else _mark_prose(part, terms) for n, part in enumerate(parts)
    )


def _mark_formula(part: str, terms: Collection[str]) -> Markup:
    typeset = Markup('<span class="math">%s</span>') % escape_visible(part)
    return Markup("<mark>%s</mark>") % typeset if extract_terms(part) & frozenset(terms) else typeset


def _mark_prose(part: str, terms: Collection[str]) -> Markup:
    pieces = (_split_word(piece, terms) if n % 2 else [(piece, False)] for n, piece in enumerate(_WORD.split(part)))
    return Markup("").join(
        Markup("<mark>%s</mark>") % escape_visible(piece) if matches else escape_visible(piece)
        for found in pieces
        for piece, matches in found
        if piece
    )


def _split_word(word: str, terms: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a word and whether they match; of Chinese text, what is in a pair of `terms` matches."""
    if not _RUN.fullmatch(word) or len(word) == 1:
        yield word, word.casefold() in terms
        return
    pairs = [one + other in terms for one, other in pairwise(word)]
    flags = [before or after for before, after in zip([False, *pairs], [*pairs, False], strict=True)]
    for matches, piece in groupby(zip(word, flags, strict=True), key=lambda each: each[1]):
        yield "".join(character for character, _ in piece), matches


def _split_terms(word: str) -> list[str]:
    if _RUN.fullmatch(word) and len(word) > 1:
        return [one + other for one, other in pairwise(word)]
    return [word.casefold()]
