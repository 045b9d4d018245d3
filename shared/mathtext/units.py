r"""Units behind a number: which ones contradict each other, and what one is worth in another."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

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
    **_base("mass", "1000", "kg kilogram 千克 公斤"), **_base("mass", "1000000", "ton tonne 吨"),
    **_base("mass", "453.59237", "lb pound"), **_base("mass", "28.349523125", "oz ounce"),
    **_base("time", "1", "s sec second 秒"), **_base("time", "60", "min minute 分钟"),
    **_base("time", "3600", "h hr hour 小时"), **_base("time", "86400", "day 天"),
    **_base("time", "604800", "week 周 星期"),
    **_base("month", "1", "month 月 个月"), **_base("month", "12", "year yr 年"),
    **_base("volume", "1", "l liter litre 升"), **_base("volume", "1/1000", "ml milliliter millilitre 毫升"),
    **_base("gallon", "1", "gal gallon"), **_base("gallon", "1/4", "qt quart"), **_base("acre", "1", "acre"),
    **_base("dollar", "1", "dollar usd 美元"), **_base("dollar", "1/100", "cent ¢ 美分"),
    **_base("euro", "1", "euro 欧元"),
    **_base("sterling", "1", "poundssterling"), **_base("yuan", "1", "yuan rmb 元 块"),
    **_base("yuan", "1/10", "角 毛"),
    **_base("angle", "1", "degree deg ^\\circ 度"), **_base("radian", "1", "radian rad 弧度"),
    **_base("celsius", "1", "^\\circc ^\\circ\\text{c} celsius 摄氏度"),
    **_base("fahrenheit", "1", "^\\circf ^\\circ\\text{f} fahrenheit 华氏度"),
    **_base("morning", "1", "am"), **_base("afternoon", "1", "pm"),
    **_base("speed", "0.44704", "mph"), **_base("speed", "5/18", "kph kmph kmh"),
}  # fmt: skip
_SQUARE = re.compile(r"^(?:square|squared|sq|平方)")
_CUBIC = re.compile(r"^(?:cubic|cu|立方)")
_PER = re.compile(r"/|per")


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
