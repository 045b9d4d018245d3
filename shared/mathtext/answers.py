r"""Finding the answer in a generated text: the last `\boxed{}`."""

import re
from typing import NamedTuple

from shared.samples import Extraction

# Escapes are matched, and so skipped, before braces: \{ and \} are characters, not brackets, and \\ is a line break.
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(?P<open>\{)?|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s${}]{1,100}")
_TRAILING = ".,;:!?"


class _Box(NamedTuple):
    start: int
    inside: slice | None
    """Where its content lies; None: its brace never closes. Not the content itself: nested boxes would copy it."""

    def content(self, text: str) -> str:
        """What it holds, stripped; empty if it never closes."""
        return "" if self.inside is None else text[self.inside].strip()


def extract(text: str) -> tuple[str | None, Extraction]:
    r"""The content of the last `\boxed{}` or `\fbox{}` whose braces balance, stripped; of nested ones the inner.

    `\boxed 5` counts as well, up to the next blank or dollar sign, at most 100 characters. An empty box counts as none,
    and a box that never closes (a truncated reply) is passed over for an earlier one that does. Time is linear in the
    text.

    Returns:
        (answer, OK), or None with UNBALANCED if some box never closes, else with MISSING.
    """
    boxes = sorted(_boxes(text), key=lambda box: box.start, reverse=True)
    answer = next(filter(None, (box.content(text) for box in boxes)), None)
    if answer is not None:
        return answer, Extraction.OK
    unclosed = any(box.inside is None for box in boxes)
    return None, Extraction.UNBALANCED if unclosed else Extraction.MISSING


def _boxes(text: str) -> list[_Box]:
    """Every box of the text, in no particular order."""
    closed: list[_Box] = []
    opened: list[tuple[bool, int, int]] = []
    for mark in _MARK.finditer(text):
        found = mark.group()
        if found == "{" or mark.group("open"):
            opened.append((found != "{", mark.start(), mark.end()))
        elif found == "}":
            closed += _closing(opened, mark.start())
        elif _is_box(found):
            closed.append(_Box(mark.start(), _bare(text, mark.end())))
    return closed + [_Box(start, None) for is_box, start, _ in opened if is_box]


def _closing(opened: list[tuple[bool, int, int]], end: int) -> list[_Box]:
    """Pop the innermost open brace; the box that it closes, if it belongs to one."""
    if not opened:
        return []
    is_box, start, inside = opened.pop()
    return [_Box(start, slice(inside, end))] if is_box else []


def _is_box(found: str) -> bool:
    return found.startswith((r"\boxed", r"\fbox"))


def _bare(text: str, start: int) -> slice:
    match = _BARE.match(text, start)
    return slice(start, start + len(match.group().rstrip(_TRAILING))) if match else slice(start, start)
