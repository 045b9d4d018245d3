r"""Numbers in words: six thousand, two and a half, minus three quarters, 三分之一, 七千二百亿, 3.5万, 两个半.

English ones are read from a text's beginning, Chinese ones, which may hold digits, with the unit behind them.
"""

import re
from collections.abc import Sequence
from fractions import Fraction

from shared.mathtext.counting_words import MULTIPLYING, PERCENT, POWERS, SCALES, divisor
from shared.mathtext.units import is_counted_noun, strip_filler_words, unit

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * at for at, word in enumerate(_TENS, start=2)}
_SIGNS = {"minus": "-", "negative": "-", "plus": "", "positive": ""}
_ARTICLES = ("a", "an")
MOST_WORDS = 40
"""Of a number in words."""
_PLAIN = re.compile(r"[A-Za-z0-9 -]+")
_IN_TEXT = re.compile(r"\\(?:text|mbox|mathrm) *\{([A-Za-z -]*)\}")
_TAIL = re.compile(rf"{PERCENT}|{'|'.join(POWERS)}")
_SIGNED = re.compile(r"(?:\\text\{)?(minus|negative|plus|positive)(?: *\})? *", re.IGNORECASE)

SCALED = re.compile(
    r"(\\frac\{\d{1,100}\}\{\d{1,100}\}|(?<![\w.,^/)}])\d{1,100}/\d{1,100}"
    r"|(?<![\w.,^{/])\d{1,100}(?:,\d{3}(?!\d)){0,30}(?:\.\d{1,100})?)"
    rf"\s*(\\text\{{)?\s*((?:{MULTIPLYING})(?:[ -](?:{MULTIPLYING})){{0,3}})(?![a-zA-Z])(?(2)(\s*\}})?)"
)
"""A number in digits and what it is multiplied with, as in 2.5 million dollars; see `scaled`."""

_SAME_CHARACTERS = str.maketrans("〇两兩壹贰叁肆伍陆柒捌玖拾佰仟萬億點負", "零二二一二三四五六七八九十百千万亿点负")
_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_GROUPS = {"亿": 100_000_000, "万": 10_000}
_GROUP_ENDS = "千万亿"
_CHARACTERS = "".join([*_DIGITS, *_PLACES, *_GROUPS])
_NUMBER = rf"[\d.{_CHARACTERS}]{{1,100}}(?:点[{''.join(_DIGITS)}]{{1,100}}[{_GROUP_ENDS}]{{0,3}})?"
_CHINESE = re.compile(rf"([负-]?)(?:({_NUMBER})又)?(?:({_NUMBER})分之)?({_NUMBER})([^\W\d_a-zA-Z]{{0,20}})")
_PIECE = re.compile(rf"({_NUMBER})([^\W\d_a-zA-Z{_CHARACTERS}]{{1,3}})")
_SEVERAL = re.compile(rf"(?:{_PIECE.pattern}){{2,4}}")
"""Measures of one quantity: 三元五角."""
_DECIMAL = re.compile(r"\d+(?:\.\d+)?")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|.")
_THOUSANDS_OF_UNITS = "克米瓦焦卡帕赫伏"
"""千 in front of them belongs to the unit: 5千克 are five kilograms."""
_MEASURE_WORDS = "个只名人位本张条件头棵支枝辆块种颗粒页岁幅双盒箱袋瓶杯架艘朵盆层题组"
"""What stands between a number and what is counted; before other characters 一 is no number: 一样."""
_ALONE = ("次", "倍", "分")
"""The same, without anything behind it: 三次 is three times, 三次方程 a cubic equation."""


def with_digits(text: str) -> str:
    r"""`text` with the number that it begins with in digits, if there is nothing behind it but a unit; else as it is.

    Fractions become `\frac`, percentages end in a percent sign.
    """
    sign = _SIGNED.match(text)
    if sign is None:
        return _spelled(text) or _in_chinese(text.translate(_SAME_CHARACTERS)) or text
    rest = text[sign.end() :]
    digits = _spelled(rest)
    if digits is None and not (rest[:1].isdecimal() or rest.startswith((r"\frac", r"\sqrt", r"\pi", r"\inf", "inf"))):
        return text
    return _SIGNS[sign[1].lower()] + (digits or rest)


