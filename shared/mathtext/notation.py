r"""Mathematical notation, LaTeX or plain, as tokens: what a parser of expressions reads.

Nothing is evaluated, and no name becomes code. What is not understood becomes a token that no expression may hold, so
that whoever stands around it stays unread rather than misread.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from fractions import Fraction
from typing import NamedTuple

from shared.mathtext.numerals import numeral


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    SYMBOL = auto()
    WORD = auto()
    r"""A text inside a formula, such as `\text{ cm}`."""
    OPERATOR = auto()
    r"""+ - * / ^ ! % , and `deg`."""
    COMMAND = auto()
    r"""With arguments: `frac`, `sqrt`, `binom`, or a function's name."""
    CONSTANT = auto()
    OPEN = auto()
    CLOSE = auto()
    BAR = auto()
    RELATION = auto()
    """`=`, `≡`, or `other`."""
    MODULO = auto()
    BREAK = auto()
    """Ends a statement."""
    LINE = auto()
    """Ends a line of a formula."""
    STRANGE = auto()
    """Not understood."""


class Token(NamedTuple):
    """One token. `value` is set for numbers, with the digits behind their point."""

    kind: Kind
    text: str
    value: Fraction = Fraction(0)
    places: int | None = None
    start: int = 0
    end: int = 0
    """Where it stands in the formula."""


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


FUNCTIONS = _names("sin cos tan cot sec csc arcsin arccos arctan ln log gcd lcm max min")
_LETTERS = _names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi"
    " varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell"
)
_BLANK = _names(
    "left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits cancel mathbf boldsymbol bf boxed"
    " fbox , ; ! : $ nonumber notag"
) | {" ", "\n"}
_BREAKS = _names(
    "quad qquad implies Rightarrow Longrightarrow Leftrightarrow Longleftrightarrow iff to rightarrow longrightarrow"
    " therefore because"
)
_ASIDE = _names("color textcolor hspace vspace phantom hphantom vphantom label tag begin end")
"""Their argument is no part of the formula."""
_LAID_OUT = _names("align align* aligned alignedat split gather gather* gathered equation equation* multline multline*")
"""Environments that are lines of formulas."""
_TEXTS = _names("text textrm textbf textit mbox hbox mathrm rm operatorname")
_OTHERS = _names(
    "lt gt le leq leqslant ge geq geqslant ne neq approx sim simeq cong in notin subset subseteq mid nmid parallel perp"
    " propto doteq not ll gg"
)
_TIMES = {"cdot": "*", "times": "*", "ast": "*", "div": "/", "%": "%"}
_FENCES = {
    "lfloor": (Kind.OPEN, "lfloor"), "rfloor": (Kind.CLOSE, "lfloor"), "lceil": (Kind.OPEN, "lceil"),
    "rceil": (Kind.CLOSE, "lceil"), "lvert": (Kind.OPEN, "|"), "rvert": (Kind.CLOSE, "|"), "lbrack": (Kind.OPEN, "["),
    "rbrack": (Kind.CLOSE, "["), "vert": (Kind.BAR, "|"),
}  # fmt: skip
_COMMANDS = {
    "frac": "frac", "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sqrt": "sqrt", "binom": "binom",
    "dbinom": "binom", "tbinom": "binom",
}  # fmt: skip
_ARGUMENTS = {"frac": 2, "binom": 2, "sqrt": 1}
_SIGNS = {
    "+": (Kind.OPERATOR, "+"), "-": (Kind.OPERATOR, "-"), "−": (Kind.OPERATOR, "-"), "–": (Kind.OPERATOR, "-"),
    "*": (Kind.OPERATOR, "*"), "×": (Kind.OPERATOR, "*"), "·": (Kind.OPERATOR, "*"), "⋅": (Kind.OPERATOR, "*"),
    "/": (Kind.OPERATOR, "/"), "÷": (Kind.OPERATOR, "/"), "^": (Kind.OPERATOR, "^"), "!": (Kind.OPERATOR, "!"),
    "%": (Kind.OPERATOR, "%"), ",": (Kind.OPERATOR, ","), "°": (Kind.OPERATOR, "deg"), "(": (Kind.OPEN, "("),
    ")": (Kind.CLOSE, "("), "[": (Kind.OPEN, "["), "]": (Kind.CLOSE, "["), "{": (Kind.OPEN, "{"),
    "}": (Kind.CLOSE, "{"), "|": (Kind.BAR, "|"), "=": (Kind.RELATION, "="), "≡": (Kind.RELATION, "≡"),
    "<": (Kind.RELATION, "other"), ">": (Kind.RELATION, "other"), "≤": (Kind.RELATION, "other"),
    "≥": (Kind.RELATION, "other"), "≠": (Kind.RELATION, "other"), "≈": (Kind.RELATION, "other"), ";": (Kind.BREAK, ";"),
    "π": (Kind.CONSTANT, "pi"), "²": (Kind.OPERATOR, "²"), "³": (Kind.OPERATOR, "³"),
}  # fmt: skip

