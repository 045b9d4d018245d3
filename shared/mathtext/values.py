"""Whether two values are equal: expressions, sets of numbers and factors."""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cmp_to_key
from itertools import product
from typing import Any, NamedTuple

from shared.mathtext.answers import INFINITY, Bracketed, Finite, RealInterval, Reals, Shape, Value
from shared.mathtext.approximation import DIGITS, Undecided, Unsuitable, constant, same_constant
from shared.mathtext.expressions import Apply, Expression, Number, Symbol, exact, parts
from shared.mathtext.numbers import changes_value, unit
from shared.mathtext.reading import FUNCTIONS, Unread, readings, symbolic, tokens

# Decide whether two texts have the same value: by exact arithmetic, by as many digits as it takes, at whole numbers, or
# by Math-Verify's algebra.
#
# Numbers are compared here, without rounding: 0.333333 is not a third. Math-Verify, which rounds to six digits, decides
# on texts with names in them, and on notation that the project's own grammar does not cover. It knows little about
# factorials and binomial coefficients of names: two of them are the same if they have the same value at every whole
# number that is tried.

CONSTANTS = {"i": "j", "e": "e"}
"""Letters that stand for the imaginary unit and for Euler's number."""
CLOSE = 1e-50
"""Numbers of 60 digits that differ by less, relatively to the larger one or to 1, are put in no order."""
COUNTING = frozenset({"!", "choose"})
POINTS = 8
"""Number of points at which two expressions must have the same value to be the same; of whole numbers, where factorials
may have none, three times as many are tried.
"""
PI = "pi"
SIZES = (1, 1000, 100_000)
"""What names of three digits are divided by; roots have other values below zero than above."""
PLACES = 6
"""Digits behind the point from which on a decimal gold answer stands for the exact value that rounds to it."""
_IN_TEXT = re.compile(r"(?<!_)(?<!_\{)\\text\{([^{}]*)\}")
_PLAIN_WORD = re.compile(r"(?<= )[A-Za-z]{2,}(?![A-Za-z])|(?<![\\A-Za-z])[A-Za-z]{2,}(?= )|[^\W\d_\x00-\u2fff]+")
_STRANGE = re.compile(r"\\(?:gg|gtrsim|lesssim|ll|lnot|neg|ngtr|nless|not|nsim|propto|sim)(?![A-Za-z])")
"""Relations that Math-Verify leaves out as well."""
_APPLIED = re.compile(
    r"(?<![a-zA-Z\\])(?:[fghpqFGHPQOT]'*\(|[a-zA-Z]'*\((?:[a-zA-Z]|\d+)\)|d[xyt](?![a-zA-Z]))|\\partial"
    r"|\\(?:Gamma|Phi|Psi|mu|phi|psi|sigma|tau|varphi|zeta) ?\("
)
"""Names that may be a function's, or a differential."""
_DECIMAL = re.compile(r"(?<![\w.])(\d{1,100})\.(\d{1,100})(?![\w.])")
_ROUNDED = re.compile(rf"-?\d*\.(\d{{{PLACES},100}})")
_CANNOT = (Unread, Unsuitable, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, AttributeError)
"""Exceptions of reading and computing a text without a value."""


def equal_values(answer: str, gold: str) -> bool | None:
    """Return whether both texts are the same value; None if `gold` cannot be read."""
    if answer == gold:
        return True
    if len(answer) == len(gold) == 1 and (answer + gold).isalpha():
        return False
    numbers = _equal_numbers(answer, gold)
    return compare_by_algebra(_replace_decimals(answer), _replace_decimals(gold)) if numbers is None else numbers


def compare_by_algebra(answer: str, gold: str) -> bool | None:
    """Math-Verify's verdict on two texts with the same words, which it leaves out; with other words they differ."""
    return library_verdict(answer, gold) if unread_words(answer) == unread_words(gold) else False


def unread_words(text: str) -> list[str]:
    r"""Words in a formula other than names of functions, units and indexes, such as "is wrong" of `5\text{ is
    wrong}`."""
    in_text = (match.strip().lower() for match in _IN_TEXT.findall(text))
    found = [words for words in in_text if any(map(str.isalpha, words)) and words not in FUNCTIONS and not unit(words)]
    plain = (word.lower() for word in _PLAIN_WORD.findall(_IN_TEXT.sub(" ", text)))
    return sorted(
        [*_STRANGE.findall(text), *found, *(word for word in plain if not word.isascii() or changes_value(word))]
    )


