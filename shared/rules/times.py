"""Times of facts: dates count days, whole numbers are steps as they are."""

import re
from datetime import date

from shared.samples import TimeUnit

ADVICE = "write a date (YYYY-MM-DD) or a whole number"
_STEP = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def parse(text: str) -> tuple[TimeUnit, int]:
    """The unit and number that `text` stands for.

    Raises:
        ValueError: it is neither a date that exists nor a whole number of at most 18 digits.
    """
    if _STEP.fullmatch(text):
        return "step", int(text)
    if _DATE.fullmatch(text):
        return "day", date.fromisoformat(text).toordinal()
    raise ValueError(f"{text[:50]!r} is neither")


def written(time: int, unit: TimeUnit) -> str:
    """`time` as text: the reverse of `parse`."""
    return date.fromordinal(time).isoformat() if unit == "day" else str(time)
