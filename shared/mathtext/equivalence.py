"""The grader of mathematics: is an answer the same as the gold one?

What kind of thing each answer is (`answer_shape`) decides what it may equal; values are compared by `equal_values`. The
rules, and where they differ from Math-Verify's own verdict, are on the page of graders (docs/explanation/grading.md).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import product
from typing import Any

from shared.mathtext.answer_reading import shape
from shared.mathtext.answer_shape import (  # fmt: skip
    About,
    Based,
    Bracketed,
    Clock,
    Family,
    Finite,
    Interval,
    Listed,
    Matrix,
    Named,
    Reals,
    Relation,
    Shape,
    Value,
    Words,
)
from shared.mathtext.answer_text import normal_form
from shared.mathtext.equal_values import by_algebra, equal_values
from shared.mathtext.factors import asks_for_factors, factored_alike
from shared.mathtext.families import family, letters, rename, same_members
from shared.mathtext.number_sets import Unordered, as_reals, in_order
from shared.mathtext.units import Unit, compound, is_counted_noun, strip_filler_words, unit
from shared.mathtext.written_numbers import spoken

Verdict = bool | None
"""None: nobody can say, since the gold answer cannot be read."""

_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_USUAL = "klmn"
_BRACKETS = {r"\langle": "(", r"\rangle": ")"}


def compare(answer: str, gold: str) -> Verdict:
    """Whether `answer` is right where `gold` is; what reads the same is, and nothing else is asked then.

    Not bounded in time: SymPy is not. Run it where it can be killed.
    """
    if answer == gold:
        return True
    one, other = normal_form(answer), normal_form(gold)
    if not other:
        return None
    try:
        return one == other or _any(_whole(*pair) for pair in product(_readings(one), _readings(other)))
    except (ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, AttributeError):
        return None  # whatever an arbitrary text makes SymPy raise, it is no verdict


def _readings(text: str) -> list[tuple[str, Shape]]:
    """`1,234` is a number as well as a list, and so is `1 hour and 30 minutes`; all else is read in one way."""
    joined = (
        text
        if text.startswith(("(", "[", r"\{", r"\langle"))
        else _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    )
    found: list[tuple[str, Shape]] = [(each, family(each) or shape(each)) for each in dict.fromkeys((text, joined))]
    quantity = compound(text, joined=True)
    return [*found, (text, Value(*quantity))] if quantity else found


def _any(verdicts: Iterable[Verdict]) -> Verdict:
    found = list(verdicts)
    return True if True in found else (None if None in found else False)


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    found = list(verdicts)
    return False if False in found else (None if None in found else True)


def _whole(answer: tuple[str, Shape], gold: tuple[str, Shape]) -> Verdict:
    """An equation that gives nothing a value equals equations only, which are the library's."""
    (one, given), (other, expected) = answer, gold
    if isinstance(given, Family) or isinstance(expected, Family):
        families = [each if isinstance(each, Family) else Family(text, "", "") for text, each in (answer, gold)]
        return _same_family(*families)
    one, other = (each.text if isinstance(each, Named) else text for text, each in (answer, gold))
    if isinstance(given, Relation) or isinstance(expected, Relation):
        return by_algebra(one, other) if _relates(given) and _relates(expected) else False
    if isinstance(given, Matrix) != isinstance(expected, Matrix) and isinstance(given, Value | Matrix):
        return by_algebra(one, other)  # a number times a matrix
    renamed = isinstance(given, Named) and isinstance(expected, Named) and given.name != expected.name
    return by_algebra(one, other) if renamed and _has_letters(one) else _same(given, expected)


def _same_family(given: Family, expected: Family) -> Verdict:
    """Where both say for which values they hold, it is for the same; the letter of the values does not matter."""
    if given.domain and expected.domain and given.domain != expected.domain:
        return False
    verdict = _whole(*((each.text, shape(each.text)) for each in (given, expected)))
    old, new = _running(expected, given), _running(given, expected)
    if verdict or not old or not new or (old != new and new in letters(expected.text)):
        return verdict
    text = rename(expected.text, old, new)
    if given.members and expected.members and same_members(given.text, text, new):
        return True
    return _whole((given.text, shape(given.text)), (text, shape(text))) if old != new else verdict


def _running(found: Family, other: Family) -> str:
    """The letter of its values; one that is usual for whole numbers need not be introduced where the other's is."""
    usual = [letter for letter in _USUAL if letter in letters(found.text)]
    return found.letter or (usual[0] if len(usual) == 1 and other.letter else "")


def _relates(found: Shape) -> bool:
    return isinstance(found, Relation | Named) or (isinstance(found, Reals) and found.name is not None)