_NUMBER = re.compile(r"\d{1,3}(?:(?:\{,\}|,\\!|,)\d{3})+(?!\d)(?:\.\d+)?|\d*\.\d*\\overline\{\d+\}|\d+(?:\.\d+)?|\.\d+")
_LISTED = re.compile(r"\d{1,3}(?:(?:\{,\}|,\\!)\d{3})+(?!\d)(?:\.\d+)?|\d*\.\d*\\overline\{\d+\}|\d+(?:\.\d+)?|\.\d+")
_LISTING = re.compile(r"gcd|lcm|max|min")
"""Functions of numbers between commas."""
_COMMAND = re.compile(r"\\([a-zA-Z]+|.)\*?", re.DOTALL)
_SUBSCRIPT = re.compile(r"\s*_\s*(\{[^{}]*\}|[a-zA-Z0-9]|\\[a-zA-Z]+)")
_WORDS = re.compile(r"\s*\{([^{}]*)\}")
_OVERLINE = re.compile(r"\\overline\s*\{[A-Za-z]{1,3}\}")
_BLANKS = re.compile(r"[\s~&]+")
_ELLIPSIS = re.compile(r"\.\.+|…")
_JOINING = re.compile(
    r"\b(?:and|or|if|when|where|for|so|then|since|because|thus|hence|therefore|with|while|but|as)\b|[,.;:]"
)


def tokens(formula: str, *, tex: bool = True) -> list[Token]:
    """The tokens of one formula. `tex`: `^12` is TeX's, which raises the 1 only; else all of it is raised.

    Takes time in proportion to the formula's length, and raises nothing.
    """
    return list(_Scanner(formula, tex=tex).scan())