def library_verdict(answer: str, gold: str) -> bool | None:
    """Math-Verify's verdict: whether `answer` equals `gold`; None if it cannot read the gold answer or fails."""
    from math_verify import parse, verify

    try:
        expected, given = (parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))  # no limit
        # Not symmetric: the gold answer comes first.
        return bool(verify(expected, given, timeout_seconds=None)) if expected else None
    except Exception:  # noqa: BLE001  # a parser of arbitrary text may raise anything
        return None


def expressions(text: str) -> list[Expression]:
    """Return all readings of the text in the project's own grammar; empty if it does not follow it."""
    try:
        return readings(tokens(text))
    except _CANNOT:
        return []


def real(text: str) -> Any:
    """Return the value of a text as a fraction or an mpmath number; None if it is not a real number."""
    for expression in expressions(text)[:1]:
        try:
            return exact(expression)
        except ArithmeticError:
            pass
        try:
            found = constant(expression, CONSTANTS)
        except _CANNOT:
            return None
        return found.real if abs(found.imag) <= CLOSE * abs(found) else None
    return None


def compare_numbers(one: Any, other: Any) -> int:
    """Compare two numbers of `real`, or infinities: -1, 0 or 1 if `one` is less, equal or greater."""
    if not all(isinstance(each, Fraction | float) for each in (one, other)):
        one, other = (constant(Number(each)) if isinstance(each, Fraction) else each for each in (one, other))
        if abs(one - other) <= CLOSE * max(1, abs(one), abs(other)):
            return 0
    return int(one > other) - int(one < other)


def _equal_numbers(answer: str, gold: str) -> bool | None:
    """Return the verdict on two numbers; None if one of them cannot be computed here."""
    applied = bool(_APPLIED.search(answer) or _APPLIED.search(gold))
    verdicts = [
        _compare_expressions(*pair, gold, applied=applied) for pair in product(expressions(answer), expressions(gold))
    ]
    if True in verdicts:
        return True
    return False if verdicts and None not in verdicts else None


def _compare_expressions(answer: Expression, gold: Expression, written: str, *, applied: bool) -> bool | None:
    """Compare two expressions. `applied`: a name may be a function's, so f(x) need not be a product."""
    names = {part for side in (answer, gold) for part in parts(side) if isinstance(part, Symbol)}
    variables = sorted({name.name for name in names} - CONSTANTS.keys())
    operations = _operations(answer) | _operations(gold)
    try:
        if not variables:
            return _same_number(answer, gold) or _rounds_to(answer, written)
        if applied or any(name.unit for name in names):
            return None
        if operations & COUNTING or all(map(_is_rational_function, (answer, gold))):
            return _same_at_points(answer, gold, variables, whole=bool(operations & COUNTING))
        return None if operations & FUNCTIONS else _unless_it_differs(answer, gold, variables)
    except Undecided:
        raise
    except _CANNOT:
        return None


def _same_number(one: Expression, other: Expression) -> bool:
    try:
        return exact(one) == exact(other)
    except ArithmeticError:
        return same_constant(one, other, CONSTANTS)


def _is_rational_function(expression: Expression) -> bool:
    """Return whether names are only used as in polynomials."""
    match expression:
        case Apply("^", (base, Number(power) | Apply("neg", (Number(power),)))):
            return power.denominator == 1 and _is_rational_function(base)
        case Apply("+" | "-" | "*" | "/" | "neg" | "%" | "pi", operands):
            return all(map(_is_rational_function, operands))
        case _:
            return not isinstance(expression, Apply)


def _same_at_points(one: Expression, other: Expression, names: Sequence[str], *, whole: bool) -> bool | None:
    """Return whether both are equal where both have a value, at points of `whole` or other numbers; None: too few have
    one."""
    draw = random.Random(0)  # noqa: S311 - points to try, the same ones every time
    one, other, names = _replace_pi(one), _replace_pi(other), [*names, PI]
    same = 0
    for _ in range(3 * POINTS if whole else POINTS):
        values = {
            name: Fraction(draw.randint(1, 60)) if whole else Fraction(draw.randint(1, 10**6), draw.randint(1, 10**6))
            for name in names
        }
        try:
            if exact(one, values) != exact(other, values):
                return False
        except ArithmeticError:
            continue
        same += 1
    return True if same >= POINTS else None


def _replace_pi(expression: Expression) -> Expression:
    """Replace pi by a name: pi is transcendental, so it behaves like any other name."""
    if not isinstance(expression, Apply):
        return expression
    found = Apply(expression.operation, tuple(map(_replace_pi, expression.operands)))
    return Symbol(PI) if found.operation == PI else found


