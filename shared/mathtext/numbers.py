"""Numbers as people write them: numerals, words, units, counting words and programs' notation."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

# Words that change the value of the number next to them: 2.5 billion, 7 tenths, 5 squared, half of 12.
#
# Named once, for the grader, which must not take them for units, and for `equations`, which must not take 12 out of
# "12 dozen". Words of numbers (six, twenty) follow below.

SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "bn": 10**9, "trillion": 10**12,
    "quadrillion": 10**15, "dozen": 12, "score": 20, "gross": 144,
}  # fmt: skip
SCALES |= {f"{word}s": value for word, value in SCALES.items() if word not in ("bn", "score", "gross")}
POWERS = {"squared": 2, "cubed": 3}
_PART = {
    "half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30, "fortieth": 40,
    "fiftieth": 50, "sixtieth": 60, "seventieth": 70, "eightieth": 80, "ninetieth": 90, "hundredth": 100,
    "thousandth": 1000, "millionth": 10**6, "billionth": 10**9, "trillionth": 10**12,
}  # fmt: skip
_PARTS = {"halves": 2, **{f"{word}s": value for word, value in _PART.items() if word != "half"}}
PERCENT = r"per ?cent(?:age)?|pct"
VALUE_CHANGING = frozenset(
    {*SCALES, *POWERS, *_PART, *_PARTS}
    | set(
        (
            "of plus minus times divided multiplied over by per half twice thrice double triple percent "
            "percentage pct remainder between from to more less than mod modulo choose sqrt root log ln sin cos "
            "tan pi factorial"
        ).split()
    )
)
"""A quantity continues behind, or before, these words."""
MULTIPLYING = "|".join(sorted({*SCALES, *_PART, *_PARTS}, reverse=True))
"""A pattern of words that multiply or divide the number before them."""
SCALING = f"{MULTIPLYING}|{'|'.join(POWERS)}|cents?|{PERCENT}"
"""A pattern of words behind a number that make it worth something else."""


def divisor(word: str, *, one: bool) -> int | None:
    """Return the divisor that `word` gives the number before it: 10 for "tenths". `one`: the number is one, so the word
    is in the singular. None if it does not divide, like "third" in "twenty third".
    """
    return (_PART if one else _PARTS).get(word)


# The words after a number: units, which of them contradict each other, conversion between units, and counted nouns.
#
# **A counted noun** is recognised by its form, without a dictionary. It is a phrase of one to three words without a
# verb, a negation, a comparative, a quantifier, a number or another word of `_NO_NOUN`. The last word is in the plural,
# or, after one or a fraction, in the singular. "of" or "per" may join two such phrases: 5 cups of tea, 3 apples per
# day. In Chinese it is a word of at most eight characters without those of `_NO_CHINESE_NOUN`. All other words after a
# number may change its meaning: "5 is wrong", "3 or fewer" and "5 factorial" are not 5 and 3.
Dimension = tuple[tuple[str, int], ...]


class Unit(NamedTuple):
    """A unit that is known."""

    dimension: Dimension
    """Such as (("length", 2),): what is measured."""
    factor: Fraction
    """What it is worth in the dimension's own unit."""


def _base(dimension: str, factor: str, names: str) -> dict[str, Unit]:
    unit = Unit(((dimension, 1),), Fraction(factor))
    return dict.fromkeys(names.split(), unit)