class _Scanner:
    """Reads a formula from left to right."""

    def __init__(self, formula: str, *, tex: bool) -> None:
        self._text = formula
        self._tex = tex
        self._at = 0
        self._pending = 0
        """Arguments that the last command still takes: of digits it takes one each."""
        self._outer: list[int] = []
        """What was pending where each open brace stands."""
        self._before = ""
        """The token before: in brackets, and behind a comma, commas separate numbers rather than thousands."""
        self._lists = bool(_LISTING.search(formula))

    def scan(self) -> Iterator[Token]:
        while self._at < len(self._text):
            if blank := _BLANKS.match(self._text, self._at):
                self._at = blank.end()
                continue
            start = self._at
            token = self._next()
            if token is not None:
                self._before = token.text
                yield token._replace(start=start, end=self._at)

    def _next(self) -> Token | None:
        here = self._text[self._at]
        if here == "\\":
            return self._command()
        if here.isdecimal() or (here == "." and self._text[self._at + 1 : self._at + 2].isdecimal()):
            return self._number()
        if dots := _ELLIPSIS.match(self._text, self._at):
            return self._take(dots.end(), Token(Kind.STRANGE, "..."))
        if here.isalpha() and here.isascii():
            return self._symbol(self._at + 1)
        return self._sign(here)

    def _take(self, end: int, token: Token | None) -> Token | None:
        """`token`, which ends at `end`; it was an argument if one was pending."""
        self._at = end
        if token is not None and token.kind is not Kind.OPEN:
            self._pending = max(0, self._pending - 1)
        return token

    def _number(self) -> Token:
        if self._pending and self._tex:
            found = self._text[self._at]
            return self._based(self._at + 1, found)
        listed = self._lists or self._before in ("(", "[", ",")
        match = (_LISTED if listed else _NUMBER).match(self._text, self._at)
        if match is None:  # a digit of another script
            self._at += 1
            return Token(Kind.STRANGE, self._text[self._at - 1])
        return self._based(match.end(), match[0])

    def _based(self, end: int, digits: str) -> Token:
        """The number, in the base that its subscript names."""
        subscript = _SUBSCRIPT.match(self._text, end)
        self._pending = max(0, self._pending - 1)
        self._at = subscript.end() if subscript else end
        found = numeral(digits, subscript[1].strip("{}") if subscript else "10")
        return Token(Kind.NUMBER, digits, *found) if found else Token(Kind.STRANGE, digits)

    def _symbol(self, end: int) -> Token:
        while self._text[end : end + 1] == "'":
            end += 1
        subscript = _SUBSCRIPT.match(self._text, end)
        end = subscript.end() if subscript else end
        name = "".join(self._text[self._at : end].split())
        self._take(end, Token(Kind.SYMBOL, name))
        return Token(Kind.SYMBOL, name)

    def _sign(self, here: str) -> Token | None:
        kind, text = _SIGNS.get(here, (Kind.STRANGE, here))
        token = Token(kind, text)
        if here == "{":
            self._outer.append(max(0, self._pending - 1))
            self._pending = 0
        elif here == "}":
            self._pending = self._outer.pop() if self._outer else 0
        elif here == "^" and self._tex:
            self._pending = 1
        elif kind is not Kind.OPEN:
            self._pending = 0
        self._at += 1
        return token

    def _command(self) -> Token | None:
        match = _COMMAND.match(self._text, self._at)
        if match is None:
            return self._take(len(self._text), Token(Kind.STRANGE, "\\"))
        name = match[1]
        if name in _TEXTS or name in _ASIDE:
            return self._words(match)
        if name in _LETTERS:
            return self._symbol(match.end())
        if name in _BLANK:
            self._at = match.end()
            return None
        if overline := _OVERLINE.match(self._text, self._at):
            return self._take(overline.end(), Token(Kind.SYMBOL, "".join(overline[0].split())))
        token = _named(name)
        end = match.end()
        if name == "log" and (base := _SUBSCRIPT.match(self._text, end)):
            token = token._replace(text=f"log_{base[1].strip('{}')}")
            end = base.end()
        self._take(end, token)
        if token.kind is Kind.COMMAND:
            self._pending = _ARGUMENTS.get(token.text, 0)
        return token

    def _words(self, match: re.Match[str]) -> Token | None:
        """The text of `\\text{...}`; of a colour or an alignment, nothing."""
        words = _WORDS.match(self._text, match.end())
        if words is None:
            return self._take(match.end(), Token(Kind.STRANGE, match[0]))
        if match[1] in _ASIDE:
            self._at = words.end()
            strange = match[1] in ("begin", "end") and words[1] not in _LAID_OUT
            return Token(Kind.STRANGE, words[1]) if strange else None
        return self._take(words.end(), _worded(words[1]))


def _named(name: str) -> Token:
    if name in FUNCTIONS:
        return Token(Kind.COMMAND, name)
    if name in _COMMANDS:
        return Token(Kind.COMMAND, _COMMANDS[name])
    if name in _TIMES:
        return Token(Kind.OPERATOR, _TIMES[name])
    if name in _FENCES:
        return Token(*_FENCES[name])
    if name in _OTHERS:
        return Token(Kind.RELATION, "other")
    return _rest(name)


def _rest(name: str) -> Token:
    if name in _BREAKS:
        return Token(Kind.BREAK, name)
    if name in ("pmod", "bmod", "mod", "pod"):
        return Token(Kind.MODULO, name)
    known = {
        "equiv": Token(Kind.RELATION, "≡"), "pi": Token(Kind.CONSTANT, "pi"), "circ": Token(Kind.OPERATOR, "deg"),
        "degree": Token(Kind.OPERATOR, "deg"), "\\": Token(Kind.LINE, "\\\\"), "{": Token(Kind.OPEN, "("),
        "}": Token(Kind.CLOSE, "("), "choose": Token(Kind.OPERATOR, "choose"),
    }  # fmt: skip
    return known.get(name, Token(Kind.STRANGE, name))


def _worded(words: str) -> Token | None:
    """A unit or a name; what joins statements ends one."""
    stripped = words.strip()
    if not stripped:
        return None
    if stripped in FUNCTIONS:
        return Token(Kind.COMMAND, stripped)
    if stripped.lower() == "mod":
        return Token(Kind.MODULO, stripped)
    if _JOINING.search(stripped.lower()):
        return Token(Kind.BREAK, stripped)
    return Token(Kind.WORD, stripped)
