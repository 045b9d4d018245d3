r"""Separate language from mathematics in a text; mathematics must not be changed.

Mathematics is what `shared.rag.sentences` takes for a formula (between dollars or brackets, environments, braces), a
command such as `\sqrt` with what follows it unspaced, and every unspaced piece that has a digit, an operator or an
underscore in it: `x^2+3`, `f(x)=2`, `a_n`.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from shared.rag.sentences import find_formulas

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PIECE = re.compile(rf"[^\s{CJK}，。？！；：、,;!?]+")
_MATHEMATICAL = re.compile(r"[\\\d=+*^_<>|×÷≤≥≠±√∑∫∞²³]|\w\(|(?<![A-Za-z])[-/]|[-/](?![A-Za-z])")


def find_mathematics(text: str) -> list[tuple[int, int]]:
    """Return where mathematics lies in `text`, as (start, end), in order and without overlap."""
    found: list[tuple[int, int]] = []
    for start, end in sorted([*find_formulas(text), *_pieces(text)]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def list_prose(text: str) -> Iterator[str]:
    """Return the parts of `text` between its formulas, in order."""
    at = 0
    for start, end in find_mathematics(text):
        yield text[at:start]
        at = end
    yield text[at:]


def change_prose(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to each part of the prose of `text`; mathematics stays exactly as it is."""
    return change_outside(text, find_mathematics(text), change)


def change_outside(text: str, spans: Sequence[tuple[int, int]], change: Callable[[str], str]) -> str:
    """Apply `change` to each part outside of `spans`, which are in order and do not overlap."""
    changed, at = [], 0
    for start, end in spans:
        changed += [change(text[at:start]), text[start:end]]
        at = end
    return "".join([*changed, change(text[at:])])


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _PIECE.finditer(text) if _MATHEMATICAL.search(match.group()))
