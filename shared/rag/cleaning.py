"""A question without what does not belong to it: odd characters and blanks, greetings and thanks."""

import re
import unicodedata

from shared.rag.prose import outside
from shared.rag.sentences import formulas

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
"""Characters of the longest polite phrase; the end of a question is looked at no further."""


def clean(question: str) -> str:
    """The question with plain characters, single blanks, and without polite phrases before and after it.

    Formulas stay as they are. A question of nothing but polite phrases stays, too.
    """
    text = outside(question, formulas(question), plain).strip()
    asked = _without_thanks(_without_greeting(text))
    return asked if any(character.isalnum() for character in asked) else text


def _without_greeting(text: str) -> str:
    while found := _FIRST.match(text.lstrip(_MARKS)):
        text = text.lstrip(_MARKS)[found.end() :].lstrip(_PAUSES)
    return text


def _without_thanks(text: str) -> str:
    while found := _LAST.search(bare := text.rstrip(_MARKS), max(0, len(bare) - _LONGEST)):
        text = bare[: found.start()].rstrip(_PAUSES)
    return text


def plain(text: str) -> str:
    """NFKC for the forms that change no meaning, and every run of blanks as one."""
    folded = "".join(_folded(character) for character in unicodedata.normalize("NFC", text))
    return _BLANKS.sub(" ", folded)


def _folded(character: str) -> str:
    form = unicodedata.decomposition(character).partition(" ")[0]
    return unicodedata.normalize("NFKC", character) if form in _PLAIN else character