_BASE: Mapping[str, Unit] = {
    **_base("length", "1/1000", "mm millimeter millimetre 毫米"),
    **_base("length", "1/100", "cm centimeter centimetre 厘米"),
    **_base("length", "1/10", "dm decimeter decimetre 分米"), **_base("length", "1", "m meter metre 米"),
    **_base("length", "1000", "km kilometer kilometre 千米 公里"), **_base("length", "0.0254", "in inch inches"),
    **_base("length", "0.3048", "ft foot feet"), **_base("length", "0.9144", "yd yard"),
    **_base("length", "1609.344", "mi mile"),
    **_base("mass", "1/1000", "mg milligram 毫克"), **_base("mass", "1", "g gm gram 克"),
    **_base("mass", "1000", "kg kilogram 千克 公斤"), **_base("mass", "500", "斤"),
    **_base("mass", "1000000", "ton tonne 吨"),
    **_base("mass", "453.59237", "lb pound"), **_base("mass", "28.349523125", "oz ounce"),
    **_base("time", "1", "s sec second 秒"), **_base("time", "60", "min minute 分钟"),
    **_base("time", "3600", "h hr hour 小时 时"), **_base("time", "86400", "day 天"),
    **_base("time", "604800", "week 周 星期"),
    **_base("month", "1", "month 月 个月"), **_base("month", "12", "year yr 年"),
    **_base("volume", "1", "l liter litre 升"), **_base("volume", "1/1000", "ml milliliter millilitre 毫升"),
    **_base("gallon", "1", "gal gallon"), **_base("gallon", "1/4", "qt quart"),
    **_base("gallon", "1/8", "pt pint"), **_base("gallon", "1/16", "cup"),
    **_base("gallon", "1/256", "tbsp tablespoon"),
    **_base("gallon", "1/768", "tsp teaspoon"), **_base("acre", "1", "acre"),
    **_base("dollar", "1", "dollar usd 美元"), **_base("dollar", "1/100", "cent ¢ 美分"),
    **_base("euro", "1", "euro 欧元"),
    **_base("sterling", "1", "poundssterling"), **_base("yuan", "1", "yuan rmb 元 块"),
    **_base("yuan", "1/10", "角 毛"),
    **_base("angle", "1", "degree deg ^\\circ 度"), **_base("radian", "1", "radian rad 弧度"),
    **_base("celsius", "1", "^\\circc ^\\circ\\text{c} celsius degreescelsius 摄氏度"),
    **_base("fahrenheit", "1", "^\\circf ^\\circ\\text{f} fahrenheit degreesfahrenheit 华氏度"),
    **_base("morning", "1", "am"), **_base("afternoon", "1", "pm"),
    **_base("speed", "0.44704", "mph"), **_base("speed", "5/18", "kph kmph kmh"),
}  # fmt: skip
_SQUARE = re.compile(r"^(?:square|squared|sq|平方)|squared$")
_CUBIC = re.compile(r"^(?:cubic|cu|立方)|cubed$")
_PER = re.compile(r"/|per")
_OTHER_MEANINGS: Mapping[str, tuple[Unit, ...]] = {
    "分": (_BASE["分钟"], Unit((("yuan", 1),), Fraction(1, 100))), "m": (_BASE["minute"],),
    "两": (Unit((("mass", 1),), Fraction(50)),),
}  # fmt: skip
"""Beside other units: 5元3分, 1时30分, 1 h 30 m."""
_MEASURE = re.compile(
    r"\s*(\d{1,100}(?:\.\d{1,100})?|\\frac\{\d{1,100}\}\{\d{1,100}\})"
    r" ?(?:\\text\{([^{}]*)\}|([A-Za-z]+)|([^\W\d_a-zA-Z]{1,4}?)零?(?=\d|$))[ ,]*"
)
_AND = re.compile(r"(?:and(?![a-zA-Z])|\\text\{and\}) ?")
MOST_MEASURES = 4
"""Of one quantity: days, hours, minutes and seconds."""

