r"""Split English and Chinese texts with mathematics into sentences, and estimate their tokens.

A sentence ends with . ! or ? before a blank, with 。！ or ？, with an empty line, or before a new item of a list. It
does not end inside `$...$`, `\(...\)`, `\[...\]`, `\begin...\end`, `[asy]...[/asy]` or braces, in a decimal number,
nor after an abbreviation, an initial or the number of an item. Where it is not certain, two sentences stay one.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from shared.rag.tfidf import CJK

# Pandoc's rule for $: formulas touch their dollars, so that "costs $5, and then $6" holds none; "$ x $" is one, too.
_FORMULA = re.compile(
    r"\$\$(?:\\.|[^$\\])*\$\$|\$(?!\s)(?:\\.|[^$\\])*(?<!\s)\$(?!\d)|\$\s(?:\\.|[^$\\])*\s\$(?!\d)", re.DOTALL
)
_BRACKET = re.compile(r"\\begin\{[^{}]*\}|\\end\{[^{}]*\}|\[/?asy\]|\\[][()]|\\.|[{}]", re.DOTALL)
_OPENING = {"}": "{", r"\]": r"\[", r"\)": r"\(", "[/asy]": "[asy]"}
_END = re.compile(
    r"""
      (?<![.!?])[.!?]++[\"'”’)\]]*+(?:\s*(?:\\\]|\\\)|\$\$?))?(?:\s+|\Z)   # a stop, also a formula's, before a blank
    | [.!?]\s*(?:\\\]|\$\$)                                                # a displayed formula that ends with one
    | (?:[。！？]|……)[。！？…”’」』）】]*\s*
    | \n\s*\n\s*
    | \n\s*(?=(?:[-*•]|\(?\d{1,2}[.)]|Step\s\d+)\s)                        # the next item of a list
    """,
    re.VERBOSE,
)
_NO_END = re.compile(
    r"""(?:
      \b(?i:e\.g|i\.e|cf|vs|viz|resp|approx|figs?|eqs?|eqn|sec|ch|nos?|vol|pp|dr|mrs?|ms|prof|st|jr|al|thm)
    | \b[A-Z]                            # an initial
    | (?:\A|\n)[ \t]*\(?\d{1,2}          # the number of an item
    )\.\Z""",
    re.VERBOSE,
)
_LOOK_BACK = 16
_WORD = re.compile(rf"[^\W\d_{CJK}]+|\s+|.", re.DOTALL)
LETTERS = 4
"""Letters of a word that are counted as one token."""


def split_sentences(text: str) -> list[str]:
    """Return the sentences in order, each with the blanks after it: joined they are `text`."""
    spans = find_formulas(text)
    ends = [match.end() for match in _END.finditer(text) if _ends(text, match)]
    cuts = [0, *(end for end in ends if 0 < end < len(text) and not _is_inside(end, spans)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def find_formulas(text: str) -> list[tuple[int, int]]:
    """Return where formulas and unsplittable braces lie, as (start, end), in order and without overlap."""
    found = sorted([match.span() for match in _FORMULA.finditer(text)] + list(_brackets(text)))
    apart: list[tuple[int, int]] = []
    for start, end in found:
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def estimate_tokens(text: str) -> int:
    """Estimate a model's tokens, rather too many than too few.

    One for every 4 letters begun of a word, one for every digit, sign and CJK character, none for blanks. Two texts
    written behind each other never have more than both.
    """
    return sum(_tokens(match.group()) for match in _WORD.finditer(text))


def _tokens(word: str) -> int:
    return 0 if word.isspace() else -(-len(word) // LETTERS)


def _ends(text: str, match: re.Match[str]) -> bool:
    if not match.group().startswith("."):
        return True
    return not _NO_END.search(text[max(0, match.start() - _LOOK_BACK) : match.start() + 1])


def _is_inside(position: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Tell whether a span holds the position. Spans are sorted and do not overlap."""
    at = bisect_left(spans, position, key=itemgetter(0)) - 1
    return at >= 0 and position < spans[at][1]


def _brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield balanced pairs of each kind; a bracket without its partner is an ordinary character."""
    opened: defaultdict[str, list[int]] = defaultdict(list)
    for match in _BRACKET.finditer(text):
        mark = match.group()
        if mark in _OPENING.values() or mark.startswith(r"\begin"):
            opened[mark].append(match.start())
        elif starts := opened[_matching_opening(mark)]:
            yield starts.pop(), match.end()


def _matching_opening(mark: str) -> str:
    """Return the mark that `mark` closes."""
    return _OPENING.get(mark, mark.replace(r"\end", r"\begin"))
