"""Multiple choice: which letter an answer chooses."""

import re
import string
from collections.abc import Sequence

from shared.contracts.samples import Extraction
from shared.rag.statements import final
from shared.rag.wording import stand_in, words

LETTERS = string.ascii_uppercase
_ALONE = re.compile(r"\W*(?:(?:option|choice)\s+)?(?P<letter>[A-Za-z])\W*", re.IGNORECASE)
_LEADING = re.compile(r"\W*(?:(?:[Oo]ption|[Cc]hoice)\s+)?(?:\((?P<round>[A-Za-z])\)|(?P<plain>[A-Z])\s*[.:)\]])(?!\w)")
_BRACKETED = re.compile(r"\((?P<letter>[A-Z])\)")


def letter(text: str) -> str | None:
    """The letter that `text` states: alone ("b", "**B**"), in front ("B. Paris", "(B) Paris"), or the only "(B)" in it.

    None where it states none, or brackets name several.
    """
    if alone := _ALONE.fullmatch(text):
        return alone["letter"].upper()
    if leading := _LEADING.match(text):
        return (leading["round"] or leading["plain"]).upper()
    named = {match["letter"] for match in _BRACKETED.finditer(text)}
    return named.pop() if len(named) == 1 else None


def extract(text: str) -> tuple[str | None, Extraction]:
    """The letter of the final answer, or the final answer itself where it states none."""
    answer, extraction = final(text)
    return (answer and (letter(answer) or answer)), extraction


def chosen(answer: str, choices: Sequence[str]) -> str | None:
    """The letter that an answer chooses; an answer without one is looked up among the choices' texts.

    Without a letter it is the choice that reads the same, else the only one whose words stand in the answer.
    """
    stated = letter(final(answer)[0] or "")
    if stated is not None and (not choices or stated in LETTERS[: len(choices)]):
        return stated
    given = words(answer)
    texts = [words(choice) for choice in choices]
    if given in texts:
        return LETTERS[texts.index(given)]
    within = [place for place, text in enumerate(texts) if stand_in(text, given)]
    return LETTERS[within[0]] if len(within) == 1 else None
