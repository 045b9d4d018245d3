"""Expressions of a small grammar: numbers, names, and operations on them."""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple


class Number(NamedTuple):
    """A number as it is written."""

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
    """The expression and all that it is made of."""
    left: list[Expression] = [expression]
    while left:
        here = left.pop()
        yield here
        if isinstance(here, Apply):
            left += here.operands
