"""Names that people choose for corpora, datasets and jobs: they stand in URLs, file names and tables."""

import re

from shared.errors import Invalid

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(PATTERN)


def usable(name: str) -> bool:
    """Whether anything can have this name."""
    return _NAME.fullmatch(name) is not None


def checked(name: str) -> str:
    """`name` itself.

    Raises:
        Invalid: it holds other characters than letters, digits, `.`, `_` and `-`, or more than 100 of them.
    """
    if not usable(name):
        raise Invalid(
            f"`name`: {name[:120]!r} is no usable name",
            hint="letters, digits, `.`, `_` and `-`; at most 100, starting with a letter or digit",
        )
    return name
