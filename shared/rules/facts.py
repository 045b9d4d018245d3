"""Facts of knowledge graphs as text: their times, and sentences about them."""

import re
from datetime import date

from shared.samples import Phrase, TimeUnit

# Times of facts: dates count days, whole numbers are used as steps.

ADVICE = "write a date (YYYY-MM-DD) or a whole number"
_STEP = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def parse(text: str) -> tuple[TimeUnit, int]:
    """Return the unit and number that `text` stands for.

    Raises:
        ValueError: it is neither a date that exists nor a whole number of at most 18 digits.
    """
    if _STEP.fullmatch(text):
        return "step", int(text)
    if _DATE.fullmatch(text):
        return "day", date.fromisoformat(text).toordinal()
    raise ValueError(f"{text[:50]!r} is neither")


def format_time(time: int, unit: TimeUnit) -> str:
    """Return `time` as text: the reverse of `parse`."""
    return date.fromordinal(time).isoformat() if unit == "day" else str(time)


# Facts as sentences: "Time 2014-09-20 Abdullah Abdullah consult Ashraf Ghani Ahmadzai." (Hu et al. 2024, RuleRAG).

_SEPARATORS = re.compile(r"[_/.\s]+")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def format_name(name: str) -> str:
    """Return the name of an entity with blanks for underscores."""
    return name.replace("_", " ")


def phrase(relation: str, declared: Phrase | None = None) -> str:
    """Return the words for a relation: those declared, else its name.

    Of a name, underscores, slashes, dots and the capitals inside a word part the words, and all are lower case:
    "Make_statement" is "make statement", "/people/person/nationality" is "people person nationality", "bornIn" is
    "born in".
    """
    if declared is not None:
        return declared.phrase
    words = _SEPARATORS.sub(" ", _WORD.sub(" ", relation)).strip().lower()
    return words or relation


def inverse_phrase(relation: str, declared: Phrase | None = None) -> str:
    """Return the words for a relation with its terms exchanged: those declared, else "inverse of" and its phrase."""
    if declared is not None and declared.inverse is not None:
        return declared.inverse
    return f"inverse of {phrase(relation, declared)}"


def sentence(subject: str, words: str, obj: str, time: str | None = None) -> str:
    """Return a fact in words; `words` is the phrase of its relation."""
    said = f"{format_name(subject)} {words} {format_name(obj)}."
    return said if time is None else f"Time {time} {said}"