_NO_NOUN = VALUE_CHANGING | frozenset(
    (
        "is are was were be been being am isn't aren't wasn't has have had do does did doesn't don't can could "
        "will would shall should may might must cannot equals equal exceeds works fails exists holds seems "
        "appears gives yields makes becomes remains satisfies lies means differs suffices counts needs wins loses "
        "ends begins starts stops runs goes not no never none neither nor without except and or if then when "
        "while unless because since although though so thus hence therefore as that which who whose what where "
        "how why fewer greater smaller larger bigger higher lower longer shorter better worse most least fewest "
        "greatest smallest largest maximum minimum max min about around approximately nearly almost roughly circa "
        "exactly precisely only just at up down above below under beyond among within outside until till upwards "
        "downwards onwards afterwards backwards forwards all any some each every both either many much few "
        "several another enough too very quite rather in on for with into onto upon off out through during before "
        "after ago fold always sometimes perhaps maybe besides across versus vs us yes this its his hers theirs "
        "ours whereas else one two three four five six seven eight nine ten eleven twelve twenty ones tens binary "
        "octal hexadecimal base it a an the these those there here he she they we you i me my our your their"
    ).split()
)
_SHORT = ("is", "or", "if", "no", "to", "up", "by", "of")
_NO_LAST_WORD = frozenset({
    "wrong", "right", "correct", "incorrect", "true", "false", "valid", "invalid", "impossible", "prime", "odd", "even",
})  # fmt: skip
_PLURALS_WITHOUT_S = frozenset(
    ("feet people children men women teeth geese mice dice fish sheep deer data vertices indices unit o'clock").split()
)
_WORD = re.compile(r"[A-Za-z](?:[A-Za-z'’-]*[A-Za-z])?")
_UNIT_TAIL = re.compile(
    r" ?(?:in total|in all|total|altogether|left|remaining|old|long|wide|high|tall|deep|away|apart)"
)
_OF_A = re.compile(r"(?:of )?(?:an?|the) ")
_SINGULAR = re.compile(r"-?(?:1|0?\.\d+|\d{1,9}/\d{1,9}|\\frac\{\d{1,9}\}\{\d{1,9}\})")
_NO_CHINESE_NOUN = re.compile(
    "[不没未非或余几约半万亿零一二三四五六七八九十百千]|^多|多$|左右|以[上下内外]|上下|超过|大于|小于|多于|少于|等于|至少|至多|最[多少]|是|错|正确"
    "|^[成折]$|分之|^的"
)
_CHINESE_NOUN = re.compile(r"[^\W\d_a-zA-Z]{1,8}")
_SYMBOL = re.compile(r"[A-Za-zµ]{1,3}|(?=.*[A-Z])[A-Za-z]{1,4}")


def unit(words: str, power: int = 1) -> Unit | None:
    """Return the unit that `words` name, to a `power`, such as cm to the power 2; None if they name none that is
    known."""
    name = re.sub(r"[\s.]", "", words).lower()
    above, *below = _PER.split(name) if name not in _BASE else [name]
    if len(below) > 1 or power < 1:
        return None
    found = _power(above, power)
    divisor = _power(below[0], 1) if below else None
    if found is None or not below:
        return found
    if divisor is None:
        return None
    if (found.dimension, divisor.dimension) == ((("length", 1),), (("time", 1),)):
        return Unit((("speed", 1),), found.factor / divisor.factor)
    inverse = tuple((dimension, -power) for dimension, power in divisor.dimension)
    return Unit(tuple(sorted(found.dimension + inverse)), found.factor / divisor.factor)


def _power(name: str, power: int) -> Unit | None:
    for pattern, exponent in ((_SQUARE, 2), (_CUBIC, 3)):
        if name not in _BASE and pattern.search(name):
            name, power = pattern.sub("", name), exponent
    known = _BASE.get(name) or _BASE.get(name.removesuffix("s")) or _BASE.get(name.removesuffix("es"))
    if known is None:
        return None
    ((dimension, one),) = known.dimension
    return Unit(((dimension, one * power),), known.factor**power)


def strip_filler_words(words: str, number: str) -> str:
    """Return the words behind a number without those that name no unit: 5 years old, 3/4 of a mile, 5 left."""
    stripped = " ".join(words.replace(".", " ").split())
    if _SINGULAR.fullmatch(number) and (found := _OF_A.match(stripped)):
        stripped = stripped[found.end() :]
    tail = stripped.rfind(" in ") if stripped.endswith((" in total", " in all")) else stripped.rfind(" ")
    return stripped[: max(tail, 0)] if _UNIT_TAIL.fullmatch(stripped[max(tail, 0) :]) else stripped


