r"""What stands behind a number: units, which ones contradict each other and what one is worth in another, and nouns
of what is counted.

**What is a counted noun** is decided by its form, not by a dictionary. It is a phrase of one to three words without a
verb, a negation, a comparative, a quantifier, a number or another word of `_NO_NOUN`; the last word is in the plural,
or, behind one or a fraction, in the singular. "of" or "per" may join two such phrases: 5 cups of tea, 3 apples per day.
In Chinese it is a word of at most eight characters without those of `_NO_CHINESE_NOUN`. Everything else behind a
number may change what is said: "5 is wrong", "3 or fewer", "5 factorial" are not 5 and 3.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

from shared.mathtext.counting_words import VALUE_CHANGING

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
_TAIL = re.compile(r" ?(?:in total|in all|total|altogether|left|remaining|old|long|wide|high|tall|deep|away|apart)")
_OF_A = re.compile(r"(?:of )?(?:an?|the) ")
_SINGULAR = re.compile(r"-?(?:1|0?\.\d+|\d{1,9}/\d{1,9}|\\frac\{\d{1,9}\}\{\d{1,9}\})")
_NO_CHINESE_NOUN = re.compile(
    "[不没未非或余几约半万亿零一二三四五六七八九十百千]|^多|多$|左右|以[上下内外]|上下|超过|大于|小于|多于|少于|等于|至少|至多|最[多少]|是|错|正确"
    "|^[成折]$|分之|^的"
)
_CHINESE_NOUN = re.compile(r"[^\W\d_a-zA-Z]{1,8}")
_SYMBOL = re.compile(r"[A-Za-zµ]{1,3}|(?=.*[A-Z])[A-Za-z]{1,4}")


def unit(words: str, power: int = 1) -> Unit | None:
    """The unit that `words` name, to a `power`, such as cm to the power 2; None if they name none that is known."""
    name = re.sub(r"[\s.]", "", words).lower()
    above, *below = _PER.split(name) if name not in _BASE else [name]
    if len(below) > 1 or power < 1:
        return None
    found = _power(above, power)
    divisor = _power(below[0], 1) if below else None
    if found is None or not below:
        return found
    return None if divisor is None else _quotient(found, divisor)


def _power(name: str, power: int) -> Unit | None:
    for pattern, exponent in ((_SQUARE, 2), (_CUBIC, 3)):
        if name not in _BASE and pattern.search(name):
            name, power = pattern.sub("", name), exponent
    known = _BASE.get(name) or _BASE.get(name.removesuffix("s")) or _BASE.get(name.removesuffix("es"))
    if known is None:
        return None
    ((dimension, one),) = known.dimension
    return Unit(((dimension, one * power),), known.factor**power)


def _quotient(above: Unit, below: Unit) -> Unit:
    """Of a length and a time it is a speed, which has names of its own."""
    if (above.dimension, below.dimension) == ((("length", 1),), (("time", 1),)):
        return Unit((("speed", 1),), above.factor / below.factor)
    inverse = tuple((dimension, -power) for dimension, power in below.dimension)
    return Unit(tuple(sorted(above.dimension + inverse)), above.factor / below.factor)


def strip_filler_words(words: str, number: str) -> str:
    """Return the words behind a number without those that name no unit: 5 years old, 3/4 of a mile, 5 left."""
    stripped = " ".join(words.replace(".", " ").split())
    if _SINGULAR.fullmatch(number) and (found := _OF_A.match(stripped)):
        stripped = stripped[found.end() :]
    tail = stripped.rfind(" in ") if stripped.endswith((" in total", " in all")) else stripped.rfind(" ")
    return stripped[: max(tail, 0)] if _TAIL.fullmatch(stripped[max(tail, 0) :]) else stripped


def is_counted_noun(words: str, number: str = "", *, in_text: bool = False) -> bool:
    """Tell whether the words behind a number name what is counted, by the rules above (5 apples). No words at all do.

    `in_text`: they stand in LaTeX's `\\text`, where letters are no variables, so that a unit's symbol (kPa) does.
    """
    if not words or _CHINESE_NOUN.fullmatch(words):
        return not _NO_CHINESE_NOUN.search(words)
    if in_text and _SYMBOL.fullmatch(words) and words.lower() not in _NO_NOUN:
        return True
    phrases = re.split(r" (?:of|per) ", words.removeprefix("per "))
    return (
        len(phrases) <= 2
        and all(_noun_phrase(phrase) for phrase in phrases)
        and (words.startswith("per ") or _plural(phrases[0]) or bool(_SINGULAR.fullmatch(number)))
    )


def changes_value(word: str) -> bool:
    """Tell whether a word can change the value of the number before it (dozen, squared, not).

    Of words of two letters only a few do: others may be a product, such as `at`.
    """
    return word in _NO_NOUN and (len(word) > 2 or word in _SHORT)


def _noun_phrase(phrase: str) -> bool:
    words = phrase.lower().replace("’", "'").split()
    plain = all(_WORD.fullmatch(word) and word not in _NO_NOUN for word in words)
    return plain and 0 < len(words) <= 3 and words[-1] not in _NO_LAST_WORD


def _plural(phrase: str) -> bool:
    last = phrase.rpartition(" ")[2]
    ends = last.lower().endswith(("s", "ii", "ia")) and not last.lower().endswith("ss")
    return ends or last.lower() in _PLURALS_WITHOUT_S or (len(last) > 2 and last.isupper())


def compound(text: str, *, joined: bool = False) -> tuple[str, Unit] | None:
    r"""A quantity in several units, the larger ones first, as a sum in the first: `1 hour 30 minutes`, `12元5角`.

    `joined`: "and" or a comma may stand between them. None: it is none.
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
    for units in product(*meanings):
        if len(units) > 1 and all(
            one.dimension == other.dimension and one.factor > other.factor for one, other in pairwise(units)
        ):
            parts = [
                rf"{number}\cdot\frac{{{share.numerator}}}{{{share.denominator}}}"
                for (number, _), share in zip(found, (each.factor / units[0].factor for each in units), strict=True)
            ]
            return "+".join(parts), units[0]
    return None