def _unless_it_differs(one: Expression, other: Expression, names: Sequence[str]) -> bool | None:
    """False if both differ whether the names are small or large; None: they may be the same."""
    draw = random.Random(0)  # noqa: S311 - points to try, the same ones every time
    for size in SIZES:
        values = {name: Fraction(draw.randint(100, 999), size) for name in names}
        if _same_number(_substitute(one, values), _substitute(other, values)):
            return None
    return False


def _substitute(expression: Expression, values: Mapping[str, Fraction]) -> Expression:
    """Return the expression where the names have `values`."""
    if isinstance(expression, Symbol):
        return Number(values[expression.name]) if expression.name in values else expression
    if isinstance(expression, Number):
        return expression
    return Apply(expression.operation, tuple(_substitute(operand, values) for operand in expression.operands))


def _rounds_to(number: Expression, gold: str) -> bool:
    """Return whether `gold` is a decimal of at least six places, and what `number` is when rounded to as many."""
    rounded = _ROUNDED.fullmatch(gold)
    if rounded is None:
        return False
    half, digits = Fraction(1, 2 * 10 ** len(rounded[1])), DIGITS + len(gold)
    difference = abs(constant(number, CONSTANTS, digits) - constant(Number(Fraction(gold)), CONSTANTS, digits))
    return bool(difference <= constant(Number(half), CONSTANTS, digits))


def _replace_decimals(text: str) -> str:
    """Replace decimals by fractions, which Math-Verify does not round."""
    return _DECIMAL.sub(lambda match: rf"\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}", text)


# Sets of real numbers: intervals and points, joined, cut and taken away from each other, and in one normal form.
#
# Ends are compared as numbers; a set with a name in an end has no normal form.

MOST_PIECES = 50
"""Of one set; one of more has no normal form."""


class Unordered(ValueError):
    """An end is not a number, or there are too many pieces."""


class _Edge(NamedTuple):
    """An end of an interval."""

    at: "Fraction | float | Any"
    side: int
    """-1: just below the number, 0: the number itself, 1: just above it."""
    text: str


_Piece = tuple[_Edge, _Edge]
"""The lowest and the highest that belongs to an interval."""
_LOWEST, _HIGHEST = _Edge(float("-inf"), 1, "-" + INFINITY), _Edge(float("inf"), -1, INFINITY)


def read_reals(found: Shape) -> Reals | None:
    """Return the shape as a set of numbers, if it can be one."""
    if isinstance(found, Reals):
        return found
    if isinstance(found, Finite):
        points = [RealInterval(part.text, part.text, False, False) for part in found.parts if isinstance(part, Value)]  # noqa: FBT003
        return Reals(tuple(points)) if len(points) == len(found.parts) else None
    if not isinstance(found, Bracketed) or len(found.parts) != 2:
        return None
    low, high = found.parts
    if not isinstance(low, Value) or not isinstance(high, Value) or r"\langle" in found.opening:
        return None
    return Reals((RealInterval(low.text, high.text, found.opening == "(", found.closing == ")"),))


def sort_intervals(found: Reals) -> Reals:
    """Return the same set with as few intervals as possible, the lowest first.

    Raises:
        Unordered: it has none.
    """
    return _reals(_merge_pieces(_pieces(found)), found.name)


def union(one: Reals, other: Reals) -> Reals:
    """Return the union.

    Raises:
        Unordered: see `sort_intervals`; so do `intersection` and `difference`.
    """
    return sort_intervals(Reals(one.pieces + other.pieces, one.name or other.name))


def intersection(one: Reals, other: Reals) -> Reals:
    return _reals(_both(_pieces(one), _pieces(other)), one.name or other.name)


def difference(one: Reals, other: Reals) -> Reals:
    """Return the part of `one` that is not in `other`."""
    pieces = _merge_pieces(_pieces(other))
    highs = [_LOWEST, *(_Edge(high.at, high.side + 1, high.text) for _, high in pieces)]
    lows = [*(_Edge(low.at, low.side - 1, low.text) for low, _ in pieces), _HIGHEST]
    outside = [piece for piece in zip(highs, lows, strict=True) if _compare_edges(*piece) <= 0]
    return _reals(_both(_pieces(one), outside), one.name)


def disjoint(sets: Sequence[Reals]) -> bool:
    """Return whether no number is in two of them."""
    pieces = [_merge_pieces(_pieces(each)) for each in sets]
    return not any(_both(one, other) for at, one in enumerate(pieces) for other in pieces[:at])


