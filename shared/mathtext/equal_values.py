r"""Whether two texts are the same value: by exact arithmetic, to sixty digits, or by Math-Verify's algebra.

What is a number is decided here, without rounding: 0.333333 is no third. Math-Verify, which rounds to six digits, is
asked about what has names in it, and about notation that the project's own grammar does not hold.
"""

import re
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

from shared.mathtext.exact import exact
from shared.mathtext.expressions import Expression, parts
from shared.mathtext.expressions import Symbol as Name
from shared.mathtext.notation import tokens
from shared.mathtext.reading import Unread, readings
from shared.mathtext.symbolic import Unsuitable, symbolic

if TYPE_CHECKING:
    from sympy import Expr

DIGITS = 60
"""Of irrational numbers that are compared."""
SAME = 1e-45
"""Numbers of 60 digits that differ by less, relatively, are equal: what people write is not that close otherwise."""
PLACES = 6
"""Digits behind the point from which on a decimal gold answer stands for the exact value that rounds to it."""
_DECIMAL = re.compile(r"(?<![\w.])(\d{1,100})\.(\d{1,100})(?![\w.])")
_ROUNDED = re.compile(rf"-?\d*\.(\d{{{PLACES},100}})")
_CANNOT = (Unread, Unsuitable, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, AttributeError)
"""What reading and computing raise where there is no value."""
_NO_LIMIT: dict[str, Any] = {"parsing_timeout": None}
"""None is what the library documents for "no limit", though its annotation says int."""


def equal_values(answer: str, gold: str) -> bool | None:
    """Whether both texts are the same value; None if nobody can read `gold`."""
    if answer == gold:
        return True
    if len(answer) == len(gold) == 1 and (answer + gold).isalpha():
        return False
    numbers = _equal_numbers(answer, gold)
    return library_verdict(_without_decimals(answer), _without_decimals(gold)) if numbers is None else numbers


def library_verdict(answer: str, gold: str) -> bool | None:
    """Math-Verify's verdict: whether `answer` equals `gold`; None if it cannot read the gold answer or fails."""
    from math_verify import parse, verify

    try:
        expected, given = (parse(rf"\boxed{{{text}}}", **_NO_LIMIT) for text in (gold, answer))
        # Not symmetric: the gold answer comes first.
        return bool(verify(expected, given, timeout_seconds=None)) if expected else None
    except Exception:  # noqa: BLE001  # whatever a parser of arbitrary text raises, it is no verdict
        return None


def expressions(text: str) -> list[Expression]:
    """All that the text may mean in the project's own grammar; none if it is not of that grammar."""
    try:
        return readings(tokens(text))
    except _CANNOT:
        return []


def _equal_numbers(answer: str, gold: str) -> bool | None:
    """The verdict on two numbers; None where one of them is none that can be computed here."""
    verdicts = [_compared(*pair, gold) for pair in product(expressions(answer), expressions(gold))]
    if True in verdicts:
        return True
    return False if verdicts and None not in verdicts else None


def _compared(answer: Expression, gold: Expression, written: str) -> bool | None:
    try:
        one, other = _number(answer), _number(gold)
        if one is None or other is None:
            return None
        return _equal(one, other) or _rounds_to(one, written)
    except _CANNOT:
        return None


def _number(expression: Expression) -> "Fraction | Expr | None":
    """Exactly, if it is rational; None: it has names in it."""
    try:
        return exact(expression)
    except ArithmeticError:
        names = {part.name for part in parts(expression) if isinstance(part, Name)}
        return _constant(symbolic(expression, imaginary=True)) if names <= {"i", "e"} else None


def _constant(number: "Expr") -> "Expr":
    """The letter e is Euler's number."""
    from sympy import E, Symbol

    found: Expr = number.subs(Symbol("e"), E)
    return found


def _equal(one: "Fraction | Expr", other: "Fraction | Expr") -> bool:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    left, right = _digits(one), _digits(other)
    return bool(abs(left - right) <= SAME * max(1, abs(left), abs(right)))


def _digits(number: "Fraction | Expr") -> Any:
    """Its value to 60 digits, as a number of SymPy that can be added and compared.

    Raises:
        TypeError: it has none.
    """
    from sympy import Rational

    found = (Rational(number.numerator, number.denominator) if isinstance(number, Fraction) else number).evalf(DIGITS)
    complex(found)
    return found


def _rounds_to(number: "Fraction | Expr", gold: str) -> bool:
    """Whether `gold` is a decimal of at least six places, and what `number` is when rounded to as many."""
    rounded = _ROUNDED.fullmatch(gold)
    if rounded is None:
        return False
    difference = abs(_digits(number) - _digits(Fraction(gold)))
    return bool(difference <= _digits(Fraction(1, 2 * 10 ** len(rounded[1]))))


def _without_decimals(text: str) -> str:
    """Decimals as fractions, which Math-Verify does not round."""
    return _DECIMAL.sub(lambda match: rf"\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}", text)
