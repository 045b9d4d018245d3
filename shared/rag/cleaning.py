"""Clean a question: normalise characters and blanks, and remove greetings and thanks."""

import re
import unicodedata

from shared.rag.prose import change_outside
from shared.rag.sentences import find_formulas

_PLAIN = frozenset({"<wide>", "<narrow>", "<noBreak>", "<compat>"})
"""Compatibility forms that mean the same as their letter. Others do not: x² is not x2, ½ not 1⁄2, ℝ not R."""
_BLANKS = re.compile(r"\s+")
_POLITE = (
    r"hi|hello|hey|dear\s+\w+|please|kindly|excuse\s+me|thanks(?:\s+a\s+lot|\s+in\s+advance)?|thank\s+you(?:\s+very\s+much)?"
    r"|(?:can|could|would|will)\s+you(?:\s+(?:please|kindly))?(?:\s+(?:tell\s+me|help\s+me(?:\s+to)?))?"
    r"|(?:i\s+(?:want|would\s+like|need)|i'd\s+like)\s+to\s+know|(?:please\s+)?(?:tell|help)\s+me(?:\s+to)?|i\s+wonder"
)
_POLITE_ZH = (
    r"你好|您好|大家好|老师好|请问(?:一下)?|麻烦(?:你|您)?|劳驾|帮(?:我|忙)(?:一下)?|请(?!求|假|客|教)(?:你|您)?"
    r"|我想(?:要)?(?:知道|问)(?:一下)?|(?:能不能|能否|可以|可否)(?:请你|请您)?(?:告诉我|帮我)|谢谢(?:你|您|大家)?|多谢|感谢"
)
_FILLER = rf"(?:(?:{_POLITE})(?![A-Za-z'])|{_POLITE_ZH})"
_MARKS = " \t\n,.!?;:，。！？；：、~～"
_PAUSES = " \t\n,;:，；：、~～"
_FIRST = re.compile(_FILLER, re.IGNORECASE)
_LAST = re.compile(rf"(?<![A-Za-z]){_FILLER}\Z", re.IGNORECASE)
_LONGEST = 80
"""Length in characters of the longest polite phrase: only so much of a question's end is searched."""


def clean(question: str) -> str:
    """Return the question with plain characters, single blanks, and without polite phrases at its ends.

    Formulas are not changed, and neither is a question that consists only of polite phrases.
    """
    text = change_outside(question, find_formulas(question), normalise_characters).strip()
    stripped_text = _strip_thanks(_strip_greeting(text))
    return stripped_text if any(character.isalnum() for character in stripped_text) else text


def _strip_greeting(text: str) -> str:
    while found := _FIRST.match(text.lstrip(_MARKS)):
        text = text.lstrip(_MARKS)[found.end() :].lstrip(_PAUSES)
    return text


def _strip_thanks(text: str) -> str:
    while found := _LAST.search(bare := text.rstrip(_MARKS), max(0, len(bare) - _LONGEST)):
        text = bare[: found.start()].rstrip(_PAUSES)
    return text


def normalise_characters(text: str) -> str:
    """Apply NFKC to forms that do not change the meaning, and replace every run of blanks by one blank."""
    folded = "".join(_fold_character(character) for character in unicodedata.normalize("NFC", text))
    return _BLANKS.sub(" ", folded)


def _fold_character(character: str) -> str:
    form = unicodedata.decomposition(character).partition(" ")[0]
    return unicodedata.normalize("NFKC", character) if form in _PLAIN else character
