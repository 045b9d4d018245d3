"""Equations in texts: find them, and decide whether they hold."""

import random
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, takewhile
from typing import NamedTuple

from shared.mathtext.approximation import Unsuitable, approximate, constant, same_constant
from shared.mathtext.expressions import Apply, Expression, Number, Symbol, exact, exact_or_none, parts
from shared.mathtext.numbers import SCALING, VALUE_CHANGING
from shared.mathtext.reading import (
    BREAK,
    CLOSE,
    LINE,
    MODULO,
    NUMBER,
    OPEN,
    OPERATOR,
    RELATION,
    STRANGE,
    SYMBOL,
    WORD,
    Token,
    Unread,
    readings,
    symbolic,
    tokens,
)
from shared.replies import Verified

# Find mathematics in a text: between its delimiters, and in plain sentences around an equals sign.

LONGEST = 4000
"""Characters of one formula; a longer one is not read."""
_MARK = re.compile(
    r"\\\\|\\\$|\$\$?|\\[\[\]()]|\\(?P<side>begin|end)\{(?:align|gather|equation|multline|eqnarray)\*?\}"
)
_CLOSED_BY = {"$": "$", "$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_DRAWING = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_SENTENCE = re.compile(r"[\n;:!?。，；：！？、<>]+|[.,](?=\s|$)")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\x00-\xff×÷−π√≤≥≠≈]+")
_SCALE = re.compile(rf"\s*(?:{SCALING})\b")
"""Words after a formula that change the value of its last number."""


class Formula(NamedTuple):
    """A piece of mathematics in a text."""

    text: str
    start: int
    """Where it begins in the text."""
    tex: bool
    """Between delimiters; else plain."""
    cut: bool = False
    """The equation may continue a word before it, so its first side may be incomplete."""
    goes_on: bool = False
    """The same, behind it."""


def formulas(text: str) -> Iterator[Formula]:
    """Return the formulas of a text, in order. Drawings (`[asy]`) are left out."""
    for start, end in _split(_DRAWING, text, 0, len(text)):
        yield from _find_between(text, start, end)


def _find_between(text: str, start: int, end: int) -> Iterator[Formula]:
    """Return the formulas of one stretch of the text; a delimiter that is never closed is one of plain text."""
    opened: re.Match[str] | None = None
    plain = start
    for mark in _MARK.finditer(text, start, end):
        if opened is None:
            if mark[0] in _CLOSED_BY or mark["side"] == "begin":
                yield from _plain(text, plain, mark.start())
                opened = mark
        elif mark[0] == (opened[0].replace("begin", "end", 1) if opened["side"] else _CLOSED_BY[opened[0]]):
            scaled = bool(_SCALE.match(text, mark.end()))
            yield Formula(text[opened.end() : mark.start()], opened.end(), tex=True, goes_on=scaled)
            opened, plain = None, mark.end()
    yield from _plain(text, plain if opened is None else opened.end(), end)


def _plain(text: str, start: int, end: int) -> Iterator[Formula]:
    """Stretches of a plain text without words, around an equals sign."""
    if text.find("=", start, end) < 0:
        return
    for first, last in _split(_SENTENCE, text, start, end):
        if text.find("=", first, last) < 0:
            continue
        words = [match.span() for match in _WORD.finditer(text, first, last)]
        before = (first, first)
        for word in [*words, (last, last)]:
            if text.find("=", before[1], word[0]) >= 0:
                yield _make_stretch(text, before, word)
            before = word


def _make_stretch(text: str, before: tuple[int, int], behind: tuple[int, int]) -> Formula:
    """Make the formula of one stretch. A single number or bracket may belong to the word before it: half of 12 = 6."""
    word = text[before[0] : before[1]].lower()
    stretch = text[before[1] : behind[0]]
    alone = stretch.partition("=")[0].strip().isdecimal() or stretch[:1] in ("(", "[", "{", "^", "_")
    return Formula(
        stretch,
        before[1],
        tex=False,
        cut=word in VALUE_CHANGING or (bool(word) and alone),
        goes_on=text[behind[0] : behind[1]].lower() in VALUE_CHANGING,
    )


