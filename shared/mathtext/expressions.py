"""Expressions of a small grammar: numbers, names, and operations on them; and their exact values."""

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple


class Number(NamedTuple):
    """A number as written."""

    value: Fraction
    places: int | None = None
    """Digits behind the decimal point; None: there is none."""


class Symbol(NamedTuple):
    """A name that stands for something; `unit` where it follows a quantity."""

    name: str
    unit: bool = False


class Apply(NamedTuple):
    """An operation on its operands: + - * / ^ neg ! % deg pi abs floor ceil root choose, or a function's name."""

    operation: str
    operands: tuple["Expression", ...] = ()


Expression = Number | Symbol | Apply


def parts(expression: Expression) -> Iterator[Expression]:
    """Return the expression and all that it is made of."""
    left: list[Expression] = [expression]
    while left:
        here = left.pop()
        yield here
        if isinstance(here, Apply):
            left += here.operands


# The exact value of an expression that is a rational number, in bounded time and memory.

MOST_BITS = 20_000
"""Maximum size of a numerator or denominator: 6,000 digits. Larger numbers have no exact value here."""
LARGEST_FACTORIAL = 4000


class NotRational(ArithmeticError):
    """It has no exact value here: a name without a value, an irrational number, or one that is too large."""


class Undefined(ArithmeticError):
    """It has no value at all, such as a division by zero."""


def exact(expression: Expression, values: Mapping[str, Fraction] = {}) -> Fraction:
    """Return the value of `expression`, where `values` are those of its symbols.

    Raises:
        NotRational: it has none that is rational and of at most `MOST_BITS` bits.
        Undefined: a part of it has no value.
    """
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Symbol):
        if expression.name not in values:
            raise NotRational(expression.name)
        return values[expression.name]
    operation = _OPERATIONS.get(expression.operation)
    if operation is None:
        raise NotRational(expression.operation)
    value = operation(*(exact(operand, values) for operand in expression.operands))
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise NotRational("too large")
    return value


def exact_or_none(expression: Expression) -> Fraction | None:
    """Return the value of `expression`; None if it has none that `exact` can give.

    Raises:
        Undefined: a part of it has no value.
    """
    try:
        return exact(expression)
    except NotRational:
        return None


def _divide(above: Fraction, below: Fraction) -> Fraction:
    if below == 0:
        raise Undefined("a division by zero")
    return above / below


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _power(_root(Fraction(exponent.denominator), base), Fraction(exponent.numerator))
    if base in (0, 1, -1):
        if base == 0 and exponent.numerator <= 0:
            raise Undefined("a power of zero")
        return base if base == 0 or exponent.numerator % 2 else base * base
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent.numerator) * size > MOST_BITS:
        raise NotRational("too large")
    return base**exponent.numerator


def _root(degree: Fraction, value: Fraction) -> Fraction:
    if degree.denominator != 1 or not 1 <= degree <= MOST_BITS:
        raise NotRational("a root")
    if value < 0 and degree % 2 == 0:
        raise NotRational("a root of a negative number")
    sign = -1 if value < 0 else 1
    return Fraction(
        sign * _whole_root(abs(value.numerator), degree.numerator), _whole_root(value.denominator, degree.numerator)
    )


def _whole_root(value: int, degree: int) -> int:
    """Return the root, if it is whole."""
    if degree == 2:
        found = math.isqrt(value)
    else:
        # The largest whole number whose power does not exceed `value`, by bisection.
        found, high = 0, 1 << (value.bit_length() // degree + 1)
        while high - found > 1:
            middle = (found + high) // 2
            found, high = (middle, high) if middle**degree <= value else (found, middle)
    if found**degree != value:
        raise NotRational("a root")
    return found


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise Undefined("a factorial")
    if value > LARGEST_FACTORIAL:
        raise NotRational("too large")
    return Fraction(math.factorial(value.numerator))


def _choose(n: Fraction, k: Fraction) -> Fraction:
    if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
        raise NotRational("a binomial coefficient")
    if n > LARGEST_FACTORIAL:
        raise NotRational("too large")
    return Fraction(math.comb(n.numerator, k.numerator))


def _make_whole_function(function: Callable[..., int]) -> Callable[..., Fraction]:
    def operation(*values: Fraction) -> Fraction:
        if any(value.denominator != 1 for value in values):
            raise NotRational(function.__name__)
        return Fraction(function(*(value.numerator for value in values)))

    return operation


_OPERATIONS: Mapping[str, Callable[..., Fraction]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "^": _power,
    "neg": lambda value: -value,
    "%": lambda value: value / 100,
    "!": _factorial,
    "deg": lambda value: value,
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "root": _root,
    "choose": _choose,
    "gcd": _make_whole_function(math.gcd),
    "lcm": _make_whole_function(math.lcm),
    "max": max,
    "min": min,
}
"""Functions without a rational value are not among them."""