def _spelled(text: str) -> str | None:
    """The digits for English words, with the unit behind them."""
    found = spoken(_IN_TEXT.sub(r" \1 ", text))
    if found is None:
        return None
    behind = strip_filler_words(found[1], found[0])
    if not behind or _TAIL.fullmatch(behind) or unit(behind):
        return f"{found[0]} {behind}".strip()
    name, _, rest = behind.partition(" ")
    following = _spelled(rest.removeprefix("and ")) if unit(name) else None
    return f"{found[0]} {name} {following}" if following else None


def spoken(text: str) -> tuple[str, str] | None:
    """The number in English words that `text` begins with, in digits, and the words behind it; None: it does not."""
    words = re.split(r"[ -]+", text.strip().lower())
    if not _PLAIN.fullmatch(text) or len(words) > MOST_WORDS:
        return None
    value, used = _value(words)
    if not used or (used == 1 and words[0].isdecimal()):
        return None
    return written(value), " ".join(words[used:])


def scaled(match: re.Match[str]) -> str:
    r"""The digits of what `SCALED` matches: 2500000 of `2.5\text{ million}`; `\text{` is opened again for the rest."""
    number, opened, words, closed = match.groups()
    value = Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", number).replace(",", ""))
    for word in re.split("[ -]", words):
        below = divisor(word, one=value == 1)
        if word not in SCALES and below is None:
            return match[0]
        value = value * SCALES[word] if below is None else value / below
    return written(value) + (r"\text{" if opened and not closed else "")


def written(value: Fraction) -> str:
    r"""In digits, as a decimal where it is one, else as a `\frac`."""
    if value.denominator == 1:
        return str(value.numerator)
    places = next((places for places in range(1, 100) if 10**places % value.denominator == 0), None)
    if places is None:
        return rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    digits = f"{abs(int(value * 10**places)):0{places + 1}}"
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _value(words: Sequence[str]) -> tuple[Fraction, int]:
    """What the words say, and how many of them say it; none if there is no number."""
    whole, used = _cardinal(words)
    value = Fraction(whole)
    if (part := _part(words))[1] > used:
        value, used = part
    elif used and words[used : used + 1] == ["and"] and 0 < (part := _part(words[used + 1 :]))[0] < 1:
        value, used = value + part[0], used + 1 + part[1]
    elif words[used : used + 1] == ["point"]:
        value, used = _with_decimals(value, words, used + 1)
    for behind in ([], ["a"], ["of", "a"]):
        at = used + len(behind)
        if used and words[used:at] == behind and at < len(words) and words[at] in SCALES:
            return value * SCALES[words[at]], at + 1
    return value, used


def _with_decimals(whole: Fraction, words: Sequence[str], at: int) -> tuple[Fraction, int]:
    """Three point one four: the digits from word `at` on."""
    digits = ""
    while at < len(words) and words[at] in _SMALL[:10]:
        digits += str(_VALUES[words[at]])
        at += 1
    return (whole + Fraction(f"0.{digits}"), at) if digits else (whole, 0)


def _cardinal(words: Sequence[str]) -> tuple[int, int]:
    """A whole number: words below a hundred, hundreds, and groups of thousands, each smaller than the one before."""
    if words[0].isdecimal():
        return (int(words[0]), 1) if len(words[0]) < 100 else (0, 0)
    if words[0] in _ARTICLES and len(words) > 1 and words[1] in SCALES:
        words = ["one", *words[1:]]
    total, group, used, last = 0, 0, 0, None
    for at, word in enumerate(words):
        small, scale = _VALUES.get(word), SCALES.get(word)
        if small is not None and _fits(group, small, first=at == 0 or words[at - 1] in (*SCALES, "and")):
            group += small
        elif word == "hundred" and 0 < group < 100:
            group *= 100
        elif scale and group and (last is None or scale < last):
            total, group, last = total + group * scale, 0, scale
        elif word == "and" and _joins(words, at):
            continue
        else:
            break
        used = at + 1
    return total + group, used


def _joins(words: Sequence[str], at: int) -> bool:
    """Whether the "and" at word `at` goes on with the number: a hundred and five, but not a hundred and a half."""
    behind = words[at + 1 :]
    return at > 0 and words[at - 1] in SCALES and bool(behind) and behind[0] in _VALUES and not _part(behind)[1]


def _fits(group: int, small: int, *, first: bool) -> bool:
    """Whether `small` may follow what the words of a group have said: twenty one, but not one twenty."""
    return first or (0 < small < 10 and group % 100 >= 20 and group % 10 == 0)


