"""The answer in a text: without its reasoning, and in the shape that it has."""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from shared.mathtext.numbers import (
    MULTIPLYING,
    PERCENT,
    POWERS,
    SCALED,
    Unit,
    expand_scaled,
    remove_calls,
    write_in_digits,
)
from shared.samples import Extraction

# Finding the answer in a generated text: the last `\boxed{}`.

# Escapes are matched, and so skipped, before braces: \{ and \} are characters, not brackets, and \\ is a line break.
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(?P<open>\{)?|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s${}]{1,100}")
_TRAILING = ".,;:!?"


def extract(text: str) -> tuple[str | None, Extraction]:
    r"""Return the content of the last `\boxed{}` or `\fbox{}` whose braces balance, stripped; of nested ones the inner.

    `\boxed 5` counts as well, up to the next blank or dollar sign, at most 100 characters. An empty box counts as none,
    and a box that never closes (a truncated reply) is passed over for an earlier one that does. Time is linear in the
    text.

    Returns:
        (answer, OK), or None with UNBALANCED if some box never closes, else with MISSING.
    """
    closed: dict[int, slice] = {}
    """Where the content of each box lies, by the box's place; not the content itself: nested boxes would copy it."""
    opened: list[tuple[bool, int, int]] = []
    for mark in _MARK.finditer(text):
        found = mark.group()
        if found == "{" or mark.group("open"):
            opened.append((found != "{", mark.start(), mark.end()))
        elif found == "}":
            is_box, start, inside = opened.pop() if opened else (False, 0, 0)
            if is_box:
                closed[start] = slice(inside, mark.start())
        elif found.startswith((r"\boxed", r"\fbox")):
            bare = _BARE.match(text, mark.end())
            length = len(bare[0].rstrip(_TRAILING)) if bare else 0
            closed[mark.start()] = slice(mark.end(), mark.end() + length)
    contents = (text[closed[start]].strip() for start in sorted(closed, reverse=True))
    if answer := next(filter(None, contents), None):
        return answer, Extraction.OK
    return None, Extraction.UNBALANCED if any(is_box for is_box, _, _ in opened) else Extraction.MISSING


# Bring the text of an answer into a normal form: one spelling for the notations that mathematicians use.
#
# Only notation is resolved: `0.\overline{36}` is 4/11, `1\frac12` is 3/2, `1.5e3` is 1.5 times 1000. Two answers with
# the same normal form are the same answer. Two answers with different normal forms need algebra.

_FULLWIDTH: dict[int | str, str] = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_SYMBOLS: dict[int | str, str] = {
    "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "⋅": r"\cdot ", "−": "-", "–": "-", "—": "-", "≤": r"\le ",
    "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "π": r"\pi ", "∞": r"\infty ", "°": r"^\circ ", "∪": r"\cup ",
    "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "…": r"\ldots ", "⟨": r"\langle ",
    "⟩": r"\rangle ", "、": ",", "。": ".", "\u3000": " ", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "~": " ",
    "α": r"\alpha ", "β": r"\beta ", "θ": r"\theta ", "φ": r"\phi ", "λ": r"\lambda ", "“": "", "”": "", '"': "",
    "【": "[", "】": "]", "€": r"\text{ euros}", "£": r"\text{ pounds sterling}", "¥": r"\text{ yuan}",
    "\N{FRACTION SLASH}": "/", "\N{DIVISION SLASH}": "/", "\N{RATIO}": ":", "\N{HYPHEN}": "-", "∗": "*", "∩": r"\cap ",
    "∖": r"\setminus ", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "∀": r"\forall ",
}  # fmt: skip
_TABLE = str.maketrans({**_FULLWIDTH, **_SYMBOLS})

_WRAPPERS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\$\$(.*)\$\$", r"\$([^$]*[^$\\])\$", r"\\\((.*)\\\)", r"\\\[(.*)\\\]", r"\\(?:boxed|fbox)\s*\{([^{}]*)\}",
        r"\*\*(.*)\*\*", r"(.*[^\\])\\\\\s*", r"\\text\s*\{([^{}]*(?:,|\band\b|\bor\b|\()[^{}]*)\}",
        r"\\text\s*\{\s*(\S)\s*\}",
        r"\\text\s*\{(\s*-?\d[^{}]*)\}",
    )
)  # fmt: skip
"""Delimiters around a whole answer that are not part of it."""

