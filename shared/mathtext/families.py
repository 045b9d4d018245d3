r"""Answers that hold for all values of a letter: `x = 2k\pi, k \in \mathbb{Z}`, `n+1 \text{ for all integers } n`.

What says so is split off: it is the same answer without it, with another letter, and, of whole numbers, with another
first member. Conditions that take something away ("for even n", "x > 3, x an integer") are not split off.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from shared.mathtext.answer_reading import SEPARATOR, split
from shared.mathtext.answer_shape import Family
from shared.mathtext.equal_values import compare_numbers, equal_values, real

_IN_TEXT = re.compile(r"\\text\{([^{}]*)\}")
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
"""Characters of what says for which values an answer holds."""
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
    """The text in normal form without what says for which values of a letter it holds; None: it does not say that."""
    if built := _BUILT.fullmatch(text):
        return family(built[2] if built[2].startswith(f"{built[1]}=") else f"{built[1]},{built[2]}")
    flat = " ".join(_IN_TEXT.sub(r" \1 ", text).split())
    for match in _INTRODUCTION.finditer(flat, max(1, len(flat) - LONGEST)):
        if found := _read_qualifier(flat[match.start() :], named=bool(_NAMED.match(flat))):
            return _unless_restricted(Family(flat[: match.start()].strip(" ,;"), *found))
    if (spaced := _SPACED.search(flat)) and spaced[1] in letters(flat[: spaced.start()]):
        domain = _domain_of(spaced[2]) or ""
        return _unless_restricted(Family(flat[: spaced.start()], spaced[1], domain, members=domain == "Z"))
    return _introduced(flat) if _ALL.match(flat) else None


def letters(text: str) -> set[str]:
    """The letters of a formula that are names, or parts of one."""
    return {letter for word in _NAMES.findall(_IN_TEXT.sub(" ", text)) for letter in word}


def rename(text: str, old: str, new: str) -> str:
    """The formula with the name `old` replaced."""
    return _NAME_OR_COMMAND.sub(lambda match: new if match[0] == old else match[0], text)


def same_members(one: str, other: str, letter: str) -> bool:
    """Whether both texts, lists of arithmetic progressions in `letter`, have the same members: k pi, and 2k pi with
    pi + 2k pi. False also where that cannot be said.
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
    one_side, other_side = ([member for each in side if each for member in _members(each, period)] for side in sides)
    return _covered(one_side, other_side, period) and _covered(other_side, one_side, period)


def _covered(some: Sequence[str], others: Sequence[str], period: str) -> bool:
    """Whether each of `some` is one of the others, or a number of periods away from one."""
    return all(any(_is_whole(f"({one}-({other}))/({period})") for other in others) for one in some)


def _progressions(text: str, letter: str) -> Iterator[_Progression | None]:
    """One for each part of the text; None: it is no progression."""
    for part in split(text, SEPARATOR):
        name, _, value = part.rpartition("=")
        for sign, opposite in ("+-", "-+") if r"\pm" in value else ("+-",):
            signed = value.replace(r"\pm", sign).replace(r"\mp", opposite).removeprefix("+")
            first, second, third = (rename(signed, letter, f"({at})") for at in (0, 1, 2))
            steps = f"({second})-({first})", f"({third})-({second})"
            linear = real(steps[0]) is not None and equal_values(*steps) and not equal_values(steps[0], "0")
            yield _Progression(name.strip(), first, steps[0]) if linear else None


def _common_period(steps: Sequence[str]) -> str | None:
    """The smallest multiple of all steps; None: it is more than `MOST_MEMBERS` times one of them."""
    period = steps[0]
    for step in steps[1:]:
        ratio = _ratio(period, step)
        if ratio is None:
            return None
        period = f"({period})*{ratio.denominator}"
    ratios = [_ratio(period, step) for step in steps]
    return period if all(ratio and abs(ratio) <= MOST_MEMBERS for ratio in ratios) else None


def _members(progression: _Progression, period: str) -> list[str]:
    """Those of one period."""
    count = _ratio(period, progression.step)
    return [f"{progression.first}+{at}*({progression.step})" for at in range(abs(int(count or 0)))]


def _ratio(one: str, other: str) -> Fraction | None:
    """Of two numbers, as a fraction of small whole ones; None: it is none."""
    value = real(f"({one})/({other})")
    if value is None or not 0 < abs(value) < MOST_MEMBERS**3:
        return None
    found = Fraction(float(value)).limit_denominator(MOST_MEMBERS)
    return found if compare_numbers(value, found) == 0 else None


def _is_whole(text: str) -> bool:
    value = real(text)
    return value is not None and compare_numbers(value, Fraction(round(float(value)))) == 0


def _introduced(flat: str) -> Family | None:
    """All positive integers n = 3k."""
    for match in _TOKEN.finditer(flat):
        word = match[0].lower()
        if word not in _QUANTIFIERS | _OTHERS | _ALSO_BEFORE and word not in _DOMAINS:
            named = any(token in _DOMAINS for token in _TOKEN.findall(flat[: match.start()]))
            return Family(flat[match.start() :], "", "") if named else None
    return None


def _read_qualifier(tail: str, *, named: bool) -> tuple[str, str, bool] | None:
    """Read the letter and the domain from ", k in Z" or "for all integers n".

    The third value tells whether the answer is the family's members; after "for all" it is only if the family has a
    name. None if the tail is no such qualifier.
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
    """A letter, but not the article, nor a set behind "in"."""
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
