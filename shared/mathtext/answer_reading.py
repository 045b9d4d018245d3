r"""Reading what kind of thing an answer is: by brackets, separators and relations at its top level.

What stands between them is not computed here.
"""

import re

from shared.mathtext.answer_shape import (  # fmt: skip
    INFINITY,
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
    as_reals,
)
from shared.mathtext.units import unit

_OPENING = re.compile(r"\\begin\{[^{}]*\}|\\\{|\\langle|\\l[fv]\w*|[(\[{]")
_CLOSING = re.compile(r"\\end\{[^{}]*\}|\\\}|\\rangle|\\r[fv]\w*|[)\]}]")
_SEPARATOR = re.compile(
    r"[,;]|\\text\{,?\s*(?:and|or|和|或),?\s*\}|(?<![\\a-zA-Z{])(?:and|or)(?![a-zA-Z])|(?<=.)[和或](?=.)"
)
_AND = re.compile(r"(?<![a-zA-Z])and(?![a-zA-Z])")
_RELATION = re.compile(
    r"\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z])|\\in(?![a-zA-Z])|\\approx(?![a-zA-Z])|[<>=]"
)
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_MATRIX = re.compile(r"\\begin\{([pbv]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_BUILDER = re.compile(r"\\\{[a-z](?:\\in\\mathbb\{R\})?(?:\\mid|\||:)(.*)\\\}")
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
    r"|\([a-z](?:,[a-z]){1,3}\)|[A-Z]{2,4}|\|[A-Z]{2}\||\[[A-Z]{3,4}\]|\\overline\{[A-Z]{2}\}"
    r"|(?:m ?)?\\angle ?[A-Z]{1,3}"
    r"|\\(?:sin|cos|tan|cot|sec|csc) ?(?:\(?\\?[A-Za-z]+\)?|\\angle ?[A-Z]{1,3})|\\text\{[^{}]*\}|[A-Za-z]{3,}"
)
_LETTERS = re.compile(r"(?<![\\a-zA-Z])[A-Za-z]|\\(?:theta|alpha|beta|lambda)")
_MORE_WORDS = r"(?:[ -][A-Za-z0-9'’]+)"
_WORDS = re.compile(
    r"\\text\{([^{}]*)\}"
    rf"|([A-Z][a-z'’]{{2,}}{_MORE_WORDS}*|[a-z'’]{{5,}}{_MORE_WORDS}*|[a-z]{{2,}}{_MORE_WORDS}+|[A-Z]{{3,}}|[^\W\d_a-zA-Z]+)"
)
"""Of small letters, fewer than five without a blank are as often a product: `abc`."""
_TEXT_UNIT = re.compile(r"(.*[\w)}\]!'])\s*\\text\{([^{}]*)\}(?:\^\{?(\d)\}?)?")
_PLAIN_UNIT = re.compile(
    r"(.*[\d)}])(?: ([A-Za-z]+(?:[ ./]+[A-Za-z.]+)*)|([A-Za-z]{2,}|[^\W\d_a-zA-Z]+))(?:\^\{?(\d)\}?)?"
)
_ANGLES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_DEGREES = re.compile(r"(.*)(\^\\circ ?(?:[CF]|\\text\{[CF]\})?)")


def shape(text: str) -> Shape:
    """The shape of an answer in normal form; thousands in `1,234` are the elements of a list here."""
    parts = split(text, _SEPARATOR)
    if len(parts) > 1:
        return _list(tuple(shape(part) for part in parts if part), joined=bool(_AND.search(text)))
    return _alternatives(text) or _relation(text) or _union(text) or _enclosed(text) or _single(text)


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


def _list(parts: tuple[Shape, ...], *, joined: bool) -> Shape:
    r"""Inequalities are one set of numbers: what both allow if `joined` by "and", else what either allows."""
    if not parts or len(parts) == 1:
        return parts[0] if parts else Words("")
    reals = [part for part in parts if isinstance(part, Reals)]
    if len(reals) < len(parts) or len({part.name for part in reals}) > 1:
        return Listed(parts)
    pieces = tuple(piece for part in reals for piece in part.pieces)
    return Reals((_both(*pieces),) if joined and len(pieces) == 2 else pieces, reals[0].name)


def _both(one: Interval, other: Interval) -> Interval:
    """What lies in both half lines."""
    if one.low == "-" + INFINITY:
        one, other = other, one
    return Interval(one.low, other.high, one.low_open, other.high_open)


