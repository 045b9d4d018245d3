"""Values of expressions in floating-point numbers: in doubles, to see quickly which equations cannot be identities, and
with as many digits as it takes to tell whether two constants are the same number.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from shared.mathtext.expressions import Apply, Expression, Number, Symbol, exact_or_none, parts

ANGLES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
DIGITS = 60
"""Of numbers that are compared, besides those that a number of many digits asks for."""
MOST_DIGITS = 20_000
MORE_DIGITS = 30
"""Number of digits to add to a computation: a value that is zero then comes closer to zero, and another one does
not."""
LARGEST_EXPONENT = 10**8
"""Binary digits in front of, or behind, the point of a power."""
LARGEST_ANGLE = 10_000
"""Binary digits of the argument of a trigonometric function."""
LARGEST_FACTORIAL = 20_000


class Unsuitable(ValueError):
    """The value is ambiguous, too large, or cannot be computed."""


class Undecided(ArithmeticError):
    """Two numbers agree in all computed digits, so only more digits could tell whether they are equal."""


def approximate(expression: Expression, values: Mapping[str, complex]) -> complex:
    """Return the value in complex doubles where the symbols have `values`.

    Raises:
        ArithmeticError: it is too large, or undefined.
        ValueError: the value cannot be computed; degrees have none.
    """
    import mpmath  # type: ignore[import-untyped]  # it comes with SymPy

    if "deg" in {part.operation for part in parts(expression) if isinstance(part, Apply)}:
        raise Unsuitable("degrees")
    return complex(_Calculator(mpmath.fp, values).value(expression))


def constant(expression: Expression, names: Mapping[str, str] = {}, digits: int = DIGITS) -> Any:
    """Return the value of a constant as an mpmath number with this many digits. `names` maps the letters "i" and "e" to
    mathematical constants of mpmath, where the text uses them as such.

    Raises:
        ArithmeticError: it is undefined.
        ValueError: it has names in it, is too large, or cannot be computed.
    """
    from mpmath import mp

    for part in parts(expression):
        refuse_ambiguous(part)
    with mp.workdps(digits):
        return _Calculator(mp, {name: +getattr(mp, known) for name, known in names.items()}).value(expression)


def same_constant(one: Expression, other: Expression, names: Mapping[str, str] = {}) -> bool:
    """Return whether both are the same number: the difference of two that are falls to zero as digits are added.

    So many digits are computed that numbers made of those that are written can only agree in them if they are equal:
    1 - 1/2024! and 1 - 1/2025! agree in 5,000.

    Raises:
        Undecided: they agree in `MOST_DIGITS`, which are too few.
        ArithmeticError: one of them is undefined.
        ValueError: see `constant`.
    """
    needed = DIGITS + 2 * math.ceil(_size(one, names) + _size(other, names))
    for digits in (DIGITS, min(needed, MOST_DIGITS)):
        coarse, fine = (
            abs(constant(one, names, each) - constant(other, names, each)) for each in (digits, digits + MORE_DIGITS)
        )
        if fine > 2 * coarse > 0:
            raise Unsuitable("it grows with the digits: a pole")
        if fine > coarse * 1e-15 and coarse > 0:
            return False
    if needed > MOST_DIGITS:
        raise Undecided(f"{needed} digits are needed")
    return True


def refuse_ambiguous(expression: Expression) -> None:
    """sin 30 is meant in degrees as often as not, and log is of any base.

    Raises:
        Unsuitable: see there.
    """
    if not isinstance(expression, Apply):
        return
    if expression.operation in ANGLES and not any(
        isinstance(part, Symbol) or part.operation in ("deg", "pi")
        for part in parts(expression.operands[0])
        if not isinstance(part, Number)
    ):
        raise Unsuitable("an angle without a unit")
    if expression.operation == "log" and len(expression.operands) == 1:
        raise Unsuitable("a logarithm without a base")


def _size(expression: Expression, names: Mapping[str, str]) -> float:
    """Decimal digits of the numbers that it is made of; those of a power are its base's, times the exponent."""
    if isinstance(expression, Symbol):
        return 0
    if isinstance(expression, Number):
        return (expression.value.numerator.bit_length() + expression.value.denominator.bit_length()) * 0.302
    sizes = [_size(operand, names) for operand in expression.operands]
    if expression.operation not in ("^", "!", "choose"):
        return sum(sizes)
    argument = abs(complex(constant(expression.operands[-1 if expression.operation == "^" else 0], names, 15)))
    if argument > LARGEST_EXPONENT:
        raise Unsuitable("too large")
    each = sizes[0] + 1 if expression.operation == "^" else math.log10(argument + 1)
    return sum(sizes) + each * argument