def is_counted_noun(words: str, number: str = "", *, in_text: bool = False) -> bool:
    """Return whether the words after a number are a counted noun by the rules above (5 apples), or empty.

    `in_text`: they are in LaTeX's `\\text`, where letters are not variables, so a unit's symbol (kPa) counts.
    """
    if not words or _CHINESE_NOUN.fullmatch(words):
        return not _NO_CHINESE_NOUN.search(words)
    if in_text and _SYMBOL.fullmatch(words) and words.lower() not in _NO_NOUN:
        return True
    phrases = re.split(r" (?:of|per) ", words.removeprefix("per "))
    return (
        len(phrases) <= 2
        and all(map(_is_noun_phrase, phrases))
        and (words.startswith("per ") or _is_plural(phrases[0]) or bool(_SINGULAR.fullmatch(number)))
    )


def changes_value(word: str) -> bool:
    """Tell whether a word can change the value of the number before it (dozen, squared, not).

    Of words of two letters only a few do: others may be a product, such as `at`.
    """
    return word in _NO_NOUN and (len(word) > 2 or word in _SHORT)


def _is_noun_phrase(phrase: str) -> bool:
    words = phrase.lower().replace("’", "'").split()
    plain = all(_WORD.fullmatch(word) and word not in _NO_NOUN for word in words)
    return plain and 0 < len(words) <= 3 and words[-1] not in _NO_LAST_WORD


def _is_plural(phrase: str) -> bool:
    last = phrase.rpartition(" ")[2]
    ends = last.lower().endswith(("s", "ii", "ia")) and not last.lower().endswith("ss")
    return ends or last.lower() in _PLURALS_WITHOUT_S or (len(last) > 2 and last.isupper())


def compound(text: str, *, joined: bool = False) -> tuple[str, Unit] | None:
    r"""Read a quantity in several units, largest first, as a sum in the first unit: `1 hour 30 minutes`, `12元5角`.

    `joined`: "and" or a comma may separate the units. None if the text is not a quantity.
    """
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _MEASURE.match(text, at)
        if match is None or len(found) == MOST_MEASURES or ("," in match[0] and not joined):
            return None
        name = next(filter(None, match.groups()[1:]), "").strip()
        found.append((match[1], name.removesuffix(" and") if joined else name))
        at = match.end()
        if joined and found and (between := _AND.match(text, at)):
            at = between.end()
    meanings = [[known for known in (unit(name), *_OTHER_MEANINGS.get(name, ())) if known] for _, name in found]
    for first, *others in product(*meanings) if len(found) > 1 else ():
        units = [first, *others]
        if all(one.dimension == other.dimension and one.factor > other.factor for one, other in pairwise(units)):
            shares = (each.factor / first.factor for each in units)
            parts = [
                rf"{number}\cdot\frac{{{share.numerator}}}{{{share.denominator}}}"
                for (number, _), share in zip(found, shares, strict=True)
            ]
            return "+".join(parts), first
    return None


# The value of a written number: with commas, a point, a period under a bar, or in another base.

MOST_DIGITS = 300
"""Characters of a number; a longer one is not read."""


@lru_cache(maxsize=4096)
def numeral(digits: str, base: str = "10") -> tuple[Fraction, int | None] | None:
    """Return the value, and the number of digits after the decimal point (None without one); None if it is not a
    number.

    `digits` as in LaTeX: `40{,}000`, `0.1\\overline{6}`; `base` as its subscript says.
    """
    written = digits.replace("{,}", "").replace(",\\!", "").replace(",", "")
    if len(written) > MOST_DIGITS:
        return None
    if base != "10":
        try:
            return (Fraction(int(written, int(base))), None) if int(base) > 1 else None
        except ValueError:
            return None
    head, bar, period = written.partition("\\overline")
    whole, point, behind = head.partition(".")
    try:
        if not bar:
            return Fraction(int(whole + behind), 10 ** len(behind)), len(behind) if point else None
        period = period.strip("{}")  # the digits behind the bar, over as many nines
        repeated = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(behind))
        return Fraction(int(whole + behind or "0"), 10 ** len(behind)) + repeated, None
    except ValueError:  # a lone point, or a digit of another script
        return None