def _has_letters(text: str) -> bool:
    """Whether there is a name on the right of an equation."""
    return bool(re.search(r"(?<![\\a-zA-Z])[a-zA-Z]", text.rpartition("=")[2]))


def _same(given: Shape, expected: Shape) -> Verdict:
    if isinstance(given, About) or isinstance(expected, About):
        return _same_about(given, expected)
    if isinstance(given, Named) or isinstance(expected, Named):
        return _same_named(given, expected)
    if isinstance(given, Reals) or isinstance(expected, Reals):
        return _same_reals(as_reals(given), as_reals(expected))
    if isinstance(given, Listed | Finite) or isinstance(expected, Listed | Finite):
        return _same_collection(given, expected)
    if type(given) is type(expected):
        return _SAME[type(expected)](given, expected)
    return _same_mixed(given, expected)


def _same_about(given: Shape, expected: Shape) -> Verdict:
    """What is only about right is wrong, unless the gold answer says no more."""
    if not isinstance(expected, About):
        return False
    return _same(given.value if isinstance(given, About) else given, expected.value)


def _same_named(given: Shape, expected: Shape) -> Verdict:
    """A name matters where both have one."""
    if isinstance(given, Named) and isinstance(expected, Named) and given.name != expected.name:
        return False
    return _same(*(each.value if isinstance(each, Named) else each for each in (given, expected)))


def _same_reals(given: Reals | None, expected: Reals | None) -> Verdict:
    """The same numbers, of the same name where both have one."""
    if given is None or expected is None or (given.name and expected.name and given.name != expected.name):
        return False
    with suppress(Unordered):
        given, expected = in_order(given), in_order(expected)
    if len(given.pieces) != len(expected.pieces):
        return False
    return _matched(given.pieces, expected.pieces, _same_interval)


def _same_interval(given: Interval, expected: Interval) -> Verdict:
    if (given.low_open, given.high_open) != (expected.low_open, expected.high_open):
        return False
    return _all((equal_values(given.low, expected.low), equal_values(given.high, expected.high)))


def _matched(given: Sequence[Any], expected: Sequence[Any], same: Callable[[Any, Any], Verdict]) -> Verdict:
    """Whether each has a partner of its own; equality is transitive, so that the first partner will do."""
    if len(given) != len(expected):
        return False
    left = list(given)
    for wanted in expected:
        verdicts = [same(each, wanted) for each in left]
        if True not in verdicts:
            return None if None in verdicts else False
        left.pop(verdicts.index(True))
    return True


def _same_collection(given: Shape, expected: Shape) -> Verdict:
    """Lists with each answer as often as it is given, sets without repetition; names give an order."""
    if isinstance(given, Finite) and isinstance(expected, Finite):
        return _all(_any(_same(one, other) for one in given.parts) for other in expected.parts) and _all(
            _any(_same(one, other) for other in expected.parts) for one in given.parts
        )
    if (assigned := _same_assignments(given, expected)) is not None:
        return assigned
    if isinstance(given, Bracketed) or isinstance(expected, Bracketed):
        return False
    return _matched(_members(given), _members(expected), _same)


def _members(found: Shape) -> tuple[Shape, ...]:
    r"""What a list or set holds, without the name of the whole: `x = 1, 2`."""
    if not isinstance(found, Listed | Finite):
        return (found,)
    first, *rest = found.parts or (Words(""),)
    if isinstance(first, Named) and not any(isinstance(each, Named) for each in rest):
        first = first.value
    return (first, *rest) if found.parts else ()


def _same_assignments(given: Shape, expected: Shape) -> Verdict:
    """`x = 1, y = 2` against values without names, in the order of the names; None: it is not that."""
    sides = [_assigned(given), _assigned(expected)]
    if (sides[0] is None) == (sides[1] is None):
        return None
    values = [
        each.parts if isinstance(each, Listed | Bracketed) else (each,) if side is None else tuple(side)
        for each, side in zip((given, expected), sides, strict=True)
    ]
    plain = [tuple(side) if side else value for side, value in zip(sides, values, strict=True)]
    if all(isinstance(value, Bracketed) for values in plain for value in values):
        return _matched(plain[0], plain[1], _same)  # points, whose names give no order
    return len(plain[0]) == len(plain[1]) and _all(map(_same, *plain))


def _assigned(found: Shape) -> list[Shape] | None:
    """The values in the order of their names, which all differ."""
    if not isinstance(found, Listed) or not all(isinstance(each, Named) for each in found.parts):
        return None
    by_name = {each.name: each.value for each in found.parts if isinstance(each, Named)}
    return [by_name[name] for name in sorted(by_name)] if len(by_name) == len(found.parts) else None


