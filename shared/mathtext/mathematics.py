"""Grade an answer against the gold answer, mathematically."""

import re

from shared.mathtext.equivalence import compare
from shared.replies import Graded

# Strict grading: do two LaTeX answers read the same after normalisation?
#
# The rules are those of the MATH dataset (Hendrycks et al. 2021, `math_equivalence`): string rules, no algebra. They
# know that 1/2 is \frac12 and that 10\% is 10; they do not know that 2/4 is 1/2. That is what "exact match" means
# there.

_DROPPED = ("\n", r"\!")
_UNIT = r"\text{ "
_NOISE = (r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$")
_PERCENT = (r"\%", "%")
_LONGEST_NAME = 2
"""`x=5` and `x =5` name their value; `area=5` is an equation that is left alone."""


def equal_strict(answer: str, gold: str) -> bool:
    """Return whether both strings are equal, as written or normalised.

    A string that the rules cannot read (two units, or a macro without its argument) only equals itself.
    """
    if answer == gold:
        return True
    return _readable(answer) and _readable(gold) and normalise(answer) == normalise(gold)


def normalise(text: str) -> str:
    r"""Return `text` in the rules' normal form.

    Without line ends, blanks, `\left`, `\right`, degrees, dollar and per cent signs, and a unit on the right; with
    `\frac` for `\dfrac`, `\tfrac` and a plain a/b; with braces around the arguments of `\sqrt` and `\frac`; with a
    zero before a leading decimal point; without `x=` in front.
    """
    text = _plain(text).replace(" .", " 0.").replace("{.", "{0.")
    text = "0" + text if text.startswith(".") else text
    name, _, value = text.partition("=")
    named = text.count("=") == 1 and len(name) <= _LONGEST_NAME
    text = value if named else text
    text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text, flags=re.DOTALL).replace(" ", "")
    text = re.sub(r"\\frac([^{\\])([^{\\])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac([^{\\])\{", r"\\frac{\1}{", text)
    if text == "0.5":
        return r"\frac{1}{2}"
    match = re.fullmatch(r"(-?(?:0|[1-9][0-9]*))/(-?(?:0|[1-9][0-9]*))", text)
    return rf"\frac{{{match[1]}}}{{{match[2]}}}" if match else text


def _readable(text: str) -> bool:
    plain = _plain(text)
    one_unit = _drop(text, _DROPPED).count(_UNIT) <= 1
    return one_unit and not plain.endswith(r"\sqrt") and not plain.replace(" ", "").endswith(r"\frac")


def _plain(text: str) -> str:
    text = _drop(text, _DROPPED).replace("\\\\", "\\")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    text = _drop(text, _NOISE).split(_UNIT)[0]
    return _drop(text, _PERCENT)


def _drop(text: str, parts: tuple[str, ...]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


# Grade mathematics: the verdict of this project, and that of the strict rules of the MATH dataset.
#
# SymPy knows no limit of time: call it where it can be killed.

VERSION = 1
"""Raised whenever a verdict changes, so that answers are graded again; tests/unit/shared/runtime/test_outcomes.py fails
until it is."""


def grade(answer: str, gold: str) -> Graded:
    """Return both verdicts on one answer; None if a verdict cannot be computed."""
    return Graded(math_verify=compare(answer, gold), strict=equal_strict(answer, gold))
