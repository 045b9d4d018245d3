"""Compares two prompts line by line, with limits that keep hostile texts from taking long."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

import msgspec

MOST_CHARACTERS, MOST_LINES = 20_000, 400
"""Limits of each prompt. Lines are compared pairwise at worst: 400 take 0.2 s, 10,000 took 26 s."""
AROUND = 3
"""Number of equal lines shown around a difference."""
Side = Literal["both", "left", "right", "gap"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of one prompt or of both; "gap" stands for equal lines that are left out."""

    side: Side
    text: str


class PromptDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two prompts, without their equal parts."""

    lines: list[DiffLine]
    """Lines of the difference; empty if the compared parts are equal."""
    cut: bool
    """Whether only the first 20,000 characters, or 400 lines, of each were compared."""


def compare_prompts(left: str, right: str) -> PromptDifference:
    """Return the lines that only one of two prompts has, with the lines around them."""
    one, other = _split_lines(left), _split_lines(right)
    cut = ["\n".join(one), "\n".join(other)] != [left, right]
    return PromptDifference(lines=list(_list_changes(one, other)), cut=cut)


def _split_lines(prompt: str) -> list[str]:
    return prompt[:MOST_CHARACTERS].split("\n")[:MOST_LINES]


def _list_changes(left: list[str], right: list[str]) -> Iterator[DiffLine]:
    end = 0
    for group in SequenceMatcher(None, left, right).get_grouped_opcodes(AROUND):
        if group[0][1] > end:
            yield DiffLine(side="gap", text=f"{group[0][1] - end} equal lines")
        for tag, from_left, to_left, from_right, to_right in group:
            if tag == "equal":
                yield from _mark_all("both", left[from_left:to_left])
            else:
                yield from _mark_all("left", left[from_left:to_left])
                yield from _mark_all("right", right[from_right:to_right])
        end = group[-1][2]
    if 0 < end < len(left):
        yield DiffLine(side="gap", text=f"{len(left) - end} equal lines")


def _mark_all(side: Side, lines: list[str]) -> Iterator[DiffLine]:
    return (DiffLine(side=side, text=line) for line in lines)