def _split(separator: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in separator.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


# Equations of a solution, read from its text, and whether those of rational numbers hold.
#
# `a = b = c` is two equations. Statements with names are conditions as often as identities, so they stay undecided, as
# does text that cannot be read. Precision matters more than completeness: a step that is called wrong must be wrong.

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MODULUS = re.compile(r"mod(?:ulo|ulus)?\b[^\w\n]{0,9}(\d{1,9})(?!\d)")
MOST_EQUATIONS = 500
"""Of one text; those behind them are not looked at."""
CONVERTED = frozenset({"cent", "cents"})
"""Units that are next to another one which is only a sign: 5 cents are $0.05."""
HALF = Fraction(1, 2)


class Equation(NamedTuple):
    """Two sides of an equals sign."""

    text: str
    left: tuple[Expression, ...]
    """All that this side may mean; empty: it could not be read."""
    right: tuple[Expression, ...]
    modulus: int = 0
    """As the text names it; 0: it names none."""
    alone: bool = True
    """It is all of its statement; else it is a link of a chain."""
    moduli: tuple[int, ...] = ()
    """Which the text names anywhere: it may mean them without saying so again."""

    @property
    def read(self) -> bool:
        """Return whether both sides could be read."""
        return bool(self.left and self.right)


class Checked(NamedTuple):
    """An equation as written, and whether it holds; None if that is undecided."""

    text: str
    holds: bool | None


def arithmetic(text: str) -> list[Checked]:
    """Return the equations of a text but for its code, each decided as far as exact arithmetic of rational numbers
    goes.

    An equation is meant modulo a number if it names one, else in ordinary arithmetic. Takes time in proportion to the
    text's length, and raises nothing.
    """
    return [Checked(each.text, holds(each)) for each in equations(_CODE.sub(" ", text), names=False)]


def equations(text: str, *, names: bool = True) -> list[Equation]:
    """Return the equations of a text, read or not, in order; at most `MOST_EQUATIONS`. Without `names`, those that have
    names in them may stay unread: exact arithmetic cannot decide them.
    """
    found: list[Equation] = []
    named = {int(match[1]) for match in _MODULUS.finditer(text)} | ({10} if "digit" in text else set())
    moduli = tuple(sorted(modulus for modulus in named if modulus > 1))
    for formula in formulas(text):
        found += _read_formula(formula, moduli, names=names)
        if len(found) >= MOST_EQUATIONS:
            break
    return found[:MOST_EQUATIONS]


def holds(equation: Equation) -> bool | None:
    """Return whether it holds in one of its readings (True), in none (False), or neither can be said (None)."""
    verdicts = {_compare_exactly(left, right, equation) for left in equation.left for right in equation.right}
    if True in verdicts:
        return True
    return False if verdicts == {False} else None


def _compare_exactly(left: Expression, right: Expression, equation: Equation) -> bool | None:
    # A unit that is the only one stands for 1; hours and minutes may be converted, so that nothing is known.
    names = {part.name for side in (left, right) for part in parts(side) if isinstance(part, Symbol) and part.unit}
    values = dict.fromkeys(names, Fraction(1)) if len(names) == 1 and not names & CONVERTED else {}
    try:
        one, other = exact(left, values), exact(right, values)
    except ArithmeticError:  # it has no value, or no rational one
        return None
    if equation.modulus:
        return _are_congruent(one, other, equation.modulus)
    if one == other:
        return True
    if equation.alone and _is_bare(left) and _is_bare(right):
        return None  # "0 = 5, which is impossible"
    if any(_are_congruent(one, other, named) for named in equation.moduli):
        return None
    difference, share = leeway(left, right)
    return None if abs(one - other) <= difference + share * max(abs(one), abs(other)) else False


def _is_bare(side: Expression) -> bool:
    """Return whether it is a number without anything computed."""
    while isinstance(side, Apply) and side.operation == "neg":
        side = side.operands[0]
    return isinstance(side, Number)


def _are_congruent(one: Fraction, other: Fraction, modulus: int) -> bool | None:
    difference = one - other
    try:
        return difference.numerator * pow(difference.denominator, -1, modulus) % modulus == 0
    except ValueError:  # the divisor has no inverse
        return None


def leeway(left: Expression, right: Expression) -> tuple[Fraction, Fraction]:
    """Return how far apart both sides may be, since decimals are rounded: a difference, and a share of the larger side.

    A side that is a written number may be rounded to its last digit: half a unit of that, and of two written numbers
    half a unit of the coarser one. A whole number may be rounded as well, where the other side has a decimal point. If
    both sides are computed, they are as uncertain as the coarsest decimal in them: 25 pi = 25 * 3.14.
    """
    numbers = [part for side in (left, right) for part in parts(side) if isinstance(part, Number)]
    decimals = [number for number in numbers if number.places]
    written = [half for side in (left, right) if (half := _half_unit(side, whole=bool(decimals)))]
    if written:
        return max(written), Fraction(0)
    shares = [HALF / 10**number.places / number.value for number in decimals if number.places and number.value]
    return Fraction(0), max(shares, default=Fraction(0))


def _half_unit(side: Expression, *, whole: bool) -> Fraction | None:
    """Return half a unit of the last digit of a written number, also in percent or with a unit. A whole number has
    one only if it may be `whole`; None otherwise.
    """
    if isinstance(side, Number):
        return HALF / 10 ** (side.places or 0) if whole or side.places else None
    if isinstance(side, Symbol):
        return None
    if side.operation == "%":
        half = _half_unit(side.operands[0], whole=True)
        return half and half / 100
    measured = side.operation == "*" and isinstance(side.operands[1], Symbol) and side.operands[1].unit
    return _half_unit(side.operands[0], whole=whole) if measured or side.operation in ("neg", "deg") else None


def _read_formula(formula: Formula, moduli: tuple[int, ...], *, names: bool) -> Iterator[Equation]:
    if len(formula.text) > LONGEST:
        yield Equation(formula.text[:80], (), (), moduli=moduli)
        return
    if "=" not in formula.text and "\\equiv" not in formula.text and "≡" not in formula.text:
        return
    written = _drop_boxes(tokens(formula.text, tex=formula.tex))
    if "quad" in formula.text:
        written = _drop_indents(written)
    for statement in _split_statements(formula.text, written):
        yield from _link_sides(formula, *_take_modulus(statement), moduli, names=names)


def _drop_boxes(written: list[Token]) -> list[Token]:
    """Remove braces around a whole statement: `\\boxed{x = 3}` states it."""
    dropped: set[int] = set()
    stated: set[int] = set()
    opened: list[int] = []
    for at, token in enumerate(written):
        if token.text == "{":
            if token.kind is OPEN:
                opened.append(at)
            elif opened and (start := opened.pop()) in stated:
                dropped |= {start, at}
        elif opened and token.kind is RELATION:
            stated.add(opened[-1])
    return [token for at, token in enumerate(written) if at not in dropped] if dropped else written


def _drop_indents(written: list[Token]) -> list[Token]:
    """Remove blanks at the beginnings of lines, which join nothing: they set lines in."""
    found: list[Token] = []
    for token in written:
        if not (token.text in ("quad", "qquad") and (not found or found[-1].kind is LINE)):
            found.append(token)
    return found


def _split_statements(formula: str, written: Sequence[Token]) -> Iterator[list[Token]]:
    """Cut a formula into statements; lines that continue with an operator or a relation are one statement."""
    depth = 0
    statement: list[Token] = []
    for at, token in enumerate(written):
        kind = token.kind
        if kind is OPEN:
            depth += 1
        elif kind is CLOSE:
            depth -= 1
        comma = depth <= 0 and token.text == "," and kind is OPERATOR
        if kind is BREAK or comma or (kind is LINE and not _continues(formula, statement, written, at)):
            yield statement
            statement, depth = [], 0
        elif kind is not LINE:
            statement.append(token)
    yield statement


def _continues(formula: str, before: Sequence[Token], written: Sequence[Token], line: int) -> bool:
    """Return whether the line that ends at token `line` is continued by the next.

    A line that begins with a sign may be its own equation: `-12 &= 6 - 18` is, `&- 2 = 10` is not.
    """
    if not before or line + 1 == len(written):
        return False
    behind = written[line + 1]
    if before[-1].kind in (RELATION, OPERATOR) or behind.kind is RELATION:
        return True
    if behind.kind is not OPERATOR:
        return False
    rest = takewhile(lambda token: token.kind is not LINE, islice(written, line + 1, None))
    own = any(token.kind is RELATION for token in rest)
    return not own or "&" in formula[written[line].end : behind.start]


def _take_modulus(statement: list[Token]) -> tuple[list[Token], int | None]:
    """Return the statement without `\\pmod{5}`, and its modulus; None if the modulus is not a number."""
    places = [at for at, token in enumerate(statement) if token.kind is MODULO]
    if not places:
        return statement, 0
    at = places[0]
    behind = [token for token in statement[at + 1 :] if token.kind not in (OPEN, CLOSE)]
    number = behind[0] if behind else None
    if len(places) > 1 or number is None or number.kind is not NUMBER or number.value.denominator != 1:
        return statement, None
    before = statement[:at]
    if before and before[-1].kind is OPEN:
        before.pop()
    rest = [token for token in behind[1:] if token.kind is RELATION] and statement[statement.index(number) + 1 :]
    modulus = int(number.value)
    return before + list(rest), modulus if modulus > 1 else None


def _link_sides(
    formula: Formula, statement: Sequence[Token], modulus: int | None, moduli: tuple[int, ...], *, names: bool
) -> Iterator[Equation]:
    """Return the equations of one statement."""
    sides, relations = _split_sides(statement)
    equal = [relation == "=" or (relation == "≡" and bool(modulus)) for relation in relations]
    if not any(equal):
        return
    # A chain is read in any case, to find the left sides; and a name may be that of a unit, which has a value.
    kinds = [] if names or len(sides) > 2 else [token.kind for token in statement]
    unread = modulus is None or (SYMBOL in kinds and WORD not in kinds)
    read = [() if unread else _read_side(side) for side in sides]
    if formula.cut:
        read[0] = ()
    if formula.goes_on:
        read[-1] = ()
    for right, holds_between in enumerate(equal, start=1):
        if holds_between:
            left = _find_left(right, read, equal)
            written = sides[left] + sides[right]
            text = formula.text[written[0].start : written[-1].end] if written else ""
            yield Equation(text, read[left], read[right], modulus or 0, len(sides) == 2, moduli)


def _find_left(right: int, read: Sequence[tuple[Expression, ...]], equal: Sequence[bool]) -> int:
    """Return the side to compare with: the one before, or the last number before a name (5 for 6 in `2 + 3 = x =
    6`)."""
    if right == 1 or not _is_numeric(read[right]):
        return right - 1
    left = right - 1
    while left > 0 and read[left] and equal[left - 1] and not _is_numeric(read[left]):
        left -= 1
    return left if _is_numeric(read[left]) else right - 1


def _is_numeric(side: Sequence[Expression]) -> bool:
    return bool(side) and not any(isinstance(part, Symbol) and not part.unit for part in parts(side[0]))


def _split_sides(statement: Sequence[Token]) -> tuple[list[list[Token]], list[str]]:
    sides: list[list[Token]] = [[]]
    relations: list[str] = []
    depth = 0
    for token in statement:
        kind = token.kind
        if kind is OPEN:
            depth += 1
        elif kind is CLOSE:
            depth -= 1
        if kind is RELATION and depth == 0:
            relations.append(token.text)
            sides.append([])
        else:
            sides[-1].append(token)
    return sides, relations


def _read_side(side: Sequence[Token]) -> tuple[Expression, ...]:
    """Return the readings of the side, without the full stop that ends the sentence."""
    while side and side[-1].kind is STRANGE and side[-1].text == ".":
        side = side[:-1]
    try:
        return tuple(readings(side))
    except Unread:
        return ()


# What exact arithmetic leaves open, decided by SymPy: irrational numbers, and identities in names.
#
# An equation with names in it is as often a condition as an identity: `2x = 6` is not wrong because some x do not
# satisfy it. So it is verified if it holds for all values, and never refuted. Numbers are refuted: by exact arithmetic,
# or where digits of both sides differ.
#
# Not bounded in time: SymPy is not. Run it where it can be killed.

VERSION = 1
"""Raised whenever a verdict changes, so that texts are verified again; tests/unit/shared/runtime/test_outcomes.py fails
until it is."""
POINTS = 3
"""Random points at which an equation must hold before SymPy is asked whether it always does."""
TOLERANCE = 1e-9
"""Doubles that differ by less, relatively, are worth asking SymPy."""
IMAGINARY = {"i": "j"}
_COMPLEX = re.compile(r"i\s*\^\s*2\s*=\s*-\s*1|complex|imaginary|conjugate", re.IGNORECASE)


def verify(text: str) -> Verified:
    """Count how many of the text's equations hold, do not, and were not decided."""
    imaginary = bool(_COMPLEX.search(text))
    verdicts = [verdict(each, imaginary=imaginary) for each in equations(text)]
    return Verified(verified=verdicts.count(True), refuted=verdicts.count(False), unknown=verdicts.count(None))


def verdict(equation: Equation, *, imaginary: bool = False) -> bool | None:
    """Return whether an equation holds; None: that cannot be said. `imaginary`: i is known to be the imaginary unit."""
    found = holds(equation)
    if found is not None or not equation.read:
        return found
    verdicts = {_compare(left, right, imaginary=imaginary) for left in equation.left for right in equation.right}
    if True in verdicts:
        return True
    decidable = not (equation.modulus or equation.moduli)
    return False if verdicts == {False} and decidable else None


def _compare(left: Expression, right: Expression, *, imaginary: bool) -> bool | None:
    """Return the verdict of one reading."""
    try:
        names = {part.name for side in (left, right) for part in parts(side) if isinstance(part, Symbol)}
        if not names:
            return _compare_numbers(left, right)
        if names == {"i"} and (found := _compare_numbers(left, right)) is not None:
            return found or (False if imaginary else None)
        return _check_identity(left, right, sorted(names))
    except (Unsuitable, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, AttributeError):
        return None  # SymPy and floats may raise anything on such an expression


def _compare_numbers(left: Expression, right: Expression) -> bool | None:
    """Return whether two numbers are equal, to so many digits that they can only be.

    Degrees are mere numbers outside trigonometric functions, so that nothing is known of `180^\\circ = \\pi`; and where
    both are rational, exact arithmetic has had its say.
    """
    if exact_or_none(left) is not None and exact_or_none(right) is not None:
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


def _check_identity(left: Expression, right: Expression, names: list[str]) -> bool | None:
    """True if both sides are the same for all values of their names; else they may be a condition."""
    draw = random.Random(0)  # noqa: S311 - points to try, the same ones every time
    for _ in range(POINTS):
        values = {name: complex(draw.uniform(0.5, 2.5), draw.uniform(0.1, 0.9)) for name in names}
        one, other = approximate(left, values), approximate(right, values)
        if abs(one - other) > TOLERANCE * max(1, abs(one), abs(other)):
            return None
    difference = symbolic(left) - symbolic(right)
    from sympy import expand, simplify

    return bool(expand(difference) == 0 or simplify(difference) == 0) or None