def _pieces(found: Reals) -> list[_Piece]:
    if len(found.pieces) > MOST_PIECES:
        raise Unordered(f"{len(found.pieces)} pieces")
    edges = [
        (_Edge(_number(each.low), int(each.low_open), each.low), _Edge(_number(each.high), -each.high_open, each.high))
        for each in found.pieces
    ]
    return [piece for piece in edges if _compare_edges(*piece) <= 0]


def _number(text: str) -> Any:
    if text in (INFINITY, "-" + INFINITY):
        return _HIGHEST.at if text == INFINITY else _LOWEST.at
    found = real(text)
    if found is None:
        raise Unordered(text)
    return found


def _compare_edges(one: _Edge, other: _Edge) -> int:
    return compare_numbers(one.at, other.at) or one.side - other.side


_ORDER = cmp_to_key(_compare_edges)


def _merge_pieces(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Merge pieces that overlap or touch."""
    found: list[_Piece] = []
    for low, high in sorted(pieces, key=lambda piece: _ORDER(piece[0])):
        order = compare_numbers(low.at, found[-1][1].at) if found else 1
        if order < 0 or (order == 0 and 0 in (low.side, found[-1][1].side)):  # nothing lies between
            found[-1] = (found[-1][0], max(found[-1][1], high, key=_ORDER))
        else:
            found.append((low, high))
    return found


def _both(pieces: Sequence[_Piece], others: Sequence[_Piece]) -> list[_Piece]:
    found = [
        (max(one[0], other[0], key=_ORDER), min(one[1], other[1], key=_ORDER)) for one in pieces for other in others
    ]
    return _merge_pieces(piece for piece in found if _compare_edges(*piece) <= 0)


def _reals(pieces: Iterable[_Piece], name: str | None) -> Reals:
    return Reals(tuple(RealInterval(low.text, high.text, low.side != 0, high.side != 0) for low, high in pieces), name)


# Whether an answer is factored as the gold one is: equal in value is not enough where the task was to factor.
#
# A gold answer that is a product with a sum among its factors is the answer to such a task. Of the 27 in the 8,500 gold
# answers of MATH that the tests read, each question says "factor" or "as the product of".


def asks_for_factors(answer: str, gold: str) -> bool:
    """Return whether `gold` is a product of numbers, names and sums, and not one number or sum alone.

    If the answer counts by factorials or binomial coefficients, the question did not ask for factors of a polynomial.
    """
    found = expressions(gold)
    counting = any(_operations(each) & COUNTING for each in expressions(answer))
    if not found or counting or not (_operations(found[0]) <= {"+", "-", "*", "^", "neg"}):
        return False
    factors = [factor for factor, _ in _factors(found[0], 1)]
    return any(map(_is_sum, factors)) and (len(factors) > 1 or _is_power(found[0]))


def have_same_factors(answer: str, gold: str) -> bool:
    """Return whether `answer` is a product of the same factors as `gold`, in any order and up to signs."""
    return any(_tally(one) == _tally(other) for one in expressions(answer) for other in expressions(gold)[:1])


def _factors(expression: Expression, power: int) -> Iterator[tuple[Expression, int]]:
    match expression:
        case Apply("*" | "neg", operands):
            for operand in operands:
                yield from _factors(operand, power)
        case Apply("^", (base, Number(exponent))) if _is_power(expression):
            yield from _factors(base, power * exponent.numerator)
        case _:
            yield expression, power


def _is_power(expression: Expression) -> bool:
    match expression:
        case Apply("^", (_, Number(exponent))):
            return exponent.denominator == 1 and 0 < exponent <= 1000
        case _:
            return False


def _is_sum(expression: Expression) -> bool:
    named = any(isinstance(part, Symbol) and part.name != "i" for part in parts(expression))
    return named and isinstance(expression, Apply) and expression.operation in ("+", "-")


def _operations(expression: Expression) -> set[str]:
    return {part.operation for part in parts(expression) if isinstance(part, Apply)}


def _tally(expression: Expression) -> Counter[str]:
    """Count each factor, in the spelling of SymPy; the numbers are one factor."""
    from sympy import Integer, expand

    number, counted = Integer(1), Counter[str]()
    for factor, power in _factors(expression, 1):
        value = expand(symbolic(factor))
        if value.is_number:
            number *= value**power
        else:
            counted[min(str(value), str(expand(-value)))] += power
    return counted + Counter({str(abs(number)): 1})
