"""Check the names that users choose, because they appear in URLs, file names and tables."""

import re

from shared.errors import Invalid

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(PATTERN)


def is_usable(name: str) -> bool:
    """Tell whether this is a valid name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if it is valid.

    Raises:
        Invalid: it holds other characters than letters, digits, `.`, `_` and `-`, or more than 100 of them.
    """
    if not is_usable(name):
        raise Invalid(
            f"`name`: {name[:120]!r} is not a valid name",
            hint="use at most 100 letters, digits, `.`, `_` and `-`, starting with a letter or digit",
        )
    return name
