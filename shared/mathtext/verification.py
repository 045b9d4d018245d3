"""What exact arithmetic leaves open, decided by SymPy: irrational numbers, and identities in names.

An equation with names in it is as often a condition as an identity: `2x = 6` is not wrong because some x do not
satisfy it. So it is verified if it holds for all values, and never refuted. Numbers are refuted: by exact arithmetic,
or where digits of both sides differ.

Not bounded in time: SymPy is not. Run it where it can be killed.
"""

import random
import re
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

from shared import canonical
from shared.mathtext.approximation import Unsuitable, approximate, constant, same_constant
from shared.mathtext.equations import Equation, equations, holds, leeway
from shared.mathtext.expressions import Apply, Expression, Symbol, parts
from shared.mathtext.symbolic import rational, symbolic
from shared.replies import Verified

if TYPE_CHECKING:
    from sympy import Expr

SOURCES = (
    "numerals",
    "notation",
    "expressions",
    "reading",
    "exact",
    "counting_words",
    "formulas",
    "equations",
    "approximation",
    "symbolic",
    "verification",
)
"""Modules of this package that a verdict depends on."""
POINTS = 3
"""Random points at which an equation must hold before SymPy is asked whether it always does."""
CLOSE = 1e-9
"""Doubles that differ by less, relatively, are worth asking SymPy."""
IMAGINARY = {"i": "j"}
_COMPLEX = re.compile(r"i\s*\^\s*2\s*=\s*-\s*1|complex|imaginary|conjugate", re.IGNORECASE)


def verify(text: str) -> Verified:
    """How many of the text's equations hold, do not, and were not decided."""
    verdicts = [verdict(each, imaginary=bool(_COMPLEX.search(text))) for each in equations(text)]
    return Verified(
        verified=verdicts.count(True), refuted=verdicts.count(False), unknown=verdicts.count(None)
    )  # fmt: skip


def verdict(equation: Equation, *, imaginary: bool = False) -> bool | None:
    """Whether an equation holds; None: that cannot be said. `imaginary`: i is known to be the imaginary unit."""
    found = holds(equation)
    if found is not None or not equation.read:
        return found
    verdicts = {_compared(left, right, imaginary=imaginary) for left in equation.left for right in equation.right}
    if True in verdicts:
        return True
    decidable = not (equation.modulus or equation.moduli)
    return False if verdicts == {False} and decidable else None


def digest() -> str:
    """SHA-256 in hex over the sources that decide a verdict: what another version says is another reply."""
    package = resources.files(__package__)
    return canonical.digest([(package / f"{name}.py").read_text("utf-8") for name in SOURCES]).hex()


def _compared(left: Expression, right: Expression, *, imaginary: bool) -> bool | None:
    """The verdict of one reading."""
    try:
        names = _names((left, right))
        if not names:
            return _numbers(left, right)
        if names == {"i"} and (found := _numbers(left, right)) is not None:
            return found or (False if imaginary else None)
        return _identity(left, right, sorted(names))
    except (Unsuitable, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, AttributeError):
        return None  # whatever SymPy or a float says to such an expression, it is no verdict


def _names(sides: Iterable[Expression]) -> set[str]:
    return {part.name for side in sides for part in parts(side) if isinstance(part, Symbol)}


def _numbers(left: Expression, right: Expression) -> bool | None:
    """Whether two numbers are equal, to so many digits that they can only be.

    Degrees are mere numbers outside trigonometric functions, so that nothing is known of `180^\\circ = \\pi`; and where
    both are rational, exact arithmetic has had its say.
    """
    if rational(left) and rational(right):
        return None
    operations = {part.operation for side in (left, right) for part in parts(side) if isinstance(part, Apply)}
    if "deg" in operations and operations & {"pi", "arcsin", "arccos", "arctan"}:
        return None
    if same_constant(left, right, IMAGINARY):
        return True
    difference, share = map(float, leeway(left, right))
    one, other = constant(left, IMAGINARY), constant(right, IMAGINARY)
    rounded = (difference or share) and abs(one - other) <= difference + share * max(abs(one), abs(other))
    return None if rounded else False


def _identity(left: Expression, right: Expression, names: list[str]) -> bool | None:
    """True if both sides are the same for all values of their names; else they may be a condition."""
    draw = random.Random(0)  # noqa: S311 - points to try, the same ones every time
    for _ in range(POINTS):
        values = {name: complex(draw.uniform(0.5, 2.5), draw.uniform(0.1, 0.9)) for name in names}
        one, other = approximate(left, values), approximate(right, values)
        if abs(one - other) > CLOSE * max(1, abs(one), abs(other)):
            return None
    return _simplified(symbolic(left) - symbolic(right)) or None


def _simplified(difference: "Expr") -> bool:
    from sympy import expand, simplify

    return bool(expand(difference) == 0 or simplify(difference) == 0)
