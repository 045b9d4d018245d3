"""Numbers in words: twelve is 12, 二十 is 20, 三分之一 is a third, 百分之五 is five percent."""

import re

_ENGLISH = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip
_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_GROUPS = {"万": 10_000, "亿": 100_000_000}
_CHARACTERS = "".join([*_DIGITS, *_PLACES, *_GROUPS])
_NUMBER = rf"[{_CHARACTERS}]+(?:点[{''.join(_DIGITS)}]+)?"
_WHOLE = re.compile(rf"(负?)(?:(百)分之({_NUMBER})|({_NUMBER})分之({_NUMBER})|({_NUMBER}))([^\W\d_a-zA-Z]*)")


def with_digits(text: str) -> str:
    r"""`text` with the number that it begins with in digits, if it is nothing else but a unit; else as it is.

    Fractions become `\frac`, percentages end in a percent sign.
    """
    word = text.removeprefix(r"\text{").removesuffix("}").strip().lower()
    if word in _ENGLISH:
        return str(_ENGLISH.index(word))
    match = _WHOLE.fullmatch(text)
    if match is None:
        return text
    negative, percent, hundredths, below, above, number, unit = match.groups()
    sign = "-" if negative else ""
    if percent:
        return f"{sign}{_read(hundredths)}%"
    value = rf"\frac{{{_read(above)}}}{{{_read(below)}}}" if below else _read(number)
    return f"{sign}{value}{unit}"


def _read(characters: str) -> str:
    whole, _, behind = characters.partition("点")
    if not any(character in _PLACES or character in _GROUPS for character in whole):
        digits = "".join(str(_DIGITS[character]) for character in whole)
    else:
        digits = str(_whole(whole))
    return digits + ("." + "".join(str(_DIGITS[character]) for character in behind) if behind else "")


def _whole(characters: str) -> int:
    """Digits times places, in groups of ten thousand and of a hundred million."""
    total, group, digit = 0, 0, 0
    for character in characters:
        if character in _GROUPS:
            total = (total + group + digit) * _GROUPS[character]
            group = digit = 0
        elif character in _PLACES:
            group += (digit or 1) * _PLACES[character]
            digit = 0
        else:
            digit = _DIGITS[character]
    return total + group + digit