_Replacement = str | Callable[[re.Match[str]], str]


def _fraction(value: Fraction) -> str:
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _repeating(match: re.Match[str]) -> str:
    """0.12 with the period 34: the digits, less those before the period, over as many nines and zeros."""
    whole, before, period = match[1] or "0", match[2] or "", "".join(filter(None, match.groups()[2:]))
    scale = 10 ** len(before)
    return _fraction(Fraction(int(whole + before), scale) + Fraction(int(period), (10 ** len(period) - 1) * scale))


def _convert_mixed(match: re.Match[str]) -> str:
    whole, above, below = (int(match[group]) for group in (1, 2, 3))
    return _fraction(whole + Fraction(above, below)) if below else match[0]


def _vulgar(match: re.Match[str]) -> str:
    above, _, below = _compatible(match).replace("/", "\N{FRACTION SLASH}").partition("\N{FRACTION SLASH}")
    return rf"\frac{{{above}}}{{{below}}}"


def _compatible(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])


_OPERATIONS = {"plus": "+", "minus": "-", "times": r"\times ", "divided by": "/"}
_DIGITS_OF_MOST_NUMBERS = r"{1,100}"
_PERIOD = rf"(\d{_DIGITS_OF_MOST_NUMBERS})"
_RULES: tuple[tuple[str, _Replacement], ...] = (
    # Raised and lowered letters, and roots.
    (r"[⁰¹²³⁴-⁹]+/[₀-₉]+", _vulgar),
    (r"[⁰¹²³⁴-⁹⁻ⁿ]+", lambda match: f"^{{{_compatible(match).replace(chr(0x2212), '-')}}}"),
    (r"[₀-₉]+", lambda match: f"_{{{_compatible(match)}}}"),
    (r"[¼-¾⅐-⅞]", _vulgar),
    (r"√\s*\(", "sqrt("),
    (r"(?:√|(?<![\\a-zA-Z])sqrt)\s*(\d+(?:\.\d+)?|[a-zA-Z])", r"\\sqrt{\1}"),
    # Layout.
    (r"(?<!\\)\\\\(?=(?:[dt]?frac|sqrt|text|pi)(?![a-zA-Z]))", r"\\"),
    (r"\\(?:left|right)\.", ""),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|phantom|limits)(?![a-zA-Z])", ""),
    (r",\s*\\!|\{\s*,\s*\}", "{,}"),
    (r"\\!", ""),
    (r"(?<=\d)\\,(?=\d{3}(?!\d))", "{,}"),
    (r"(?<!\\)\\(?:[,;:]|quad(?![a-zA-Z])|qquad(?![a-zA-Z])|(?=\s))|\\hspace\*?\{[^{}]*\}", " "),
    # Commands of one meaning.
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
    (r"\\frac\s*\{([^{}]*)\}\s*([\da-zA-Z])", r"\\frac{\1}{\2}"),
    (r"\\sqrt\s*(\d|[a-zA-Z])", r"\\sqrt{\1}"),
    (r"\\(?:mathbf|boldsymbol|mathit|vec)\s*\{([a-zA-Z])\}", r"\1"),
    (r"\\(?:mathrm|text)\s*\{([eid])\}", r"\1"),
    (r"\\(?:mbox|hbox|math(?:rm|sf|bf|it)|operatorname|text(?:normal|rm|bf|it|sf|tt))(?![a-zA-Z])", r"\\text"),
    (r"\\text\s*\{([^{}]*)\}", lambda match: rf"\text{{{' '.join(match[1].split())}}}" if match[1].strip() else " "),
    (r"\\text\{(sin|cos|tan|cot|sec|csc|ln|log|arcsin|arccos|arctan|gcd|lcm)\}", r"\\\1 "),
    (r"\\(?:leqslant|leq)(?![a-zA-Z])|<=|=<", r"\\le "),
    (r"\\(?:geqslant|geq)(?![a-zA-Z])|>=", r"\\ge "),
    (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
    (r"\\(?:simeq|approxeq|thickapprox|doteq)(?![a-zA-Z])|\A\\sim(?![a-zA-Z])", r"\\approx "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\(?:lbrace|rbrace)(?![a-zA-Z])", lambda match: r"\{" if "l" in match[0][:2] else r"\}"),
    (r"\\text\{(?:the )?empty set\}|(?<![\\a-zA-Z{])empty set", r"\\emptyset "),
    (
        (
            r"(?:\\text\{\s*)?\ball real(?:s| numbers)(?: [a-z])?,? (?:except|excluding|other than|but)(?: for)?\s*\}?"
            r"\s*(?:[a-z] ?= ?)?([^{}=]{1,200}?)\s*\}?\Z"
        ),
        lambda match: rf"\mathbb{{R}}\setminus\{{{re.sub(' and ', ',', match[1])}\}}",
    ),
    (r"\\text\{all real(?:s| numbers)\}|(?<![\\a-zA-Z{])(?<!for )all real(?:s| numbers)", r"\\mathbb{R}"),
    (
        r"(?<=\w)\s*(?:\\text\{)?\s*\(base ([a-z]+|\d+)\)\}?|_\{\((\d+)\)\}",
        lambda match: f"_{{{match[1] or match[2]}}}",
    ),
    (r"\\varnothing|\\\{\s*\\\}", r"\\emptyset "),
    (r"\\mathbb\s*\{?\s*([RZNQC])\s*\}?", r"\\mathbb{\1}"),
    (r"\\infin(?:ity)?(?![a-zA-Z])|(?<![\\a-zA-Z])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty "),
    (r"\+\s*\\infty", r"\\infty"),
    (r"\^\s*(?:\{\s*(?:\\circ|\\degree)\s*\}|\\circ|\\degree)|\\degree(?![a-zA-Z])", r"^\\circ "),
    (rf"\\?%|\\text\{{ ?(?:{PERCENT})\.?\}}|(?<![\\a-zA-Z])(?:{PERCENT})\.?(?![a-zA-Z]| points)", "%"),
    (r"(?<![\w\\])(?:np|numpy|math|sympy|sp)\.(?=[a-zA-Z])", ""),
    (r"(?<![\\a-zA-Z])pi(?![a-zA-Z])", r"\\pi "),
    (r"\\c?dots(?![a-zA-Z])", r"\\ldots "),
    (r"(?<=[)\]}])\s*(?:U(?![a-zA-Z])|(?:\\text\{\s*)?union\b(?:\s*\})?)\s*(?=[(\[\\])", r"\\cup "),
    (r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", r"\\times "),
    (r"(?<=\d)又(?=\d+/\d+|\\frac)", " "),
    (
        r"(?:the )?(square|cube) root of (\d+)",
        lambda match: rf"\sqrt{'[3]' if match[1] == 'cube' else ''}{{{match[2]}}}",
    ),
    (r"(?<![\w.}])(\d+|[a-z]) choose (\d+|[a-z])(?!\w)", r"\\binom{\1}{\2}"),
    (r"(?<![\w.}])(\d+|[a-z]) factorial(?![a-z])", r"\1!"),
    (r"plus(?: or |/|-or-)minus", r"\\pm "),
    (r"(?<![\\a-zA-Z])log(2|10)\s*\(", r"\\log_{\1}("),
    (r"(?<![\\a-zA-Z])a(?:rc)?(sin|cos|tan)(?![a-zA-Z])", r"\\arc\1 "),
    (r"(?<![\\a-zA-Z])(sin|cos|tan|cot|csc|ln|log)(?![a-zA-Z])", r"\\\1 "),
    (r"(?<![\\a-zA-Z])(sec|gcd|lcm|max|min)(?=\s*\()", r"\\\1"),
    (r"\\exp\s*\{", "e^{"),
    (r"\*\*", "^"),
    (r"\^\s*(-?\d{1,100}\.\d{1,100}|-?\d{2,100}|-\d)(?![\d.])", r"^{\1}"),
    (r"\^\s*\(([^()]*)\)", r"^{\1}"),
    (r"(?<=[\w})])\s*\*\s*(?=[\w\\({])", r"\\cdot "),
    # Numbers.
    (r"(?<![\w.\\}])(\d{1,100}(?:\.\d{1,100})?)[eE]\+?(-?\d{1,6})(?![\w.])", r"\1\\times10^{\2}"),
    (rf"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar)\s*\{{?\s*{_PERIOD}\s*\}}?", _repeating),
    (r"(?<!\d)(\d*)\.(\d*)\\dot\s*\{?(\d)\}?(?:(\d{0,100})\\dot\s*\{?(\d)\}?)?", _repeating),
    (rf"(?<!\d)(\d+)\.(\d*)\({_PERIOD}\)(?![\d^_(])", _repeating),
    (r"(?<!\d)(\d+)\.(\d*?)(\d{2,100}?)\3\s*\\ldots ?", _repeating),
    (r"(?<!\d)(\d+)\.(\d*?)(\d)\3\3+\s*\\ldots ?", _repeating),
    (r"(?<!\d)\d{1,3}(?:\{,\}\d{3})+(?!\d)", lambda match: match[0].replace("{,}", "")),
    (r"(?<![\d.])\d{1,3}(?: \d{3})+(?![\d/])", lambda match: match[0].replace(" ", "")),
    (r"(?<![\d.^_/])(\d{1,100})\s*\\frac\{\s*(\d{1,100})\s*\}\{\s*(\d{1,100})\s*\}", _convert_mixed),
    (r"(?<![\d.^_/])(\d{1,100})\s+(\d{1,100})\s*/\s*(\d{1,100})(?![\d.])", _convert_mixed),
    (r"(?<![\d.])(?<!\d)\.(?=\d)", "0."),
    (SCALED.pattern, expand_scaled),
    (
        rf"(?<![\w.,^_{{}}/\\])(\d{{1,100}}(?:\.\d{{1,100}})?|[a-zA-Z])\s*(\\text\{{\s*)?({'|'.join(POWERS)})(?![a-zA-Z])(?(2)\s*\}})",
        lambda match: f"{match[1]}^{{{POWERS[match[3]]}}}",
    ),
    (
        r"(?<=[\d})])\s*(?:\\text\{\s*)?\b(plus|minus|times|divided by)\b(?:\s*\})?\s*(?=[\d\\(])",
        lambda match: _OPERATIONS[match[1]],
    ),
    (r"(\d{1,100}(?:\.\d{1,100})?)\s*(?:‰|\\permil)", r"\\frac{\1}{1000}"),
    (r"(\d{1,100}(?:\.\d{1,100})?)\s*%", r"\\frac{\1}{100}"),
    (r"(?s)\A(.*[})])\s*%\Z", r"\\frac{\1}{100}"),
    (r"\s+", " "),
    (r" (?!\w)|(?<!\w) ", ""),
)
_COMPILED = tuple((re.compile(pattern), replacement) for pattern, replacement in _RULES)
_OPTION = re.compile(r"\(([A-Z])\)|([A-Z])[.)]")
_ELLIPSIS = re.compile(r"\.{3,}")
_CURRENCY = re.compile(rf"([€£¥])\s*(\d[\d.,]*(?:\s*(?:{MULTIPLYING})\b)?)")
_INTRODUCED = re.compile(
    r"\*{0,2}(\\text\s*\{\s*)?(?:(?:so|thus|hence|therefore)?,?\s*(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is\s*:?|:|=)"
    r"|ans\.?\s*[:=]|(?:[故则]|所以|因此)?(?:本题)?答案?[是为:]|故选:?|解:)\*{0,2}\s*(?(1)(\})?)\s*(?:一?共有?|总共有?|还?剩|还?有|需要?|是)?(?=.)",
    re.IGNORECASE | re.DOTALL,
)
"""The word for an answer in front of it."""
_ABOUT = re.compile(
    r"(\\text\s*\{\s*)?(?:about|approximately|approx\.?|around|roughly|circa|大?约)\s*(?(1)\})\s*(?=[\d\\$.-])",
    re.IGNORECASE,
)
_MONEY = re.compile(r"(?<!\\)\$")
_ENDS = " \t\n.,;:?"
_FRONT = " \t\n,;:="
LONGEST = 4000
"""Characters; a longer text is its own normal form. The longest answer of MATH has 159."""


def normal_form(text: str) -> str:
    """Return the normal form of `text`, with ASCII digits and without layout.

    Never raises: notation that is not understood is kept unchanged.
    """
    if len(text) > LONGEST:
        return text
    found = _unwrap(_ELLIPSIS.sub(r"\\ldots ", _CURRENCY.sub(r"\2\1", text).translate(_TABLE)))
    if introduced := _INTRODUCED.match(found):
        found = _unwrap((r"\text{" if introduced[1] and not introduced[2] else "") + found[introduced.end() :])
    if about := _ABOUT.match(found):
        found = r"\approx " + found[about.end() :]
    found = write_in_digits(_MONEY.sub(r"\\$", found))
    for pattern, replacement in _COMPILED:
        found = pattern.sub(replacement, found)
    found = _unwrap(remove_calls(found))
    option = _OPTION.fullmatch(found)
    return next(filter(None, option.groups())) if option else found


def _unwrap(text: str) -> str:
    """Remove punctuation at the ends, and delimiters around the whole."""
    while True:
        text = text.rstrip(_ENDS).lstrip(_FRONT) if not text.endswith(r"\right.") else text
        wrapped = next((match for pattern in _WRAPPERS if (match := pattern.fullmatch(text))), None)
        if wrapped is None:
            return text
        text = wrapped[1]


# The kinds of answers: a value, a list, a pair, a set, intervals, an equation, a number in a base.
#
# `equivalence.shape` reads it from the normal form of an answer.


class Value(NamedTuple):
    """A number or an expression, with its unit."""

    text: str
    unit: Unit | None = None
    """None: there is none, or none that is known."""


class Words(NamedTuple):
    """Nothing to compute."""

    text: str
    """In lower case, unless it is a single letter."""


class Listed(NamedTuple):
    """Several answers in any order, with repetitions."""

    parts: tuple["Shape", ...]


class Finite(NamedTuple):
    """A set in braces."""

    parts: tuple["Shape", ...]


class Bracketed(NamedTuple):
    """A pair, a vector or an interval; only the other answer tells which of them."""

    opening: str
    closing: str
    parts: tuple["Shape", ...]


class RealInterval(NamedTuple):
    """Real numbers between two values; an infinite end is open."""

    low: str
    high: str
    low_open: bool
    high_open: bool


class Reals(NamedTuple):
    """Intervals, of what `name` stands for."""

    pieces: tuple[RealInterval, ...]
    name: str | None = None


class Matrix(NamedTuple):
    """Rows of a matrix."""

    rows: tuple[tuple["Shape", ...], ...]
    determinant: bool = False


class Based(NamedTuple):
    """A number in the base that it names."""

    digits: str
    base: int


class Clock(NamedTuple):
    """A time of day, or minutes and seconds."""

    parts: tuple[int, ...]
    unit: Unit | None = None


class Named(NamedTuple):
    """A value that is given a name: `x = 5`."""

    name: str
    value: "Shape"
    text: str


class About(NamedTuple):
    r"""A value that is only approximated: `\\approx 5`."""

    value: "Shape"


class Family(NamedTuple):
    """All values of a text with a running letter, such as `2k\\pi` for all whole numbers k."""

    text: str
    letter: str
    """Empty: the text holds for whatever is said, which has no name."""
    domain: str
    """Z, N or R, with a plus sign for its positive numbers, or empty where none is named."""
    members: bool = False
    """Whether the answer is all these values; else it is the text, as of a function's value."""


class Relation(NamedTuple):
    """An equation or inequality that gives nothing a value."""

    text: str


Shape = Value | Words | Listed | Finite | Bracketed | Reals | Matrix | Based | Clock | Named | About | Family | Relation

INFINITY = r"\infty"
