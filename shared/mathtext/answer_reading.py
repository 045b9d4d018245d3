r"""Reading what kind of thing an answer is: by brackets, separators and relations at its top level.

What stands between them is not computed here, but for sets that are joined, cut, or taken away from each other.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce

from shared.mathtext import number_sets
from shared.mathtext.answer_shape import (  # fmt: skip
    INFINITY,
    About,
    Based,
    Bracketed,
    Clock,
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
from shared.mathtext.equal_values import equal_values, unread_words
from shared.mathtext.number_sets import Unordered, as_reals
from shared.mathtext.units import changes_value, compound, is_counted_noun, strip_filler_words, unit
from shared.mathtext.written_numbers import spoken

_OPENING = re.compile(r"\\begin\{[^{}]*\}|\\\{|\\langle|\\l[fv]\w*|[(\[{]")
_CLOSING = re.compile(r"\\end\{[^{}]*\}|\\\}|\\rangle|\\r[fv]\w*|[)\]}]")
SEPARATOR = re.compile(
    r"[,;]|\\text\{,?\s*(?:and|or|和|或),?\s*\}|(?<![\\a-zA-Z{])(?:and|or)(?![a-zA-Z])|(?<=.)[和或](?=.)"
)
_OR = re.compile(r"(?<![a-zA-Z])or(?![a-zA-Z])|或")
_AND = re.compile(r"(?<![a-zA-Z])and(?![a-zA-Z])")
_RELATION = re.compile(
    r"\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z])|\\in(?![a-zA-Z])|\\approx(?![a-zA-Z])|[<>=]"
)
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_CUT = re.compile(
    r"(?P<both>\\cap(?![a-zA-Z]))|\\(?:setminus|smallsetminus|backslash)(?![a-zA-Z])"
    r"|(?<=\\mathbb\{R\})-(?=[\[(\\])|(?<=[)\]}])-(?=\\\{)"
)
_MATRIX = re.compile(r"\\begin\{([pbv]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_BUILDER = re.compile(r"\\\{[a-z](?:\\in\\mathbb\{R\})?(?:\\mid|\||:) ?(.*)\\\}")
_POINT = re.compile(r"(?:\\text\{(?:the )?point\}|(?:the )?point |点)?([A-Z]'*(?:_(?:\{[^{}]*\}|\w))?)(\(.*\))")
_BASED = re.compile(r"\(?(-?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?_\{?(?:\\text\{)?(\d{1,2}|[a-z]+)\}{0,2}")
_BASES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "sixteen": 16,
}
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?: ?\\?(?:text\{)?\s*([ap]\.?m\.?)\}?)?", re.IGNORECASE)
_NAME = re.compile(
    r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|rho|omega|sigma|tau))'*(?:_(?:\{[^{}]*\}|\w))?"
    r"(?:\^\{-1\})?(?:\([^()=]*\))?"
    r"|\([a-z](?:,[a-z]){1,3}\)|\|?\\(?:overrightarrow|overline|vec|widehat)\{[A-Za-z]{1,2}\}\|?|[A-Z]{2,4}|\|[A-Z]{2}\||\[[A-Z]{3,4}\]"
    r"|(?:m ?)?\\angle ?[A-Z]{1,3}"
    r"|\\(?:sin|cos|tan|cot|sec|csc) ?(?:\(?\\?[A-Za-z]+\)?|\\angle ?[A-Z]{1,3})|\\text\{[^{}]*\}|[A-Za-z]{3,}"
)
_BEGUN = re.compile(r"(-?\d{1,100}(?:\.\d{1,100})?)\\ldots ?")
_TWO_SIGNS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_IN_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_LETTERS = re.compile(r"(?<![\\a-zA-Z])[A-Za-z]|\\(?:theta|alpha|beta|lambda)")
_MORE_WORDS = r"(?:[ -][A-Za-z0-9'’]+)"
_WORDS = re.compile(
    r"\\text\{([^{}]*)\}"
    rf"|([A-Z][a-z'’]{{2,}}{_MORE_WORDS}*|[a-z'’]{{5,}}{_MORE_WORDS}*|[a-z]{{2,}}{_MORE_WORDS}+|[A-Z]{{3,}}|[^\W\d_a-zA-Z]+)"
)
"""Of small letters, fewer than five without a blank are as often a product: `abc`."""
_TEXT_UNIT = re.compile(r"(.*[\w)}\]!'])\s*\\text\{([^{}]*)\}(?:\^\{?(\d)\}?)?")
_PLAIN_UNIT = re.compile(
    r"(.*(?:[\d)}]|\\pi))"
    r"(?: ([A-Za-z'’]+(?:[ ./]+[A-Za-z'’.]+)*)|([A-Za-z]{2,}|[^\W\d_a-zA-Z]+(?:/[^\W\d_a-zA-Z]+)?))"
    r"(?:\^\{?(\d)\}?)?"
)
_ANGLES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_DEGREES = re.compile(r"(.*)(\^\\circ ?(?:[CF]|\\text\{[CF]\})?)")


def shape(text: str) -> Shape:
    """The shape of an answer in normal form; thousands in `1,234` are the elements of a list here."""
    parts = split(text, SEPARATOR)
    if len(parts) > 1 and not parts[-1]:
        return Words(_flat(text))  # "5 or"
    if len(parts) > 1:
        return _list(tuple(shape(part) for part in parts if part), text)
    found = _alternatives(text) or _relation(text) or _combined(text) or _point(text)
    return found or _enclosed(text) or _single(text)


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """`text` between separators that stand outside all brackets; an interval's may differ, so that they are counted."""
    parts, start, at, depth = [], 0, 0, 0
    while at < len(text):
        found = separator.match(text, at) if depth == 0 else None
        if found and found.end() > at:
            parts.append(text[start:at].strip())
            start = at = found.end()
            continue
        depth, at = _step(text, at, depth)
    return [*parts, text[start:].strip()]


