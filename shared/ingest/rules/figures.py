"""A rule's figures as text."""

import re
from decimal import Decimal

from shared.ingest.lines import Defect

NOT_COMPUTED = "-1"
"""AMIE's word for a figure that it was not asked for."""
MOST = 10**18
"""Of a count."""
DECIMALS = 9
"""AMIE's; more are written where fewer would not give the same number back."""
_COUNT = re.compile(r"\d{1,18}(\.0)?")
_SHARE = re.compile(r"\d{1,9}(\.\d*)?([eE]-\d{1,3})?")


def count(column: str, text: str) -> int:
    """A whole number, 0 or more.

    Raises:
        Defect: it is none.
    """
    if _COUNT.fullmatch(text) is None:
        raise Defect(f"`{column}` is {text[:40]!r}, not a whole number")
    return int(text.removesuffix(".0"))


def share(column: str, text: str) -> float:
    """A number from 0 to 1.

    Raises:
        Defect: it is none.
    """
    if _SHARE.fullmatch(text) is None:
        comma = "; write decimal points, not commas" if "," in text else ""
        raise Defect(f"`{column}` is {text[:40]!r}, not a number{comma}")
    value = float(text)
    if value > 1:
        raise Defect(f"`{column}` is {text[:40]}; it must be from 0 to 1")
    return value


def decimal(value: float) -> str:
    """`value` without an exponent: nine decimals, or as many as give the same number back."""
    whole, _, decimals = format(Decimal(repr(value)), "f").partition(".")
    return f"{whole}.{decimals:0<{DECIMALS}}"
