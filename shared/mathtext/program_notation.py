r"""Notation of programs in LaTeX: `exp(9)` is `e^{9}`, `sqrt(1+sqrt(2))` is `\sqrt{1+\sqrt{2}}`.

Nothing is evaluated; a name that is not in the table stays as it is.
"""

import re

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
"""Of one text; one with more stays as it is."""


def without_calls(text: str) -> str:
    """`text` with calls of known functions in LaTeX."""
    calls = list(_CALL.finditer(text))
    for call in reversed(calls if len(calls) <= MOST_CALLS else []):  # inner ones stand behind the outer ones
        arguments, end = _arguments(text, call.end())
        template = _TEMPLATES.get((call[1], len(arguments)))
        if template:
            first, second = arguments[0], arguments[-1]
            called = re.sub("#[12]", lambda mark: first if mark[0] == "#1" else second, template)  # noqa: B023
            text = text[: call.start()] + called + text[end:]
    return text


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose bracket opens before `start`, and where it ends; none if it never closes."""
    depth, found, begin = 0, [], start
    for mark in _BRACKET.finditer(text, start):
        if depth == 0 and mark[0] in ",)":
            found.append(text[begin : mark.start()].strip())
            begin = mark.end()
            if mark[0] == ")":
                return found, begin
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
    return [], start