class _Calculator:
    """Computes in the numbers of a `context` of mpmath: doubles, or those of its working precision."""

    def __init__(self, context: Any, values: Mapping[str, Any]) -> None:
        self._context = context
        self._values = values

    def value(self, expression: Expression, *, angle: bool = False) -> Any:
        """`angle`: the node is inside a trigonometric function, where degrees count; elsewhere they are mere
        numbers."""
        if isinstance(expression, Symbol):
            if expression.name not in self._values:
                raise Unsuitable(expression.name)
            return self._values[expression.name]
        rational = None if angle and not isinstance(expression, Number) else exact_or_none(expression)
        if rational is not None:
            number = self._context.mpf
            return float(rational) if number is float else number(rational.numerator) / number(rational.denominator)
        assert isinstance(expression, Apply)  # noqa: S101  # a number has its value
        operation = _OPERATIONS.get(expression.operation)
        if operation is None:
            raise Unsuitable(expression.operation)
        inside = angle or expression.operation in ANGLES
        operands = [self.value(operand, angle=inside) for operand in expression.operands]
        if expression.operation == "deg":
            return operands[0] * self._context.pi / 180 if angle else operands[0]
        found = operation(self._context, *operands)
        if not abs(found) < math.inf:
            raise ZeroDivisionError(expression.operation)
        return found


def _power(context: Any, base: Any, exponent: Any) -> Any:
    if base == 0 and exponent == 0:
        raise ZeroDivisionError("a power of zero")
    if base != 0 and abs(exponent) * max(1, abs(context.mag(base))) > LARGEST_EXPONENT:
        raise Unsuitable("too large")
    return base**exponent


def _root(context: Any, degree: Any, value: Any) -> Any:
    """Return the root; for a negative number and an odd degree the real one, as taught at school."""
    if context.im(value) == 0 and context.re(value) < 0 and context.isint(degree) and degree % 2 == 1:
        return -((-context.re(value)) ** (1 / degree))
    return _power(context, value, 1 / degree)


def _log(context: Any, *operands: Any) -> Any:
    if len(operands) == 1:
        raise Unsuitable("a logarithm without a base")
    return context.log(operands[1]) / context.log(operands[0])


def _trigonometric(name: str) -> Callable[..., Any]:
    def operation(context: Any, value: Any) -> Any:
        if value != 0 and context.mag(value) > LARGEST_ANGLE:
            raise Unsuitable("a large angle")
        return getattr(context, name)(value)

    return operation


def _whole(context: Any, value: Any) -> int:
    """Return the whole number that the value is up to rounding."""
    nearest = int(context.nint(context.re(value)))
    if abs(value - nearest) > context.mpf(10) ** (-context.dps // 2):
        raise Unsuitable("not a whole number")
    return nearest


def _factorial(context: Any, value: Any) -> Any:
    whole = _whole(context, value)
    if not 0 <= whole <= LARGEST_FACTORIAL:
        raise Unsuitable("a factorial")
    return context.mpf(math.factorial(whole))


def _choose(context: Any, n: Any, k: Any) -> Any:
    above, below = _whole(context, n), _whole(context, k)
    if not (0 <= above <= LARGEST_FACTORIAL and below >= 0):
        raise Unsuitable("a binomial coefficient")
    return context.mpf(math.comb(above, below))


def _make_rounding(round_: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operation(context: Any, value: Any) -> Any:
        if context.im(value) != 0 or (value != 0 and context.mag(value) > context.prec // 2):
            raise Unsuitable("too large to round")
        try:
            return context.mpf(_whole(context, value))
        except Unsuitable:
            return round_(context, context.re(value))

    return operation


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "+": lambda _, left, right: left + right,
    "-": lambda _, left, right: left - right,
    "*": lambda _, left, right: left * right,
    "/": lambda _, left, right: left / right,
    "^": _power,
    "%": lambda _, value: value / 100,
    "neg": lambda _, value: -value,
    "deg": lambda _, value: value,
    "!": _factorial,
    "choose": _choose,
    "root": _root,
    "abs": lambda _, value: abs(value),
    "floor": _make_rounding(lambda context, value: context.floor(value)),
    "ceil": _make_rounding(lambda context, value: context.ceil(value)),
    "pi": lambda context: +context.pi,
    "ln": lambda context, value: context.log(value),
    "log": _log,
    "arcsin": lambda context, value: context.asin(value),
    "arccos": lambda context, value: context.acos(value),
    "arctan": lambda context, value: context.atan(value),
    **{name: _trigonometric(name) for name in ANGLES},
}