# Numbers in words: six thousand, two and a half, minus three quarters, 三分之一, 七千二百亿, 3.5万, 两个半.
#
# English ones are read from a text's beginning, Chinese ones, which may hold digits, with the unit behind them.

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
_NUMBER_TAIL = re.compile(rf"{PERCENT}|{'|'.join(POWERS)}")
_SIGNED = re.compile(r"(?:\\text\{)?(minus|negative|plus|positive)(?: *\})? *", re.IGNORECASE)

SCALED = re.compile(
    r"(\\frac\{\d{1,100}\}\{\d{1,100}\}|(?<![\w.,^/)}])\d{1,100}/\d{1,100}"
    r"|(?<![\w.,^{/])\d{1,100}(?:,\d{3}(?!\d)){0,30}(?:\.\d{1,100})?)"
    rf"\s*(\\text\{{)?\s*((?:{MULTIPLYING})(?:[ -](?:{MULTIPLYING})){{0,3}})(?![a-zA-Z])(?(2)(\s*\}})?)"
)
"""A number in digits and its factor, as in 2.5 million dollars; see `expand_scaled`."""

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
"""Characters between a number and a counted noun; before other characters 一 is not a number: 一样."""
_ALONE = ("次", "倍", "分")
"""The same, without anything behind it: 三次 is three times, 三次方程 a cubic equation."""


def write_in_digits(text: str) -> str:
    r"""Write the number at the start of `text` in digits, if only a unit follows; return other texts unchanged.

    Fractions become `\frac`, percentages end in a percent sign.
    """
    sign = _SIGNED.match(text)
    if sign is None:
        return _read_spelled(text) or _read_chinese(text.translate(_SAME_CHARACTERS)) or text
    rest = text[sign.end() :]
    digits = _read_spelled(rest)
    if digits is None and not (rest[:1].isdecimal() or rest.startswith((r"\frac", r"\sqrt", r"\pi", r"\inf", "inf"))):
        return text
    return _SIGNS[sign[1].lower()] + (digits or rest)


def _read_spelled(text: str) -> str | None:
    """Return the digits for English words, with the unit behind them."""
    found = spoken(_IN_TEXT.sub(r" \1 ", text))
    if found is None:
        return None
    behind = strip_filler_words(found[1], found[0])
    if not behind or _NUMBER_TAIL.fullmatch(behind) or unit(behind):
        return f"{found[0]} {behind}".strip()
    name, _, rest = behind.partition(" ")
    following = _read_spelled(rest.removeprefix("and ")) if unit(name) else None
    return f"{found[0]} {name} {following}" if following else None


def spoken(text: str) -> tuple[str, str] | None:
    """Return the number in English words that `text` begins with, in digits, and the words behind it; None if it begins
    with other words."""
    words = re.split(r"[ -]+", text.strip().lower())
    if not _PLAIN.fullmatch(text) or len(words) > MOST_WORDS:
        return None
    value, used = _value(words)
    if not used or (used == 1 and words[0].isdecimal()):
        return None
    return format_value(value), " ".join(words[used:])


def expand_scaled(match: re.Match[str]) -> str:
    r"""Return the digits of a match of `SCALED`: 2500000 of `2.5\text{ million}`; `\text{` is opened again for the
    rest."""
    number, opened, words, closed = match.groups()
    value = Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", number).replace(",", ""))
    for word in re.split("[ -]", words):
        below = divisor(word, one=value == 1)
        if word not in SCALES and below is None:
            return match[0]
        value = value * SCALES[word] if below is None else value / below
    return format_value(value) + (r"\text{" if opened and not closed else "")


