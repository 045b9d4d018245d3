"""Values of expressions in complex doubles: to see quickly which equations cannot be identities."""

import cmath
import math
from collections.abc import Callable, Mapping

from shared.mathtext.expressions import Expression, Number, Symbol


def approximate(expression: Expression, values: Mapping[str, complex]) -> complex:
    """The value where the symbols have `values`; powers and roots are principal ones.

    Raises:
        ArithmeticError: it is too large, or undefined.
        ValueError: there is no such value.
    """
    if isinstance(expression, Number):
        return complex(expression.value)
    if isinstance(expression, Symbol):
        return values[expression.name]
    operation = _OPERATIONS.get(expression.operation)
    if operation is None:
        raise ValueError(expression.operation)
    return operation(*(approximate(operand, values) for operand in expression.operands))


def _log(*operands: complex) -> complex:
    if len(operands) == 1:
        raise ValueError("a logarithm without a base")
    return cmath.log(operands[1]) / cmath.log(operands[0])


def _factorial(value: complex) -> complex:
    if value.imag or not 0 <= value.real <= 170 or value.real % 1:
        raise ValueError("a factorial")
    return complex(math.factorial(int(value.real)))


_OPERATIONS: Mapping[str, Callable[..., complex]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "^": lambda base, exponent: base**exponent,
    "neg": lambda value: -value,
    "!": _factorial,
    "root": lambda degree, value: value ** (1 / degree),
    "abs": lambda value: complex(abs(value)),
    "pi": lambda: complex(math.pi),
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda value: 1 / cmath.tan(value),
    "sec": lambda value: 1 / cmath.cos(value),
    "csc": lambda value: 1 / cmath.sin(value),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "ln": cmath.log,
    "log": _log,
}
"""Degrees are not among them: what holds for an angle in degrees is not seen here."""
