"""Find the letter that an answer to a multiple-choice question chooses."""

import re
import string
from collections.abc import Sequence

from shared.contracts.samples import Extraction
from shared.rag.statements import extract_final
from shared.rag.wording import contains_words, normalise_words

LETTERS = string.ascii_uppercase
_ALONE = re.compile(r"\W*(?:(?:option|choice)\s+)?(?P<letter>[A-Za-z])\W*", re.IGNORECASE)
_LEADING = re.compile(r"\W*(?:(?:[Oo]ption|[Cc]hoice)\s+)?(?:\((?P<round>[A-Za-z])\)|(?P<plain>[A-Z])\s*[.:)\]])(?!\w)")
_BRACKETED = re.compile(r"\((?P<letter>[A-Z])\)")


def read_letter(text: str) -> str | None:
    """Return the letter that `text` states: alone ("b", "**B**"), in front ("B. Paris"), or the only "(B)" in it.

    None where it states none, or brackets name several.
    """
    if alone := _ALONE.fullmatch(text):
        return alone["letter"].upper()
    if leading := _LEADING.match(text):
        return (leading["round"] or leading["plain"]).upper()
    named = {match["letter"] for match in _BRACKETED.finditer(text)}
    return named.pop() if len(named) == 1 else None


def extract(text: str) -> tuple[str | None, Extraction]:
    """Return the letter of the final answer, or the final answer itself if it states no letter."""
    answer, extraction = extract_final(text)
    return (answer and (read_letter(answer) or answer)), extraction


def choose_letter(answer: str, choices: Sequence[str]) -> str | None:
    """Return the letter that an answer chooses; an answer without one is compared with the texts of the choices.

    Without a letter it is the choice that reads the same, else the only one whose words stand in the answer.
    """
    stated = read_letter(extract_final(answer)[0] or "")
    if stated is not None and (not choices or stated in LETTERS[: len(choices)]):
        return stated
    given = normalise_words(answer)
    texts = [normalise_words(choice) for choice in choices]
    if given in texts:
        return LETTERS[texts.index(given)]
    within = [place for place, text in enumerate(texts) if contains_words(text, given)]
    return LETTERS[within[0]] if len(within) == 1 else None
