"""Pairs of answers that are hard to grade, with the expected verdict and its reason.

`python -m tests.unit.grading.pairs` writes the table of docs/reference/math-verify.md.
"""

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from shared.mathtext.values import library_verdict

FILE = Path(__file__).with_name("pairs.tsv")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "math-verify.md"
START, END = "<!-- differences -->\n", "<!-- end of differences -->\n"
WORDS = {True: "right", False: "wrong", None: "no verdict"}
MEANING = {"equal": (True, True), "different": (False, False), "right": (True,), "wrong": (False,)}
"""Expected verdicts with the second text as the gold answer, then with the first. A pair with different verdicts has
one row for each direction."""


class Pair(NamedTuple):
    """A row of the table."""

    kind: str
    answer: str
    gold: str
    expected: str
    """One of `MEANING`."""
    why: str


class Case(NamedTuple):
    """A pair in one direction."""

    kind: str
    answer: str
    gold: str
    right: bool
    why: str


def pairs() -> list[Pair]:
    """Read the whole table."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [Pair(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def cases() -> Iterator[Case]:
    """Yield every pair in every direction that has an expected verdict."""
    for pair in pairs():
        for right, (answer, gold) in zip(
            MEANING[pair.expected], ((pair.answer, pair.gold), (pair.gold, pair.answer)), strict=False
        ):
            yield Case(pair.kind, answer, gold, right, pair.why)


def differences() -> str:
    """Render the cases that Math-Verify alone grades differently as Markdown."""
    found = [case for case in cases() if library_verdict(case.answer, case.gold) is not case.right]
    parts = [f"{len(pairs())} pairs, {len(list(cases()))} cases, {len(found)} differences.\n"]
    for kind, group in groupby(found, key=lambda case: case.kind):
        parts += [f"\n## {kind.capitalize()}\n\n| answer | gold | Math-Verify | here | why |\n|---|---|---|---|---|\n"]
        parts += [_row(case) for case in group]
    return "".join(parts)


def _row(case: Case) -> str:
    library = WORDS[library_verdict(case.answer, case.gold)]
    return f"| {_code(case.answer)} | {_code(case.gold)} | {library} | {WORDS[case.right]} | {case.why} |\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def on_page() -> str:
    """Return the table on the page."""
    return PAGE.read_text("utf-8").partition(START)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    PAGE.write_text(f"{before}{START}{differences()}{END}{rest.partition(END)[2]}", "utf-8")