def _part(words: Sequence[str]) -> tuple[Fraction, int]:
    """A fraction: half, a third, two thirds, five twenty-fourths."""
    if words[:1] == ["half"]:
        return Fraction(1, 2), 1
    above, used = (1, 1) if words[0] in _ARTICLES else _cardinal(words)
    tens = 10 * (_TENS.index(words[used]) + 2) if used and used < len(words) and words[used] in _TENS else 0
    last = used + bool(tens)
    below = divisor(words[last], one=above == 1) if used and last < len(words) else None
    if below is None or (tens and below > 9):
        return Fraction(0), 0
    return Fraction(above, tens + below), last + 1


def _in_chinese(text: str) -> str | None:
    """None: it is no number with Chinese characters, or there is something else than a unit behind it."""
    if text.startswith("半") or text == "一半":
        behind = text[text.index("半") + 1 :]
        return rf"\frac{{1}}{{2}}{behind}" if _measures(behind) else None
    if _SEVERAL.fullmatch(text):
        pieces = [_in_chinese("".join(piece)) or "".join(piece) for piece in _PIECE.findall(text)]
        return "".join(pieces) if all(piece[0].isdecimal() for piece in pieces) else None
    match = _CHINESE.fullmatch(text)
    if match is None:
        return None
    sign, whole, below, number, behind = match.groups()
    digits = set(text[: match.start(5)]) <= set("-.0123456789")
    if number[-1] == "千" and behind[:1] in list(_THOUSANDS_OF_UNITS) and number[0].isdecimal():
        number, behind, digits = number[:-1], "千" + behind, True
    half, behind = _half(behind)
    if (digits and not half) or not (number[0].isdecimal() or _measures(behind)):
        return None
    parts = [_worth(each) for each in (number, below or "一", whole or "零")]
    if None in parts or not parts[1]:
        return None
    value = (parts[0] or 0) / parts[1] + (parts[2] or 0) + (half or 0)
    if below == "百" and not whole:
        return f"{sign and '-'}{written(value * 100)}%"
    return f"{sign and '-'}{written(value)}{behind}"


def _half(behind: str) -> tuple[Fraction | None, str]:
    """The half in what stands behind a number, and the unit without it: 两个半小时, 三天半."""
    if behind.startswith("个半"):
        return Fraction(1, 2), behind[2:]
    if behind.endswith("半") and unit(behind[:-1]):
        return Fraction(1, 2), behind[:-1]
    return None, behind


def _measures(behind: str) -> bool:
    """Whether what stands behind a number in characters is a unit, or begins with a measure word."""
    if not behind or behind in _ALONE or unit(behind):
        return True
    return behind[0] in _MEASURE_WORDS and is_counted_noun(behind)


def _worth(characters: str) -> Fraction | None:
    """What they are worth: hundreds of millions before ten thousands, of which there may be hundreds of millions."""
    for group, size in _GROUPS.items():
        above, found, below = characters.rpartition(group)
        if found:
            many, rest = _worth(above), _worth(below) if below else Fraction(0)
            if many is None or rest is None:
                return None
            return many * size + (rest * (size // 10) if len(below) == 1 else rest)
    return _below_ten_thousand(characters)


def _below_ten_thousand(characters: str) -> Fraction | None:
    """Digits times places; without places, digits alone; behind the point, digits."""
    whole, _, behind = characters.partition("点")
    tokens = _TOKEN.findall(whole)
    if any(token in _PLACES for token in tokens):
        total = _places(tokens)
    else:
        digits = "".join(str(_DIGITS.get(token, token)) for token in tokens)
        total = Fraction(digits) if _DECIMAL.fullmatch(digits) and (len(tokens) == 1 or whole.isalpha()) else None
    decimals = "".join(str(_DIGITS[character]) for character in behind)
    return total + Fraction(f"0.{decimals}") if total is not None and decimals else total


def _places(tokens: Sequence[str]) -> Fraction | None:
    """A digit behind a place, without a zero, counts the next one: 一百二 is 120, 一百零二 is 102."""
    total, digit, place = Fraction(0), None, 1
    for token in tokens:
        if token in _PLACES:
            place = _PLACES[token]
            total, digit = total + (1 if digit is None else digit) * place, None
        elif digit or token == ".":
            return None
        else:
            digit = Fraction(_DIGITS.get(token, token))
            place = 1 if digit == 0 else place
    return total + (digit or 0) * max(1, place // 10)