def _alternatives(text: str) -> Shape | None:
    r"""Both values of what has a `\pm`; signs that are given with `\mp` go together."""
    if r"\pm" not in text or split(text, _RELATION) != [text]:
        return None
    upper, lower = (re.sub(r"\\pm ?", sign, re.sub(r"\\mp ?", other, text)) for sign, other in ("+-", "-+"))
    return Listed((shape(upper.removeprefix("+")), shape(lower)))


def _union(text: str) -> Shape | None:
    parts = split(text, _UNION)
    if len(parts) == 1:
        return None
    pieces = [as_reals(shape(part)) for part in parts]
    if any(piece is None for piece in pieces):
        return Value(text)
    return Reals(tuple(one for piece in pieces if piece for one in piece.pieces))


def _relation(text: str) -> Shape | None:
    sides = split(text, _RELATION)
    if len(sides) == 1:
        return None
    signs = _signs(text)
    if r"\approx" in signs:
        return shape(next(filter(None, sides), ""))
    if set(signs) <= {"="} or signs == [r"\in"]:
        return _named(sides, text)
    return _inequality(sides, signs) or Relation(text)


def _signs(text: str) -> list[str]:
    signs, at, depth = [], 0, 0
    while at < len(text):
        found = _RELATION.match(text, at) if depth == 0 else None
        if found:
            signs.append(found[0])
            at = found.end()
        else:
            depth, at = _step(text, at, depth)
    return signs


def _named(sides: list[str], text: str) -> Shape:
    """A name with the last value of a chain; a computation with its result; else an equation."""
    if len(sides) == 2 and _NAME.fullmatch(sides[1]) and not _LETTERS.search(sides[0]):
        sides = [sides[1], sides[0]]
    if _NAME.fullmatch(sides[0]):
        value = shape(sides[-1])
        numbers = as_reals(value) if r"\in" in text else None
        return numbers._replace(name=sides[0]) if numbers else Named(sides[0], value, text)
    computed = not any(_LETTERS.search(side) for side in sides)
    return shape(sides[-1]) if computed else Relation(text)


def _inequality(sides: list[str], signs: list[str]) -> Reals | None:
    """`x < 3`, `3 > x`, `1 < x \\le 2` and `x \\ne 3` as numbers that x may be."""
    if {*signs} <= {">", r"\ge"}:
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    names = [at for at, side in enumerate(sides) if _NAME.fullmatch(side)]
    if len(names) != 1 or any(_LETTERS.search(side) for at, side in enumerate(sides) if at not in names):
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
    parts = tuple(shape(part) for part in split(inner, re.compile("[,;]")) if part)
    if opened[0] == r"\{":
        return Finite(parts)
    return Bracketed(opened[0], text[opened.end() + len(inner) :], parts) if len(parts) > 1 else None


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
    return _measured(text) or _worded(text) or Value(text)


def _digits_of(digits: str, base: int) -> bool:
    """Whether they may be digits of a number in that base; a small letter with an index is a name."""
    leading = digits.lstrip("-")[0]
    return base > 1 and (leading.isdigit() or (base > 10 and digits.isupper()))


def _measured(text: str) -> Value | None:
    """A value and its unit; of one that is not known only that there is none."""
    if _ANGLES.search(text):
        return None
    if text.startswith((r"\$", r"-\$")):
        return Value(text.replace(r"\$", "", 1), unit("dollar"))
    for pattern in (_DEGREES, _TEXT_UNIT, _PLAIN_UNIT):
        match = pattern.fullmatch(text)
        if match and match[1].strip():
            words, power = _unit_of(match)
            known = unit(words, power)
            if known or pattern is _TEXT_UNIT or len(words) > 2 or not words.isascii():
                return Value(match[1].strip(), known)
    return None


def _unit_of(match: re.Match[str]) -> tuple[str, int]:
    groups = [group for group in match.groups()[1:] if group]
    power = int(groups.pop()) if len(groups) > 1 and groups[-1].isdigit() else 1
    return groups[0], power


def _worded(text: str) -> Words | None:
    match = _WORDS.fullmatch(text)
    if match is None:
        return None
    words = " ".join((match[1] or match[2] or "").split()).strip(" .()")
    return Words(words if len(words) == 1 else words.casefold())
