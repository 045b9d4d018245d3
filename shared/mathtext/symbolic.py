"""Expressions of our grammar as SymPy's, built node by node: no text is parsed, no name is evaluated.

SymPy computes powers of numbers as it builds them, so that what would be large is refused before.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from shared.mathtext.approximation import ANGLES, Unsuitable, refuse_ambiguous
from shared.mathtext.exact import NotRational, exact
from shared.mathtext.expressions import Apply, Expression, Number, Symbol, parts

if TYPE_CHECKING:
    from sympy import Expr

LARGEST_POWER = 24
"""Of something that is no rational number: a sum to this power still has few enough terms."""


def symbolic(expression: Expression, *, angle: bool = False) -> "Expr":
    """The expression for SymPy; `angle`: inside a trigonometric function, where degrees are not mere numbers.

    Raises:
        Unsuitable: see there.
        Undefined: a part of it has no value, such as a division by zero.
    """
    import sympy

    if isinstance(expression, Symbol):
        return sympy.Symbol(expression.name)
    value = None if angle and not isinstance(expression, Number) else _exact(expression)
    if value is not None:
        return _rational(value)
    assert isinstance(expression, Apply)  # noqa: S101  # a number has its value
    operation = _operations().get(expression.operation)
    if operation is None:
        raise Unsuitable(expression.operation)
    _refuse(expression)
    inside = angle or expression.operation in ANGLES
    operands = [symbolic(operand, angle=inside) for operand in expression.operands]
    built: Expr = operands[0] * _degree(angle=angle) if expression.operation == "deg" else operation(*operands)
    return built


def rational(expression: Expression) -> bool:
    """Whether exact arithmetic knows its value."""
    return _exact(expression) is not None


def _degree(*, angle: bool) -> "Expr":
    import sympy

    return sympy.pi / 180 if angle else sympy.Integer(1)


def _exact(expression: Expression) -> Fraction | None:
    try:
        return exact(expression)
    except NotRational:
        return None


def _rational(value: Fraction) -> "Expr":
    from sympy import Rational

    return Rational(value.numerator, value.denominator)


def _refuse(expression: Apply) -> None:
    """What would be large, or means two things."""
    refuse_ambiguous(expression)
    if expression.operation == "^":
        _refuse_large(expression.operands[1])


def _refuse_large(exponent: Expression) -> None:
    power = _exact(exponent)
    if power is not None and abs(power) > LARGEST_POWER:
        raise Unsuitable("a large power")
    if power is None and any(isinstance(part, Apply) and part.operation == "^" for part in parts(exponent)):
        raise Unsuitable("a tower of powers")


@cache
def _operations() -> Mapping[str, Callable[..., Any]]:
    import sympy

    return {
        "+": lambda left, right: left + right,
        "-": lambda left, right: left - right,
        "*": lambda left, right: left * right,
        "/": lambda left, right: left / right,
        "^": lambda base, exponent: base**exponent,
        "neg": lambda value: -value,
        "%": lambda value: value / 100,
        "deg": lambda value: value,
        "root": _root,
        "abs": sympy.Abs,
        "pi": lambda: sympy.pi,
        "floor": sympy.floor,
        "ceil": sympy.ceiling,
        "ln": sympy.log,
        "log": lambda base, value: sympy.log(value) / sympy.log(base),
        "arcsin": sympy.asin,
        "arccos": sympy.acos,
        "arctan": sympy.atan,
        **{name: getattr(sympy, name) for name in ANGLES},
    }


def _root(degree: "Expr", value: "Expr") -> "Expr":
    """Of a negative number an odd root is the real one, as schools have it."""
    from sympy import Integer, real_root, root

    odd = isinstance(degree, Integer) and degree % 2 == 1
    found: Expr = real_root(value, degree) if odd and value.is_negative else root(value, degree)
    return found
