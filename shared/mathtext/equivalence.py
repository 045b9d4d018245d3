"""Decide whether two answers are the same in different notations."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

from shared.mathtext import values
from shared.mathtext.answers import (
    INFINITY,
    About,
    Based,
    Bracketed,
    Clock,
    Family,
    Finite,
    Listed,
    Matrix,
    Named,
    RealInterval,
    Reals,
    Relation,
    Shape,
    Value,
    Words,
    normal_form,
)
from shared.mathtext.numbers import Unit, changes_value, compound, is_counted_noun, spoken, strip_filler_words, unit

# Read the kind of an answer: by brackets, separators and relations at its top level.
#
# The parts between them are not computed here, except for unions, intersections and differences of sets.

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
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "sixteen": 16
}  # fmt: skip
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
    """Return the shape of an answer in normal form; thousands in `1,234` are the elements of a list here."""
    parts = split(text, SEPARATOR)
    if len(parts) > 1 and not parts[-1]:
        return Words(_flat(text))  # "5 or"
    if len(parts) > 1:
        return _list(tuple(shape(part) for part in parts if part), text)
    if _TWO_SIGNS.search(text) and split(text, _RELATION) == [text]:
        # Return both values of a text with `\pm`; signs with `\mp` change together.
        upper, lower = (re.sub(r"\\pm ?", sign, re.sub(r"\\mp ?", other, text)) for sign, other in ("+-", "-+"))
        return Listed((shape(upper.removeprefix("+")), shape(lower)))
    return _relation(text) or _combine_sets(text) or _point(text) or _read_enclosed(text) or _single(text)


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split `text` at separators outside all brackets. Brackets are counted, because those of an interval may
    differ."""
    parts, start = [], 0
    for found in _find_outside(text, separator):
        parts.append(text[start : found.start()].strip())
        start = found.end()
    return [*parts, text[start:].strip()]


