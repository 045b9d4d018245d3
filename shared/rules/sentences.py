"""Facts as sentences: "Time 2014-09-20 Abdullah Abdullah consult Ashraf Ghani Ahmadzai." (Hu et al. 2024, RuleRAG)."""

import re

from shared.samples import Phrase

_SEPARATORS = re.compile(r"[_/.\s]+")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def shown(name: str) -> str:
    """The name of an entity with blanks for underscores."""
    return name.replace("_", " ")


def phrase(relation: str, declared: Phrase | None = None) -> str:
    """The words for a relation: those declared, else its name.

    Of a name, underscores, slashes, dots and the capitals inside a word part the words, and all are lower case:
    "Make_statement" is "make statement", "/people/person/nationality" is "people person nationality", "bornIn" is
    "born in".
    """
    if declared is not None:
        return declared.phrase
    words = _SEPARATORS.sub(" ", _WORD.sub(" ", relation)).strip().lower()
    return words or relation


def inverse_phrase(relation: str, declared: Phrase | None = None) -> str:
    """The words for a relation with its terms exchanged: those declared, else "inverse of" and its phrase."""
    if declared is not None and declared.inverse is not None:
        return declared.inverse
    return f"inverse of {phrase(relation, declared)}"


def sentence(subject: str, words: str, obj: str, time: str | None = None) -> str:
    """A fact in words; `words` is the phrase of its relation."""
    said = f"{shown(subject)} {words} {shown(obj)}."
    return said if time is None else f"Time {time} {said}"