def _same_value(given: Value, expected: Value) -> Verdict:
    texts = _in_one_unit(given, expected)
    if texts is None:
        return False
    equal = equal_values(*texts)
    return factored_alike(*texts) if equal and asks_for_factors(*texts) else equal


def _in_one_unit(given: Value, expected: Value) -> tuple[str, str] | None:
    """Both as numbers of one unit; None if their units measure different things. A missing unit contradicts none."""
    if given.unit or expected.unit:
        given, expected = _with_letter(given), _with_letter(expected)
    if r"\pi" in given.text + expected.text and (_degrees(given.unit) != _degrees(expected.unit)):
        return _radians(given), _radians(expected)
    if given.unit is None or expected.unit is None or given.unit == expected.unit:
        return given.text, expected.text
    if given.unit.dimension != expected.unit.dimension:
        return None
    return _scaled(given), _scaled(expected)


def _with_letter(value: Value) -> Value:
    """Without a blank a letter is a unit only where the other side has one: `10m` against `10cm`."""
    letter = None if value.unit else unit(value.text[-1:])
    return Value(value.text[:-1], letter) if letter and value.text[:-1].isdigit() else value


def _degrees(unit: Unit | None) -> bool:
    return unit is not None and unit.dimension == (("angle", 1),)


def _radians(value: Value) -> str:
    return rf"({value.text})\cdot\frac{{\pi}}{{180}}" if _degrees(value.unit) else value.text


def _scaled(value: Value) -> str:
    assert value.unit is not None  # noqa: S101 - both have one
    factor = value.unit.factor
    return rf"({value.text})\cdot\frac{{{factor.numerator}}}{{{factor.denominator}}}"


def _same_bracketed(given: Bracketed, expected: Bracketed) -> Verdict:
    """The same kind of brackets, and the same in the same places."""
    kinds = [[_BRACKETS.get(each, each) for each in (side.opening, side.closing)] for side in (given, expected)]
    if kinds[0] != kinds[1] or len(given.parts) != len(expected.parts):
        return False
    return _all(map(_same, given.parts, expected.parts))


def _same_matrix(given: Matrix, expected: Matrix) -> Verdict:
    shapes = [(each.determinant, [len(row) for row in each.rows]) for each in (given, expected)]
    if shapes[0] != shapes[1]:
        return False
    return _all(
        _same(*pair) for rows in zip(given.rows, expected.rows, strict=True) for pair in zip(*rows, strict=True)
    )


def _same_number(given: Based, expected: Based) -> Verdict:
    values = [_worth(each) for each in (given, expected)]
    return given == expected or (None not in values and values[0] == values[1])


def _worth(number: Based) -> Fraction | None:
    """Its value; None if a digit is not one of its base."""
    whole, _, behind = number.digits.partition(".")
    try:
        return Fraction(int(whole + behind, number.base), number.base ** len(behind))
    except ValueError:
        return None


def _same_time(given: Clock, expected: Clock) -> Verdict:
    return given.parts == expected.parts and (None in (given.unit, expected.unit) or given.unit == expected.unit)


_SAME: dict[type, Callable[[Any, Any], Verdict]] = {
    Value: _same_value,
    Words: lambda given, expected: given == expected,
    Bracketed: _same_bracketed,
    Matrix: _same_matrix,
    Based: _same_number,
    Clock: _same_time,
}


def _same_mixed(given: Shape, expected: Shape) -> Verdict:
    """Things of different kinds: a base that is not written is ten, and `9:24` may be a ratio."""
    if isinstance(given, Words) != isinstance(expected, Words) and (number := _counted(given) or _counted(expected)):
        return _same(*(number if isinstance(each, Words) else each for each in (given, expected)))
    one, other = _text(given), _text(expected)
    if one is None or other is None:
        return False
    worded = isinstance(given, Words) or isinstance(expected, Words)
    return one.casefold() == other.casefold() or (not worded and equal_values(one, other))


def _counted(found: Shape) -> Value | None:
    """The number of "five apples"; two such answers are compared as words, since a noun may be all that matters."""
    number = spoken(found.text) if isinstance(found, Words) else None
    return Value(number[0]) if number and is_counted_noun(strip_filler_words(number[1], number[0]), number[0]) else None


def _text(found: Shape) -> str | None:
    match found:
        case Words() | Value():
            return found.text
        case Based():
            return found.digits if found.base == 10 else None
        case Clock():
            return ":".join(map(str, found.parts)) if found.unit is None and found.parts[1] > 9 else None
        case _:
            return None