def _find_outside(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Return the matches outside all brackets."""
    at, depth = 0, 0
    while at < len(text):
        found = pattern.match(text, at) if depth == 0 else None
        if found and found.end() > at:
            yield found
            at = found.end()
        else:
            depth, at = _step(text, at, depth)


def _step(text: str, at: int, depth: int) -> tuple[int, int]:
    """Return the depth behind the next bracket or character."""
    if opened := _OPENING.match(text, at):
        return depth + 1, opened.end()
    if closed := _CLOSING.match(text, at):
        return max(0, depth - 1), closed.end()
    return depth, at + 1


def _list(parts: tuple[Shape, ...], text: str) -> Shape:
    r"""Read inequalities as one set of numbers: the intersection if they are joined by "and", the union if by "or".
    After commas all must hold, unless no two of them overlap. `x \ne 1, 2` names two numbers.
    """
    if len(parts) < 2:
        return parts[0] if parts else Words("")
    reals = [part for part in parts if isinstance(part, Reals)]
    try:
        if (
            len(reals) == 1
            and reals[0] is parts[0]
            and r"\ne" in text
            and (points := values.read_reals(Finite(parts[1:])))
        ):
            return values.difference(reals[0], points)
        if len(reals) == len(parts) and len({part.name for part in reals}) == 1:
            either = not _AND.search(text) and (_OR.search(text) or values.disjoint(reals))
            return reduce(values.union if either else values.intersection, reals)
    except values.Unordered:
        if len(reals) == len(parts):
            return Reals(tuple(piece for part in reals for piece in part.pieces), reals[0].name)
    return Listed(parts)


def _combine_sets(text: str) -> Shape | None:
    """Read unions, intersections and differences of sets; cuts come before unions."""
    unions, cuts = split(text, _UNION), split(text, _CUT)
    if len(unions) > 1:
        return _fold_sets(text, unions, [_either] * (len(unions) - 1))
    if len(cuts) > 1:
        return _fold_sets(text, cuts, [_both if sign["both"] else _subtract for sign in _find_outside(text, _CUT)])
    return None


def _fold_sets(text: str, parts: Sequence[str], operations: Sequence[Callable[[Shape, Shape], Shape | None]]) -> Shape:
    """Return the sets, combined from the left; unchanged if they cannot be combined."""
    found: Shape | None = shape(parts[0])
    for part, operation in zip(parts[1:], operations, strict=True):
        found = found and operation(found, shape(part))
    return found or Value(text)


def _either(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(one.parts + other.parts)
    sets = values.read_reals(one), values.read_reals(other)
    if sets[0] is None or sets[1] is None:
        return None
    try:
        return values.union(sets[0], sets[1])
    except values.Unordered:
        return Reals(sets[0].pieces + sets[1].pieces, sets[0].name)


def _both(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(tuple(part for part in one.parts if _among(part, other.parts)))
    return _compute_set(values.intersection, one, other)


def _subtract(one: Shape, other: Shape) -> Shape | None:
    if isinstance(one, Finite) and isinstance(other, Finite):
        return Finite(tuple(part for part in one.parts if not _among(part, other.parts)))
    return _compute_set(values.difference, one, other)


def _among(part: Shape, others: Sequence[Shape]) -> bool:
    return part in others or any(
        isinstance(part, Value) and isinstance(other, Value) and values.equal_values(part.text, other.text)
        for other in others
    )


def _compute_set(operation: Callable[[Reals, Reals], Reals], one: Shape, other: Shape) -> Shape | None:
    sets = values.read_reals(one), values.read_reals(other)
    try:
        return operation(sets[0], sets[1]) if sets[0] and sets[1] else None
    except values.Unordered:
        return None


def _relation(text: str) -> Shape | None:
    sides = split(text, _RELATION)
    if len(sides) == 1:
        return None
    signs = [sign[0] for sign in _find_outside(text, _RELATION)]
    if r"\approx" in signs:
        # The approximated value: a third in `\frac{1}{3} \approx 0.33`; otherwise the rounded value after the sign.
        at = signs.index(r"\approx")
        exact = "".join(side + sign for side, sign in zip(sides[: at + 1], [*signs[:at], ""], strict=True))
        if exact and not _NAME.fullmatch(exact):
            return shape(exact)
        value = shape(sides[-1])
        return About(Named(exact, value, text) if exact else value)
    if set(signs) <= {"="} or signs == [r"\in"]:
        return _read_named(sides, text)
    return _inequality(sides, signs) or Relation(text)


def _read_named(sides: list[str], text: str) -> Shape:
    """Read a chain as a name with its last value, as a computation with its result, or as an equation."""
    if len(sides) == 2 and _NAME.fullmatch(sides[1]) and not _has_names_besides_units(sides[0]):
        sides = [sides[1], sides[0]]
    if _NAME.fullmatch(sides[0]):
        value = shape(sides[-1])
        numbers = values.read_reals(value) if r"\in" in text else None
        return numbers._replace(name=sides[0]) if numbers else Named(sides[0], value, text)
    if any(_has_names_besides_units(side) for side in sides[1:]) or (
        len(sides) == 2 and _has_names_besides_units(sides[0])
    ):
        return Relation(text)
    worked = _has_names_besides_units(sides[0])  # m + n = 118 + 29 = 147
    return Named(sides[0], shape(sides[-1]), f"{sides[0]}={sides[-1]}") if worked else shape(sides[-1])


def _has_names_besides_units(side: str) -> bool:
    """Return whether there are names in it, besides its unit."""
    measured = _read_value(side)
    value = measured.text if isinstance(measured, Value) else side
    return bool(_LETTERS.search(_IN_TEXT.sub(lambda match: "" if unit(match[1]) else match[0], value)))


def _inequality(sides: list[str], signs: list[str]) -> Reals | None:
    """Read `x < 3`, `3 > x`, `1 < x \\le 2` and `x \\ne 3` as numbers that x may be."""
    if {*signs} <= {">", r"\ge"}:
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    names = [at for at, side in enumerate(sides) if _NAME.fullmatch(side)]
    if len(names) != 1 or any(_has_names_besides_units(side) for at, side in enumerate(sides) if at not in names):
        return None
    at, name = names[0], sides[names[0]]
    if signs == [r"\ne"]:
        hole = sides[1 - at]
        return Reals((RealInterval("-" + INFINITY, hole, True, True), RealInterval(hole, INFINITY, True, True)), name)  # noqa: FBT003
    if not {*signs} <= {"<", r"\le"} or (len(sides) == 3 and at != 1) or len(sides) > 3:
        return None
    low, low_open = (sides[at - 1], signs[at - 1] == "<") if at else ("-" + INFINITY, True)
    high, high_open = (sides[at + 1], signs[at] == "<") if at + 1 < len(sides) else (INFINITY, True)
    return Reals((RealInterval(low, high, low_open, high_open),), name)


def _point(text: str) -> Named | None:
    """Read a named point: `A(1,2)`."""
    if match := _POINT.fullmatch(text):
        coordinates = _read_enclosed(match[2])
        return Named(match[1], coordinates, f"{match[1]}={match[2]}") if isinstance(coordinates, Bracketed) else None
    return None


def _read_enclosed(text: str) -> Shape | None:
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
    """Return whether the text is a row of a matrix in the notation of programs: [[1, 2], [3, 4]]."""
    opened = re.match(r"\[", text)
    return opened is not None and text.endswith("]") and _inside(text, opened) is not None


def _inside(text: str, opened: re.Match[str]) -> str | None:
    """Return the content of the brackets, if they enclose the whole."""
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
        # Whether they may be digits of a number in that base; a small letter with an index is a name.
        digits = based[1]
        leading = digits.lstrip("-")[0]
        if base > 1 and (leading.isdigit() or (base > 10 and digits.isupper())):
            return Based(digits, base)
    if text == r"\mathbb{R}":
        return Reals((RealInterval("-" + INFINITY, INFINITY, low_open=True, high_open=True),))
    if text == r"\emptyset":
        return Finite(())
    if begun := _BEGUN.fullmatch(text):
        return About(Value(begun[1]))
    if several := compound(text):
        return Value(*several)
    return _read_value(text) or _read_words(text) or (Words(_flat(text)) if values.unread_words(text) else Value(text))


def _read_value(text: str) -> Value | Words | None:
    """Read a value with its unit or counted noun; as words, if the words after it may change its meaning."""
    if _ANGLES.search(text):
        return None
    if text.startswith((r"\$", r"-\$")):
        amount = text.replace(r"\$", "", 1)
        measured = _read_value(amount)
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
    """Return whether `words` is a counted noun. Three plain letters may also be a product: 2 abs."""
    return is_counted_noun(words, number, in_text=in_text) and (
        in_text or len(words) > 3 or words == "men" or not words.isascii()
    )


def _are_words(words: str) -> bool:
    """Return whether these are words. A few letters may also be a product: a t in `\\frac{1}{2}at^2`."""
    several = words.lower().split()
    longest = max(map(len, several))
    return not words.isascii() or longest > 4 or (longest > 2 and any(map(changes_value, several)))


def _flat(text: str) -> str:
    """Return all words of a text."""
    return " ".join(_IN_TEXT.sub(r" \1 ", text).split()).casefold()


def _unit_of(match: re.Match[str]) -> tuple[str, int]:
    groups = [group for group in match.groups()[1:] if group]
    power = int(groups.pop()) if len(groups) > 1 and groups[-1].isdigit() else 1
    return groups[0], power


def _read_words(text: str) -> Value | Words | None:
    number = spoken(_flat(text))
    if number and (not number[1] or unit(number[1])):
        return Value(number[0], unit(number[1]) if number[1] else None)
    match = _WORDS.fullmatch(text)
    if match is None:
        return None
    words = " ".join((match[1] or match[2] or "").split()).strip(" .()")
    return Words(words if len(words) == 1 else words.casefold())


# Answers that hold for all values of a letter: `x = 2k\pi, k \in \mathbb{Z}`, `n+1 \text{ for all integers } n`.
#
# The words with this condition are split off: the answer is the same without them, with another letter, and, for whole
# numbers, with another first member. Conditions that restrict it ("for even n", "x > 3, x an integer") are not.

_TOKEN = re.compile(
    r"\\(?:in|forall|ne|le|ge)(?![a-zA-Z])"
    r"|(?:\\mathbb\{[A-Z]\}|(?<=\\in)[ZNRQC](?![a-zA-Z])|(?<=\\in )[ZNRQC](?![a-zA-Z]))(?:[\^_]\{?[+*]\}?)?"
    r"|\\[a-zA-Z]+|[A-Za-z]+|[^\W\d_a-zA-Z]+|\S"
)
_INTRODUCTION = re.compile(r"[,;(]|(?<![\\a-zA-Z])(?:for|where|with)(?![a-zA-Z])|\\forall(?![a-zA-Z])|其中")
_SPACED = re.compile(r" ?([a-z])\\in((?:\\mathbb\{[ZNRQC]\}| ?[ZNRQC])(?:[\^_]\{?[+*]\}?)?)$")
_BUILT = re.compile(r"\\\{(.+?)(?:\\mid(?![a-zA-Z])|\||:) ?(.+)\\\}")
_ALL = re.compile(r"(?:all|every|any) ", re.IGNORECASE)
_QUANTIFIERS = frozenset(["all", "any", "every", "each", "arbitrary", r"\forall"])
_DOMAINS = {
    "integer": "Z", "integers": "Z", "natural": "N", "naturals": "N", "real": "R", "reals": "R", "complex": "C",
    "rational": "Q", "rationals": "Q", "constant": "", "constants": "", "parameter": "", "parameters": "",
    **{rf"\mathbb{{{letter}}}": letter for letter in "ZNRQC"}, **{letter: letter for letter in "ZNRQC"},
    "整数": "Z", "自然数": "N", "实数": "R", "常数": "", "正整数": "Z+", "正实数": "R+", "非零整数": "Z",
    "任意整数": "Z", "任意实数": "R", "任意常数": "",
}  # fmt: skip
_ORDER = re.compile(r"[<>]|\\(?:le|ge|ne|in)(?![a-zA-Z])")
_OTHERS = frozenset(
    (
        "for where with is are be a an the some number numbers value values of positive nonnegative non negative "
        "nonzero whole and"
    ).split()
) | {",", ";", "(", ")", r"\in", "-"}
_CONDITIONS = frozenset(["<", ">", r"\ne", r"\le", r"\ge", *"0123456789"])
_ALSO_BEFORE = frozenset(["even", "odd", "form", "such", "that", "solutions"])
LONGEST = 150
"""Length of the words that say for which values an answer holds, in characters."""
MOST_MEMBERS = 12
"""Arithmetic progressions that one may be cut into to be compared with others."""
_NAMED = re.compile(r"(?:[A-Za-z]|\\[a-z]+) ?=")
_NAMES = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+")
_NAME_OR_COMMAND = re.compile(r"\\text\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]")


class _Progression(NamedTuple):
    """The members of `name` = `first` + k `step`, for all whole numbers k; both are formulas."""

    name: str
    first: str
    step: str


def family(text: str) -> Family | None:
    """Return the normal form without the condition on a letter; None if the text has no condition."""
    if built := _BUILT.fullmatch(text):
        return family(built[2] if built[2].startswith(f"{built[1]}=") else f"{built[1]},{built[2]}")
    flat = " ".join(_IN_TEXT.sub(r" \1 ", text).split())
    for match in _INTRODUCTION.finditer(flat, max(1, len(flat) - LONGEST)):
        if found := _read_qualifier(flat[match.start() :], named=bool(_NAMED.match(flat))):
            return _unless_restricted(Family(flat[: match.start()].strip(" ,;"), *found))
    if (spaced := _SPACED.search(flat)) and spaced[1] in letters(flat[: spaced.start()]):
        domain = _domain_of(spaced[2]) or ""
        return _unless_restricted(Family(flat[: spaced.start()], spaced[1], domain, members=domain == "Z"))
    for match in _TOKEN.finditer(flat) if _ALL.match(flat) else ():
        word = match[0].lower()
        if word not in _QUANTIFIERS | _OTHERS | _ALSO_BEFORE and word not in _DOMAINS:
            named = any(token in _DOMAINS for token in _TOKEN.findall(flat[: match.start()]))
            return Family(flat[match.start() :], "", "") if named else None
    return None


def letters(text: str) -> set[str]:
    """Return the letters of a formula that are names, or parts of one."""
    return {letter for word in _NAMES.findall(_IN_TEXT.sub(" ", text)) for letter in word}


def rename(text: str, old: str, new: str) -> str:
    """Return the formula with the name `old` replaced."""
    return _NAME_OR_COMMAND.sub(lambda match: new if match[0] == old else match[0], text)


def same_members(one: str, other: str, letter: str) -> bool:
    """Return whether both texts, lists of arithmetic progressions in `letter`, have the same members: k pi, and 2k pi
    with pi + 2k pi. False also where that cannot be said.
    """
    sides = [list(_progressions(each, letter)) for each in (one, other)]
    found = [each for side in sides for each in side]
    if not all(sides) or None in found or ("\\circ" in one) != ("\\circ" in other):
        return False
    known = [each for each in found if each]
    period = _common_period([each.step for each in known])
    names = {each.name for each in known if each.name}
    if period is None or len(names) > 1 or any(letter in letters(name) for name in names):
        return False
    counts = {each: abs(int(_ratio(period, each.step) or 0)) for each in known}  # the members of one period
    one_side, other_side = (
        [f"{each.first}+{at}*({each.step})" for each in side if each for at in range(counts[each])] for side in sides
    )
    return _covers(one_side, other_side, period) and _covers(other_side, one_side, period)


def _covers(some: Sequence[str], others: Sequence[str], period: str) -> bool:
    """Return whether each of `some` is one of the others, or a number of periods away from one."""

    def is_whole(text: str) -> bool:
        value = values.real(text)
        return value is not None and values.compare_numbers(value, Fraction(round(float(value)))) == 0

    return all(any(is_whole(f"({one}-({other}))/({period})") for other in others) for one in some)


def _progressions(text: str, letter: str) -> Iterator[_Progression | None]:
    """Return a progression for each part of the text; None if a part is not a progression."""
    for part in split(text, SEPARATOR):
        name, _, value = part.rpartition("=")
        for sign, opposite in ("+-", "-+") if r"\pm" in value else ("+-",):
            signed = value.replace(r"\pm", sign).replace(r"\mp", opposite).removeprefix("+")
            first, second, third = (rename(signed, letter, f"({at})") for at in (0, 1, 2))
            steps = f"({second})-({first})", f"({third})-({second})"
            linear = (
                values.real(steps[0]) is not None
                and values.equal_values(*steps)
                and not values.equal_values(steps[0], "0")
            )
            yield _Progression(name.strip(), first, steps[0]) if linear else None


def _common_period(steps: Sequence[str]) -> str | None:
    """Return the smallest multiple of all steps; None: it is more than `MOST_MEMBERS` times one of them."""
    period = steps[0]
    for step in steps[1:]:
        ratio = _ratio(period, step)
        if ratio is None:
            return None
        period = f"({period})*{ratio.denominator}"
    ratios = [_ratio(period, step) for step in steps]
    return period if all(ratio and abs(ratio) <= MOST_MEMBERS for ratio in ratios) else None


def _ratio(one: str, other: str) -> Fraction | None:
    """Return the ratio of two numbers as a fraction of small whole numbers; None if it is not one."""
    value = values.real(f"({one})/({other})")
    if value is None or not 0 < abs(value) < MOST_MEMBERS**3:
        return None
    found = Fraction(float(value)).limit_denominator(MOST_MEMBERS)
    return found if values.compare_numbers(value, found) == 0 else None


def _read_qualifier(tail: str, *, named: bool) -> tuple[str, str, bool] | None:
    """Read the letter and the domain from ", k in Z" or "for all integers n".

    The third value tells whether the answer is the family's members; after "for all" it is only if the family has a
    name. None if the tail is another text.
    """
    tokens = [token.lower() if token.isalpha() and len(token) > 1 else token for token in _TOKEN.findall(tail)]
    names = {token for at, token in enumerate(tokens) if _is_name(tokens, at)}
    words = [token for token in tokens if token not in names]
    domains = [token for token in map(_domain_of, words) if token is not None]
    others = {word for word in words if _domain_of(word) is None} - _QUANTIFIERS - _OTHERS
    quantified = not _QUANTIFIERS.isdisjoint(words)
    if (others and not (quantified and others <= _CONDITIONS)) or (tokens[0] == "(") != (tokens[-1] == ")"):
        return None
    if (not names or not domains) and not (quantified and (names or domains)):
        return None
    domain = next(filter(None, domains), "")
    positive = "positive" in words and "non" not in words
    members = domain == "Z" and not positive and (named or not quantified)
    return (names.pop() if len(names) == 1 else ""), domain + ("+" if positive and domain else ""), members


def _is_name(tokens: Sequence[str], at: int) -> bool:
    """Return whether this is a letter, other than the article and a set after "in"."""
    token, behind = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
    article = token == "a" and behind.isalpha() and len(behind) > 1
    return len(token) == 1 and token.isascii() and token.isalpha() and not article and tokens[at - 1 : at] != [r"\in"]


def _domain_of(word: str) -> str | None:
    """Z of "integers"; empty for constants; None: it names no domain."""
    word = word.removeprefix("是").removeprefix("为")
    if word in ("", *_DOMAINS):
        return _DOMAINS.get(word, "")
    found = re.fullmatch(r"(\\mathbb\{[ZNRQC]\}|[ZNRQC])[\^_]\{?[+*]\}?", word)
    return f"{_DOMAINS[found[1]]}+" if found else None


def _unless_restricted(found: Family) -> Family | None:
    """x > 3 for whole x is another answer than x > 3."""
    restricted = found.domain not in ("R", "C") and len(split(found.text, _ORDER)) > 1
    return None if restricted and (not found.letter or found.letter in letters(found.text)) else found


# The grader of mathematics: is an answer the same as the gold one?
#
# The kind of each answer (`shape`) decides which answers may equal it; values are compared by `equal_values`.
# The rules, and where they differ from Math-Verify's own verdict, are on the page of graders
# (docs/explanation/grading.md).

Verdict = bool | None
"""None: undecided, because the gold answer cannot be read."""

_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_USUAL = "klmn"
_BRACKETS = {r"\langle": "(", r"\rangle": ")"}


def compare(answer: str, gold: str) -> Verdict:
    """Return whether `answer` is right where `gold` is. Equal texts are right without further checks.

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
        return None  # SymPy may raise anything on an arbitrary text


def _readings(text: str) -> list[tuple[str, Shape]]:
    """Return the readings of an answer: `1,234` and `1 hour and 30 minutes` are numbers as well as lists."""
    joined = text
    if not text.startswith(("(", "[", r"\{", r"\langle")):
        joined = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
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
    """Compare whole answers. An equation that gives no name a value only equals equations, which Math-Verify
    compares."""
    (one, given), (other, expected) = answer, gold
    if isinstance(given, Family) or isinstance(expected, Family):
        families = [each if isinstance(each, Family) else Family(text, "", "") for text, each in (answer, gold)]
        return _same_family(*families)
    one, other = (each.text if isinstance(each, Named) else text for text, each in (answer, gold))
    if isinstance(given, Relation) or isinstance(expected, Relation):
        return values.compare_by_algebra(one, other) if _relates(given) and _relates(expected) else False
    if isinstance(given, Matrix) != isinstance(expected, Matrix) and isinstance(given, Value | Matrix):
        return values.compare_by_algebra(one, other)  # a number times a matrix
    renamed = isinstance(given, Named) and isinstance(expected, Named) and given.name != expected.name
    has_names_on_the_right = re.search(r"(?<![\\a-zA-Z])[a-zA-Z]", one.rpartition("=")[2])
    return values.compare_by_algebra(one, other) if renamed and has_names_on_the_right else _same(given, expected)


def _same_family(given: Family, expected: Family) -> Verdict:
    """Compare two families: their conditions, if both have one, and their values with any letter."""
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
    """Return the letter of its values; one that is usual for whole numbers need not be introduced where the other's
    is."""
    usual = [letter for letter in _USUAL if letter in letters(found.text)]
    return found.letter or (usual[0] if len(usual) == 1 and other.letter else "")


def _relates(found: Shape) -> bool:
    return isinstance(found, Relation | Named) or (isinstance(found, Reals) and found.name is not None)


def _same(given: Shape, expected: Shape) -> Verdict:
    if isinstance(given, About) or isinstance(expected, About):
        # A rounded answer is wrong, unless the gold answer is rounded as well.
        if not isinstance(expected, About):
            return False
        return _same(given.value if isinstance(given, About) else given, expected.value)
    if isinstance(given, Named) or isinstance(expected, Named):
        if isinstance(given, Named) and isinstance(expected, Named) and given.name != expected.name:
            return False
        return _same(*(each.value if isinstance(each, Named) else each for each in (given, expected)))
    if isinstance(given, Reals) or isinstance(expected, Reals):
        return _same_reals(values.read_reals(given), values.read_reals(expected))
    if isinstance(given, Listed | Finite) or isinstance(expected, Listed | Finite):
        return _same_collection(given, expected)
    if type(given) is type(expected):
        return _SAME[type(expected)](given, expected)
    return _same_mixed(given, expected)


def _same_reals(given: Reals | None, expected: Reals | None) -> Verdict:
    """Return whether both have the same numbers, and the same name if both have one."""
    if given is None or expected is None or (given.name and expected.name and given.name != expected.name):
        return False
    with suppress(values.Unordered):
        given, expected = values.sort_intervals(given), values.sort_intervals(expected)
    if len(given.pieces) != len(expected.pieces):
        return False
    return _match_pairs(given.pieces, expected.pieces, _same_interval)


def _same_interval(given: RealInterval, expected: RealInterval) -> Verdict:
    if (given.low_open, given.high_open) != (expected.low_open, expected.high_open):
        return False
    return _all((values.equal_values(given.low, expected.low), values.equal_values(given.high, expected.high)))


def _match_pairs(given: Sequence[Any], expected: Sequence[Any], same: Callable[[Any, Any], Verdict]) -> Verdict:
    """Return whether each has its own partner; equality is transitive, so that the first partner will do."""
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
    """Compare lists with repetitions, and sets without; names give an order."""
    if isinstance(given, Finite) and isinstance(expected, Finite):
        return _all(_any(_same(one, other) for one in given.parts) for other in expected.parts) and _all(
            _any(_same(one, other) for other in expected.parts) for one in given.parts
        )
    if (assigned := _same_assignments(given, expected)) is not None:
        return assigned
    if isinstance(given, Bracketed) or isinstance(expected, Bracketed):
        return False
    return _match_pairs(_list_members(given), _list_members(expected), _same)


def _list_members(found: Shape) -> tuple[Shape, ...]:
    r"""Return the members of a list or set, without the name of the whole: `x = 1, 2`."""
    if not isinstance(found, Listed | Finite):
        return (found,)
    first, *rest = found.parts or (Words(""),)
    if isinstance(first, Named) and not any(isinstance(each, Named) for each in rest):
        first = first.value
    return (first, *rest) if found.parts else ()


def _same_assignments(given: Shape, expected: Shape) -> Verdict:
    """`x = 1, y = 2` against values without names, in the order of the names; None: it is not that."""
    sides = [_order_by_name(given), _order_by_name(expected)]
    if (sides[0] is None) == (sides[1] is None):
        return None
    plain = [
        tuple(side) if side else each.parts if isinstance(each, Listed | Bracketed) else (each,)
        for each, side in zip((given, expected), sides, strict=True)
    ]
    if all(isinstance(value, Bracketed) for side in plain for value in side):
        return _match_pairs(plain[0], plain[1], _same)  # points, whose names give no order
    return len(plain[0]) == len(plain[1]) and _all(map(_same, *plain))


def _order_by_name(found: Shape) -> list[Shape] | None:
    """Return the values in the order of their names, which all differ."""
    if not isinstance(found, Listed) or not all(isinstance(each, Named) for each in found.parts):
        return None
    by_name = {each.name: each.value for each in found.parts if isinstance(each, Named)}
    return [by_name[name] for name in sorted(by_name)] if len(by_name) == len(found.parts) else None


def _same_value(given: Value, expected: Value) -> Verdict:
    texts = _convert_to_one_unit(given, expected)
    if texts is None:
        return False
    equal = values.equal_values(*texts)
    return values.have_same_factors(*texts) if equal and values.asks_for_factors(*texts) else equal


def _convert_to_one_unit(given: Value, expected: Value) -> tuple[str, str] | None:
    """Return both as numbers of one unit; None if their units measure different things. A missing unit contradicts
    none."""
    if given.unit or expected.unit:
        given, expected = _read_letter_as_unit(given), _read_letter_as_unit(expected)
    if r"\pi" in given.text + expected.text and (_degrees(given.unit) != _degrees(expected.unit)):
        return _radians(given), _radians(expected)
    if given.unit is None or expected.unit is None or given.unit == expected.unit:
        return given.text, expected.text
    if given.unit.dimension != expected.unit.dimension:
        return None
    return _scale(given), _scale(expected)


def _read_letter_as_unit(value: Value) -> Value:
    """Read a letter without a space before it as a unit, because the other side has one: `10m` against `10cm`."""
    letter = None if value.unit else unit(value.text[-1:])
    return Value(value.text[:-1], letter) if letter and value.text[:-1].isdigit() else value


def _degrees(unit: Unit | None) -> bool:
    return unit is not None and unit.dimension == (("angle", 1),)


def _radians(value: Value) -> str:
    return rf"({value.text})\cdot\frac{{\pi}}{{180}}" if _degrees(value.unit) else value.text


def _scale(value: Value) -> str:
    assert value.unit is not None  # noqa: S101 - both have one
    factor = value.unit.factor
    return rf"({value.text})\cdot\frac{{{factor.numerator}}}{{{factor.denominator}}}"


def _same_bracketed(given: Bracketed, expected: Bracketed) -> Verdict:
    """Return whether both have the same kind of brackets and equal members."""
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
    worth = []
    for each in (given, expected):
        whole, _, behind = each.digits.partition(".")
        with suppress(ValueError):  # a digit is not one of its base
            worth.append(Fraction(int(whole + behind, each.base), each.base ** len(behind)))
    return given == expected or (len(worth) == 2 and worth[0] == worth[1])


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
    """Compare answers of different kinds: a missing base is ten, and `9:24` may be a ratio."""
    if isinstance(given, Words) != isinstance(expected, Words) and (number := _count(given) or _count(expected)):
        return _same(*(number if isinstance(each, Words) else each for each in (given, expected)))
    one, other = _text(given), _text(expected)
    if one is None or other is None:
        return False
    worded = isinstance(given, Words) or isinstance(expected, Words)
    return one.casefold() == other.casefold() or (not worded and values.equal_values(one, other))


def _count(found: Shape) -> Value | None:
    """Return the number of "five apples"; two such answers are compared as words, since a noun may be all that
    matters."""
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
