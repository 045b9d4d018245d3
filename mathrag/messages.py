"""Text for messages: counts with nouns, suggestions for misspelt names, and removal of secrets."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

HIDDEN = "***"
PASSWORD = re.compile(r"(?P<shown>\w://[^\s/:@]*:)[^\s/@]+(?=@)")
BEARER = re.compile(r"(?P<shown>\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE)
KEY = re.compile(r"(?P<shown>\bmrg_[\da-f]{8}_)[\da-f]{64}\b")
"""Matches an API key of MathRAG-Gate; its first part is public."""


def redact(text: str) -> str:
    """Return `text` without its secrets: passwords in URLs, bearer tokens and API keys."""
    for secret in (PASSWORD, BEARER, KEY):
        text = secret.sub(rf"\g<shown>{HIDDEN}", text)
    return text


def format_count(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as "1 cell" or "2 cells".

    Args:
        count: the number.
        one: the text after a 1, such as "line was rejected".
        several: the text after any other number, such as "lines were rejected"; by default `one` plus "s".
    """
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, ignoring case; None if none is similar."""
    names = {each.casefold(): each for each in known}
    found = get_close_matches(name.casefold(), names, n=1)
    return names[found[0]] if found else None


def make_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return `otherwise`, after a suggestion such as `did you mean 'hybrid'?` if a known name is similar."""
    near = find_nearest(name, known)
    return f"did you mean {near!r}? Otherwise: {otherwise}" if near else otherwise