def format_value(value: Fraction) -> str:
    r"""Write a number in digits, as a decimal if possible, else as a `\frac`."""
    if value.denominator == 1:
        return str(value.numerator)
    places = next((places for places in range(1, 100) if 10**places % value.denominator == 0), None)
    if places is None:
        return rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    digits = f"{abs(int(value * 10**places)):0{places + 1}}"
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _value(words: Sequence[str]) -> tuple[Fraction, int]:
    """Return the number that the words begin with, and how many words it has; None without a number."""
    whole, used = _cardinal(words)
    value = Fraction(whole)
    if (part := _part(words))[1] > used:
        value, used = part
    elif used and words[used : used + 1] == ["and"] and 0 < (part := _part(words[used + 1 :]))[0] < 1:
        value, used = value + part[0], used + 1 + part[1]
    elif words[used : used + 1] == ["point"]:
        value, used = _add_decimals(value, words, used + 1)
    for behind in ([], ["a"], ["of", "a"]):
        at = used + len(behind)
        if used and words[used:at] == behind and at < len(words) and words[at] in SCALES:
            return value * SCALES[words[at]], at + 1
    return value, used


def _add_decimals(whole: Fraction, words: Sequence[str], at: int) -> tuple[Fraction, int]:
    """Add the decimals from word `at` on: three point one four."""
    digits = ""
    while at < len(words) and words[at] in _SMALL[:10]:
        digits += str(_VALUES[words[at]])
        at += 1
    return (whole + Fraction(f"0.{digits}"), at) if digits else (whole, 0)


def _cardinal(words: Sequence[str]) -> tuple[int, int]:
    """Read a whole number: words below a hundred, hundreds, and groups of thousands, each smaller than the one
    before."""
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
    """Return whether the "and" at word `at` continues with the number: a hundred and five, but not a hundred and a
    half."""
    behind = words[at + 1 :]
    return at > 0 and words[at - 1] in SCALES and bool(behind) and behind[0] in _VALUES and not _part(behind)[1]


def _fits(group: int, small: int, *, first: bool) -> bool:
    """Return whether `small` may follow the earlier words of its group: twenty one, but not one twenty."""
    return first or (0 < small < 10 and group % 100 >= 20 and group % 10 == 0)


def _part(words: Sequence[str]) -> tuple[Fraction, int]:
    """Read a fraction: half, a third, two thirds, five twenty-fourths."""
    if words[:1] == ["half"]:
        return Fraction(1, 2), 1
    above, used = (1, 1) if words[0] in _ARTICLES else _cardinal(words)
    tens = 10 * (_TENS.index(words[used]) + 2) if used and used < len(words) and words[used] in _TENS else 0
    last = used + bool(tens)
    below = divisor(words[last], one=above == 1) if used and last < len(words) else None
    if below is None or (tens and below > 9):
        return Fraction(0), 0
    return Fraction(above, tens + below), last + 1


def _read_chinese(text: str) -> str | None:
    """Read a number in Chinese characters; None if it is not one, or if text other than a unit follows."""
    if text.startswith("半") or text == "一半":
        behind = text[text.index("半") + 1 :]
        return rf"\frac{{1}}{{2}}{behind}" if _measures(behind) else None
    if _SEVERAL.fullmatch(text):
        pieces = [_read_chinese("".join(piece)) or "".join(piece) for piece in _PIECE.findall(text)]
        return "".join(pieces) if all(piece[0].isdecimal() for piece in pieces) else None
    match = _CHINESE.fullmatch(text)
    if match is None:
        return None
    sign, whole, below, number, behind = match.groups()
    digits = set(text[: match.start(5)]) <= set("-.0123456789")
    if number[-1] == "千" and behind[:1] in list(_THOUSANDS_OF_UNITS) and number[0].isdecimal():
        number, behind, digits = number[:-1], "千" + behind, True
    half, behind = _split_half(behind)
    if (digits and not half) or not (number[0].isdecimal() or _measures(behind)):
        return None
    parts = [_worth(each) for each in (number, below or "一", whole or "零")]
    if None in parts or not parts[1]:
        return None
    value = (parts[0] or 0) / parts[1] + (parts[2] or 0) + (half or 0)
    if below == "百" and not whole:
        return f"{sign and '-'}{format_value(value * 100)}%"
    return f"{sign and '-'}{format_value(value)}{behind}"


