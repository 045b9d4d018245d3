"""Suggest the known name that a misspelt one most likely means."""

from collections.abc import Iterable
from difflib import get_close_matches


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, ignoring case; None if none is similar."""
    names = {each.casefold(): each for each in known}
    found = get_close_matches(name.casefold(), names, n=1)
    return names[found[0]] if found else None


def make_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return `did you mean 'hybrid'?` if a known name is similar, followed in any case by `otherwise`."""
    near = find_nearest(name, known)
    return f"did you mean {near!r}? Otherwise: {otherwise}" if near else otherwise
