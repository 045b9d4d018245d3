"""Read and write a rule's figures as text."""

import re
from decimal import Decimal

from shared.ingest.lines import Defect

NOT_COMPUTED = "-1"
"""AMIE's value for a figure that it did not compute."""
MOST = 10**18
"""Upper bound of a count."""
DECIMALS = 9
"""Number of decimals in AMIE's output; more are written if they are needed to restore the number."""
_COUNT = re.compile(r"\d{1,18}(\.0)?")
_SHARE = re.compile(r"\d{1,9}(\.\d*)?([eE]-\d{1,3})?")


def count(column: str, text: str) -> int:
    """Read a whole number, 0 or more.

    Raises:
        Defect: it is none.
    """
    if _COUNT.fullmatch(text) is None:
        raise Defect(f"`{column}` is {text[:40]!r}, not a whole number")
    return int(text.removesuffix(".0"))


def share(column: str, text: str) -> float:
    """Read a number from 0 to 1.

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
    """Format `value` without an exponent, with nine decimals or as many as restore the number."""
    whole, _, decimals = format(Decimal(repr(value)), "f").partition(".")
    return f"{whole}.{decimals:0<{DECIMALS}}"