def _split_half(behind: str) -> tuple[Fraction | None, str]:
    """Return the half in the words after a number, and the unit without it: 两个半小时, 三天半."""
    if behind.startswith("个半"):
        return Fraction(1, 2), behind[2:]
    if behind.endswith("半") and unit(behind[:-1]):
        return Fraction(1, 2), behind[:-1]
    return None, behind


def _measures(behind: str) -> bool:
    """Return whether the text after a number in characters is a unit, or begins with a measure word."""
    if not behind or behind in _ALONE or unit(behind):
        return True
    return behind[0] in _MEASURE_WORDS and is_counted_noun(behind)


def _worth(characters: str) -> Fraction | None:
    """Return the value of the characters: hundreds of millions precede ten thousands, of which there may be hundreds of
    millions."""
    for group, size in _GROUPS.items():
        above, found, below = characters.rpartition(group)
        if found:
            many, rest = _worth(above), _worth(below) if below else Fraction(0)
            if many is None or rest is None:
                return None
            return many * size + (rest * (size // 10) if len(below) == 1 else rest)
    # Digits times places; without places, digits alone; behind the point, digits.
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
    """Add up digits and places. A last digit without a zero counts the next place: 一百二 is 120, 一百零二 is 102."""
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


# Notation of programs in LaTeX: `exp(9)` is `e^{9}`, `sqrt(1+sqrt(2))` is `\sqrt{1+\sqrt{2}}`.
#
# Nothing is evaluated; a name that is not in the table is kept unchanged.

_TEMPLATES = {
    ("sqrt", 1): r"\sqrt{#1}", ("cbrt", 1): r"\sqrt[3]{#1}", ("exp", 1): "e^{#1}", ("pow", 2): "(#1)^{#2}",
    ("log", 2): r"\log_{#2}(#1)", ("abs", 1): "|#1|", ("Abs", 1): "|#1|", ("floor", 1): r"\lfloor #1\rfloor ",
    ("ceil", 1): r"\lceil #1\rceil ", ("factorial", 1): "(#1)!", ("binom", 2): r"\binom{#1}{#2}",
    ("binomial", 2): r"\binom{#1}{#2}", ("comb", 2): r"\binom{#1}{#2}", ("Fraction", 2): r"\frac{#1}{#2}",
    ("Rational", 2): r"\frac{#1}{#2}", ("Matrix", 1): "#1", ("matrix", 1): "#1", ("array", 1): "#1",
}  # fmt: skip
"""By name and number of arguments; #1 is the first one."""
_NAMES = "|".join(sorted({name for name, _ in _TEMPLATES}, reverse=True))
_CALL = re.compile(rf"(?<![a-zA-Z\\_])\\?({_NAMES})\(")
_BRACKET = re.compile(r"[()\[\]{},]")
MOST_CALLS = 50
"""Of one text; one with more is kept unchanged."""


def remove_calls(text: str) -> str:
    """Return `text` with calls of known functions in LaTeX."""
    calls = list(_CALL.finditer(text))
    for call in reversed(calls if len(calls) <= MOST_CALLS else []):  # inner calls follow the outer ones
        arguments, end = _arguments(text, call.end())
        template = _TEMPLATES.get((call[1], len(arguments)))
        if template:
            first, second = arguments[0], arguments[-1]
            called = re.sub("#[12]", lambda mark: first if mark[0] == "#1" else second, template)  # noqa: B023
            text = text[: call.start()] + called + text[end:]
    return text


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of a call whose bracket opens before `start`, and where it ends; none if it never closes."""
    depth, found, begin = 0, [], start
    for mark in _BRACKET.finditer(text, start):
        if depth == 0 and mark[0] in ",)":
            found.append(text[begin : mark.start()].strip())
            begin = mark.end()
            if mark[0] == ")":
                return found, begin
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
    return [], start
