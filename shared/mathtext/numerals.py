"""What a written number is worth: with commas, a point, a period under a bar, or in another base."""

from fractions import Fraction

MOST_DIGITS = 300
"""Characters of a number; a longer one is not read."""


def numeral(digits: str, base: str = "10") -> tuple[Fraction, int | None] | None:
    """The value, and the digits behind the decimal point (None: there is none); None for what is no number.

    `digits` as in LaTeX: `40{,}000`, `0.1\\overline{6}`; `base` as its subscript says.
    """
    written = digits.replace("{,}", "").replace(",\\!", "").replace(",", "")
    if len(written) > MOST_DIGITS:
        return None
    if base != "10":
        return _in_base(written, base)
    try:
        return _decimal(written)
    except ValueError:  # a lone point, or a digit of another script
        return None


def _decimal(written: str) -> tuple[Fraction, int | None]:
    if "\\overline" in written:
        return _repeating(written), None
    _, point, behind = written.partition(".")
    return Fraction(written), len(behind) if point else None


def _in_base(written: str, base: str) -> tuple[Fraction, None] | None:
    """A subscript that is no base makes the number something else."""
    try:
        return (Fraction(int(written, int(base))), None) if int(base) > 1 else None
    except ValueError:
        return None


def _repeating(written: str) -> Fraction:
    """0.12\\overline{34}: the digits behind the bar, over as many nines."""
    head, _, tail = written.partition("\\overline")
    period = tail.strip("{}")
    whole, _, behind = head.partition(".")
    value = Fraction(int(whole + behind or "0"), 10 ** len(behind))
    return value + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(behind))
