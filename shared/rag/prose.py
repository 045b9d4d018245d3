r"""What of a text is language, and what is mathematics that nobody may touch.

Mathematics is what `shared.rag.sentences` takes for a formula (between dollars or brackets, environments, braces), a
command such as `\sqrt` with what follows it unspaced, and every unspaced piece that has a digit, an operator or an
underscore in it: `x^2+3`, `f(x)=2`, `a_n`.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from shared.rag.sentences import formulas

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PIECE = re.compile(rf"[^\s{CJK}，。？！；：、,;!?]+")
_MATHEMATICAL = re.compile(r"[\\\d=+*^_<>|×÷≤≥≠±√∑∫∞²³]|\w\(|(?<![A-Za-z])[-/]|[-/](?![A-Za-z])")


def mathematics(text: str) -> list[tuple[int, int]]:
    """Where mathematics lies in `text`, as (start, end), in order and apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted([*formulas(text), *_pieces(text)]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def prose(text: str) -> Iterator[str]:
    """The parts of `text` between its formulas, in order."""
    at = 0
    for start, end in mathematics(text):
        yield text[at:start]
        at = end
    yield text[at:]


def in_prose(text: str, change: Callable[[str], str]) -> str:
    """`text` with `change` applied to each part of its prose; mathematics stays as it is, to the character."""
    return outside(text, mathematics(text), change)


def outside(text: str, spans: Sequence[tuple[int, int]], change: Callable[[str], str]) -> str:
    """`text` with `change` applied to each part outside `spans`, which are in order and apart."""
    changed, at = [], 0
    for start, end in spans:
        changed += [change(text[at:start]), text[start:end]]
        at = end
    return "".join([*changed, change(text[at:])])


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _PIECE.finditer(text) if _MATHEMATICAL.search(match.group()))