def _step(text: str, at: int, depth: int) -> tuple[int, int]:
    """The depth behind the next bracket or character."""
    if opened := _OPENING.match(text, at):
        return depth + 1, opened.end()
    if closed := _CLOSING.match(text, at):
        return max(0, depth - 1), closed.end()
    return depth, at + 1


def _list(parts: tuple[Shape, ...], text: str) -> Shape:
    r"""Inequalities are one set of numbers: what all allow if they are joined by "and", what one allows if by "or";
    between commas all of them hold unless none of them goes with another. `x \ne 1, 2` names two numbers.
    """
    if not parts or len(parts) == 1:
        return parts[0] if parts else Words("")
    reals = [part for part in parts if isinstance(part, Reals)]
    try:
        if len(reals) == 1 and reals[0] is parts[0] and r"\ne" in text and (points := as_reals(Finite(parts[1:]))):
            return number_sets.difference(reals[0], points)
        if len(reals) == len(parts) and len({part.name for part in reals}) == 1:
            either = not _AND.search(text) and (_OR.search(text) or number_sets.disjoint(reals))
            return reduce(number_sets.union if either else number_sets.intersection, reals)
    except Unordered:
        if len(reals) == len(parts):
            return Reals(tuple(piece for part in reals for piece in part.pieces), reals[0].name)
    return Listed(parts)


def _alternatives(text: str) -> Shape | None:
    r"""Both values of what has a `\pm`; signs that are given with `\mp` go together."""
    if not _TWO_SIGNS.search(text) or split(text, _RELATION) != [text]:
        return None
    upper, lower = (re.sub(r"\\pm ?", sign, re.sub(r"\\mp ?", other, text)) for sign, other in ("+-", "-+"))
    return Listed((shape(upper.removeprefix("+")), shape(lower)))


def _combined(text: str) -> Shape | None:
    """Sets that are joined, cut, or taken away; cuts come before unions."""
    unions, cuts = split(text, _UNION), split(text, _CUT)
    if len(unions) > 1:
        return _folded(text, unions, [_either] * (len(unions) - 1))
    if len(cuts) > 1:
        return _folded(text, cuts, [_both if sign.startswith(r"\cap") else _without for sign in _signs(text, _CUT)])
    return None


def _folded(text: str, parts: Sequence[str], operations: Sequence[Callable[[Shape, Shape], Shape | None]]) -> Shape:
    """The sets combined from the left; as it stands if they are none that can be."""
    found: Shape | None = shape(parts[0])
    for part, operation in zip(parts[1:], operations, strict=True):
        found = found and operation(found, shape(part))
    return found or Value(text)


