"""What somebody probably meant who wrote a name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, whatever its case; None where none is like it."""
    names = {each.casefold(): each for each in known}
    found = get_close_matches(name.casefold(), names, n=1)
    return names[found[0]] if found else None


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean 'hybrid'?` where a known name is like `name`, and in any case `otherwise`."""
    near = nearest(name, known)
    return f"did you mean {near!r}? Otherwise: {otherwise}" if near else otherwise