def _either(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(one.parts + other.parts)
    sets = as_reals(one), as_reals(other)
    if sets[0] is None or sets[1] is None:
        return None
    try:
        return number_sets.union(sets[0], sets[1])
    except Unordered:
        return Reals(sets[0].pieces + sets[1].pieces, sets[0].name)


def _both(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(tuple(part for part in one.parts if _among(part, other.parts)))
    return _computed(number_sets.intersection, one, other)


def _without(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(tuple(part for part in one.parts if not _among(part, other.parts)))
    return _computed(number_sets.difference, one, other)


def _among(part: Shape, others: Sequence[Shape]) -> bool:
    return part in others or any(
        isinstance(part, Value) and isinstance(other, Value) and equal_values(part.text, other.text) for other in others
    )


def _computed(operation: Callable[[Reals, Reals], Reals], one: Shape, other: Shape) -> Shape | None:
    sets = as_reals(one), as_reals(other)
    try:
        return operation(sets[0], sets[1]) if sets[0] and sets[1] else None
    except Unordered:
        return None


def _relation(text: str) -> Shape | None:
    sides = split(text, _RELATION)
    if len(sides) == 1:
        return None
    signs = _signs(text, _RELATION)
    if r"\approx" in signs:
        return _before_approximation(sides, signs, text)
    if set(signs) <= {"="} or signs == [r"\in"]:
        return _named(sides, text)
    return _inequality(sides, signs) or Relation(text)


def _before_approximation(sides: list[str], signs: list[str], text: str) -> Shape:
    r"""The value that is approximated: a third of `\frac{1}{3} \approx 0.33`; else about what stands behind."""
    at = signs.index(r"\approx")
    exact = "".join(side + sign for side, sign in zip(sides[: at + 1], [*signs[:at], ""], strict=True))
    if exact and not _NAME.fullmatch(exact):
        return shape(exact)
    value = shape(sides[-1])
    return About(Named(exact, value, text) if exact else value)


def _signs(text: str, pattern: re.Pattern[str]) -> list[str]:
    """What stands between the parts that `split` finds."""
    signs, at, depth = [], 0, 0
    while at < len(text):
        found = pattern.match(text, at) if depth == 0 else None
        if found:
            signs.append(found[0])
            at = found.end()
        else:
            depth, at = _step(text, at, depth)
    return signs


def _named(sides: list[str], text: str) -> Shape:
    """A name with the last value of a chain; a computation with its result; else an equation."""
    if len(sides) == 2 and _NAME.fullmatch(sides[1]) and not _has_letters(sides[0]):
        sides = [sides[1], sides[0]]
    if _NAME.fullmatch(sides[0]):
        value = shape(sides[-1])
        numbers = as_reals(value) if r"\in" in text else None
        return numbers._replace(name=sides[0]) if numbers else Named(sides[0], value, text)
    if any(_has_letters(side) for side in sides[1:]) or (len(sides) == 2 and _has_letters(sides[0])):
        return Relation(text)
    worked = _has_letters(sides[0])  # m + n = 118 + 29 = 147
    return Named(sides[0], shape(sides[-1]), f"{sides[0]}={sides[-1]}") if worked else shape(sides[-1])


def _has_letters(side: str) -> bool:
    """Whether there are names in it, besides its unit."""
    measured = _measured(side)
    value = measured.text if isinstance(measured, Value) else side
    return bool(_LETTERS.search(_IN_TEXT.sub(lambda match: "" if unit(match[1]) else match[0], value)))


def _inequality(sides: list[str], signs: list[str]) -> Reals | None:
    """`x < 3`, `3 > x`, `1 < x \\le 2` and `x \\ne 3` as numbers that x may be."""
    if {*signs} <= {">", r"\ge"}:
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    names = [at for at, side in enumerate(sides) if _NAME.fullmatch(side)]
    if len(names) != 1 or any(_has_letters(side) for at, side in enumerate(sides) if at not in names):
        return None
    at, name = names[0], sides[names[0]]
    if signs == [r"\ne"]:
        hole = sides[1 - at]
        return Reals((Interval("-" + INFINITY, hole, True, True), Interval(hole, INFINITY, True, True)), name)  # noqa: FBT003
    if not {*signs} <= {"<", r"\le"} or (len(sides) == 3 and at != 1) or len(sides) > 3:
        return None
    low, low_open = (sides[at - 1], signs[at - 1] == "<") if at else ("-" + INFINITY, True)
    high, high_open = (sides[at + 1], signs[at] == "<") if at + 1 < len(sides) else (INFINITY, True)
    return Reals((Interval(low, high, low_open, high_open),), name)


def _point(text: str) -> Named | None:
    """A named point: `A(1,2)`."""
    match = _POINT.fullmatch(text)
    coordinates = _enclosed(match[2]) if match else None
    return (
        Named(match[1], coordinates, f"{match[1]}={match[2]}") if match and isinstance(coordinates, Bracketed) else None
    )


def _enclosed(text: str) -> Shape | None:
    if builder := _BUILDER.fullmatch(text):
        return shape(builder[1])
    if matrix := _MATRIX.fullmatch(text):
        rows = [row for row in re.split(r"\\\\", matrix[2]) if row.strip()]
        return Matrix(tuple(tuple(map(shape, row.split("&"))) for row in rows), matrix[1] == "vmatrix")
    opened = _OPENING.match(text)
    inner = _inside(text, opened) if opened else None
    if inner is None or opened is None:
        return None
    written = [part for part in split(inner, re.compile("[,;]")) if part]
    if opened[0] == "[" and (rows := [row[1:-1] for row in written if _is_row(row)]) and len(rows) == len(written):
        return Matrix(tuple(tuple(map(shape, split(row, re.compile(",")))) for row in rows))
    parts = tuple(map(shape, written))
    if opened[0] == r"\{" or (opened[0] == "{" and len(parts) > 1):
        return Finite(parts)
    if len(parts) == 1 and isinstance(parts[0], Reals | Finite):
        return parts[0]
    return Bracketed(opened[0], text[opened.end() + len(inner) :], parts) if len(parts) > 1 else None


def _is_row(text: str) -> bool:
    """Of a matrix as programs write it: [[1, 2], [3, 4]]."""
    opened = re.match(r"\[", text)
    return opened is not None and text.endswith("]") and _inside(text, opened) is not None


def _inside(text: str, opened: re.Match[str]) -> str | None:
    """What stands in the brackets, if they are around the whole."""
    at, depth = opened.end(), 1
    while at < len(text):
        before = at
        depth, at = _step(text, at, depth)
        if depth == 0:
            return text[opened.end() : before] if at == len(text) else None
    return None


def _single(text: str) -> Shape:
    if clock := _CLOCK.fullmatch(text):
        return Clock(tuple(int(part) for part in clock.groups()[:3] if part), unit(clock[4]) if clock[4] else None)
    if based := _BASED.fullmatch(text):
        base = _BASES.get(based[2], int(based[2]) if based[2].isdigit() else 0)
        if _digits_of(based[1], base):
            return Based(based[1], base)
    if text == r"\mathbb{R}":
        return Reals((Interval("-" + INFINITY, INFINITY, low_open=True, high_open=True),))
    if text == r"\emptyset":
        return Finite(())
    if begun := _BEGUN.fullmatch(text):
        return About(Value(begun[1]))
    if several := compound(text):
        return Value(*several)
    return _measured(text) or _worded(text) or (Words(_flat(text)) if unread_words(text) else Value(text))


def _digits_of(digits: str, base: int) -> bool:
    """Whether they may be digits of a number in that base; a small letter with an index is a name."""
    leading = digits.lstrip("-")[0]
    return base > 1 and (leading.isdigit() or (base > 10 and digits.isupper()))


def _measured(text: str) -> Value | Words | None:
    """A value with its unit, or with a noun of what is counted; words if what is behind it may change what is said."""
    if _ANGLES.search(text):
        return None
    if text.startswith((r"\$", r"-\$")):
        amount = text.replace(r"\$", "", 1)
        measured = _measured(amount)
        return measured if isinstance(measured, Words) else Value(measured.text if measured else amount, unit("dollar"))
    for pattern in (_DEGREES, _TEXT_UNIT, _PLAIN_UNIT):
        match = pattern.fullmatch(text)
        if match is None or not match[1].strip():
            continue
        number, (words, power) = match[1].strip(), _unit_of(match)
        if pattern is _PLAIN_UNIT and len(words) == 1 and _LETTERS.search(number):
            return None  # a product: pi r^2 h
        name = words if pattern is _DEGREES else strip_filler_words(words, number)
        known = unit(name, power) or unit(name.partition(" of ")[0], power)
        if known or _may_be_counted(name, number, in_text=pattern is _TEXT_UNIT):
            return Value(number, known)
        if pattern is _TEXT_UNIT or _are_words(words):
            return Words(_flat(text))
    return None


def _may_be_counted(words: str, number: str, *, in_text: bool) -> bool:
    """Three plain letters are as often a product: 2 abs."""
    return is_counted_noun(words, number, in_text=in_text) and (
        in_text or len(words) > 3 or words == "men" or not words.isascii()
    )


def _are_words(words: str) -> bool:
    """A few letters are as often a product: a t in `\\frac{1}{2}at^2`."""
    several = words.lower().split()
    longest = max(map(len, several))
    return not words.isascii() or longest > 4 or (longest > 2 and any(map(changes_value, several)))


def _flat(text: str) -> str:
    """The words of a text, wherever they stand."""
    return " ".join(_IN_TEXT.sub(r" \1 ", text).split()).casefold()


def _unit_of(match: re.Match[str]) -> tuple[str, int]:
    groups = [group for group in match.groups()[1:] if group]
    power = int(groups.pop()) if len(groups) > 1 and groups[-1].isdigit() else 1
    return groups[0], power


def _worded(text: str) -> Value | Words | None:
    number = spoken(_flat(text))
    if number and (not number[1] or unit(number[1])):
        return Value(number[0], unit(number[1]) if number[1] else None)
    match = _WORDS.fullmatch(text)
    if match is None:
        return None
    words = " ".join((match[1] or match[2] or "").split()).strip(" .()")
    return Words(words if len(words) == 1 else words.casefold())
