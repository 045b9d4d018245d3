"""Read mathematical notation into expressions, exactly or by sympy."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.mathtext.approximation import ANGLES, Unsuitable, refuse_ambiguous
from shared.mathtext.expressions import Apply, Expression, Number, Symbol, exact_or_none, parts
from shared.mathtext.numbers import numeral

if TYPE_CHECKING:
    from sympy import Expr


# Split mathematical notation, LaTeX or plain, into tokens for the parser of expressions.
#
# Nothing is evaluated, and names never become code. Notation that is not understood becomes a token that no expression
# may contain, so the text around it stays unread rather than misread.


class Kind(Enum):
    """Kinds of tokens."""

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


# Python 3.11 takes ten times as long to look up a member in its class.
(
    NUMBER, SYMBOL, WORD, OPERATOR, COMMAND, CONSTANT, OPEN, CLOSE, BAR, RELATION, MODULO, BREAK, LINE, STRANGE,
) = Kind  # fmt: skip


class Token(NamedTuple):
    """One token. `value` is set for numbers, with the digits behind their point."""

    kind: Kind
    text: str
    start: int = 0
    end: int = 0
    """Where it stands in the formula."""
    value: Fraction = Fraction(0)
    places: int | None = None


_Sign = tuple[Kind, str]


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
"""Commands whose argument is not part of the formula."""
_LAID_OUT = _names("align align* aligned alignedat split gather gather* gathered equation equation* multline multline*")
"""Environments that are lines of formulas."""
_TEXTS = _names("text textrm textbf textit mbox hbox mathrm rm operatorname")
_OTHERS = _names(
    "lt gt le leq leqslant ge geq geqslant ne neq approx sim simeq cong in notin subset subseteq mid nmid parallel perp"
    " propto doteq not ll gg"
)
_ARGUMENTS = {"frac": 2, "binom": 2, "sqrt": 1}
_COMMANDS = {
    **{name: (COMMAND, name) for name in FUNCTIONS},
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), (COMMAND, "frac")),
    **dict.fromkeys(("binom", "dbinom", "tbinom"), (COMMAND, "binom")),
    **dict.fromkeys(("cdot", "times", "ast"), (OPERATOR, "*")),
    **dict.fromkeys(("circ", "degree"), (OPERATOR, "deg")),
    **dict.fromkeys(_OTHERS, (RELATION, "other")),
    **{name: (BREAK, name) for name in _BREAKS},
    **{name: (MODULO, name) for name in ("pmod", "bmod", "mod", "pod")},
    "sqrt": (COMMAND, "sqrt"), "div": (OPERATOR, "/"), "%": (OPERATOR, "%"),
    "choose": (OPERATOR, "choose"), "equiv": (RELATION, "≡"), "pi": (CONSTANT, "pi"),
    "{": (OPEN, "("), "}": (CLOSE, "("), "lbrack": (OPEN, "["),
    "rbrack": (CLOSE, "["), "lfloor": (OPEN, "lfloor"), "rfloor": (CLOSE, "lfloor"),
    "lceil": (OPEN, "lceil"), "rceil": (CLOSE, "lceil"), "lvert": (OPEN, "|"),
    "rvert": (CLOSE, "|"), "vert": (BAR, "|"), "\\": (LINE, "\\\\"),
}  # fmt: skip
"""Names behind a backslash that are neither letters, blanks nor texts."""
_SIGNS = {
    "+": (OPERATOR, "+"), "-": (OPERATOR, "-"), "−": (OPERATOR, "-"), "–": (OPERATOR, "-"),
    "*": (OPERATOR, "*"), "×": (OPERATOR, "*"), "·": (OPERATOR, "*"), "⋅": (OPERATOR, "*"),
    "/": (OPERATOR, "/"), "÷": (OPERATOR, "/"), "^": (OPERATOR, "^"), "!": (OPERATOR, "!"),
    "%": (OPERATOR, "%"), ",": (OPERATOR, ","), "°": (OPERATOR, "deg"), "(": (OPEN, "("),
    ")": (CLOSE, "("), "[": (OPEN, "["), "]": (CLOSE, "["), "{": (OPEN, "{"),
    "}": (CLOSE, "{"), "|": (BAR, "|"), "=": (RELATION, "="), "≡": (RELATION, "≡"),
    "<": (RELATION, "other"), ">": (RELATION, "other"), "≤": (RELATION, "other"),
    "≥": (RELATION, "other"), "≠": (RELATION, "other"), "≈": (RELATION, "other"), ";": (BREAK, ";"),
    "π": (CONSTANT, "pi"), "²": (OPERATOR, "²"), "³": (OPERATOR, "³"),
}  # fmt: skip

_SUBSCRIPT = re.compile(r"\s*_\s*(\{[^{}]*\}|[a-zA-Z0-9]|\\[a-zA-Z]+)")
_NUMBER = (
    r"(?P<digits>\d{1,3}(?:(?:\{,\}|,\\!|,)\d{3})+(?!\d)(?:\.\d+)?|\d*\.\d*\\overline\{\d+\}|\d+(?:\.\d+)?|\.\d+)"
    rf"(?:{_SUBSCRIPT.pattern.replace('(', '(?P<base>', 1)})?"
)
_LISTED = re.compile(_NUMBER.replace(r"\\!|,", r"\\!"))
_TOKEN = re.compile(
    rf"[\s~&]*(?:(?P<number>(?=\.?\d){_NUMBER})"
    rf"|(?P<name>(?:[a-zA-Z]|\\(?:{'|'.join(sorted(_LETTERS))})(?![a-zA-Z])\*?)'*(?:{_SUBSCRIPT.pattern})?"
    r"|\\overline\s*\{[A-Za-z]{1,3}\})|(?P<command>\\(?P<word>[a-zA-Z]+|(?s:.))\*?)|(?P<dots>\.\.+|…)|(?P<sign>[^\s~&]))"
)
_LISTING = re.compile(r"gcd|lcm|max|min")
"""Functions of numbers between commas."""
_WORDS = re.compile(r"\s*\{([^{}]*)\}")
_JOINING = re.compile(
    r"\b(?:and|or|if|when|where|for|so|then|since|because|thus|hence|therefore|with|while|but|as)\b|[,.;:]"
)


def tokens(formula: str, *, tex: bool = True) -> list[Token]:
    """Return the tokens of one formula. `tex`: `^12` is TeX's, which raises the 1 only; else all of it is raised.

    Takes time in proportion to the formula's length, and raises nothing.
    """
    return _Scanner(formula, tex=tex).scan()


class _Scanner:
    """Reads a formula from left to right."""

    def __init__(self, formula: str, *, tex: bool) -> None:
        self._text = formula
        self._tex = tex
        self._at = 0
        self._pending = 0
        """Arguments that the last command still takes: of digits it takes one each."""
        self._outer: list[int] = []
        """The pending parts at each open brace."""

    def scan(self) -> list[Token]:
        found: list[Token] = []
        while match := _TOKEN.match(self._text, self._at):
            group = match.lastgroup or ""
            start, self._at = match.span(group)
            if group == "number":
                found.append(self._number(match, start, found[-1].text if found else ""))
                continue
            if group == "sign":
                sign: _Sign | None = self._sign(self._text[start])
            elif group == "name":
                sign = self._take((SYMBOL, "".join(match["name"].split())))
            else:
                sign = self._command(match) if group == "command" else self._take((STRANGE, "..."))
            if sign is not None:
                found.append(Token(*sign, start, self._at))
        return found

    def _take(self, sign: _Sign | None) -> _Sign | None:
        """Return `sign`, and count it as a pending argument."""
        if self._pending and sign is not None and sign[0] is not OPEN:
            self._pending -= 1
        return sign

    def _number(self, match: re.Match[str], start: int, before: str) -> Token:
        """Return the number, in the base that its subscript names. In brackets, and behind a comma, commas separate
        numbers rather than thousands."""
        digits, base = match["digits"], match["base"]
        if self._pending and self._tex and len(digits) > 1:
            digits, base, self._at = digits[0], None, start + 1
        elif "," in digits and (before in ("(", "[", ",") or _LISTING.search(self._text)):
            listed = _LISTED.match(self._text, start) or match
            digits, base, self._at = listed["digits"], listed["base"], listed.end()
        self._pending = max(0, self._pending - 1)
        found = numeral(digits, base.strip("{}") if base else "10")
        return Token(NUMBER if found else STRANGE, digits, start, self._at, *found or ())

    def _sign(self, here: str) -> _Sign:
        sign = _SIGNS.get(here) or (STRANGE, here)
        if here == "{":
            self._outer.append(max(0, self._pending - 1))
            self._pending = 0
        elif here == "}":
            self._pending = self._outer.pop() if self._outer else 0
        elif here == "^" and self._tex:
            self._pending = 1
        elif sign[0] is not OPEN:
            self._pending = 0
        return sign

    def _command(self, match: re.Match[str]) -> _Sign | None:
        name = match["word"]
        if name in _TEXTS or name in _ASIDE:
            return self._words(match)
        if name in _BLANK:
            return None
        sign = _COMMANDS.get(name) or (STRANGE, name)
        if name == "log" and (base := _SUBSCRIPT.match(self._text, self._at)):
            sign = (COMMAND, f"log_{base[1].strip('{}')}")
            self._at = base.end()
        self._take(sign)
        if sign[0] is COMMAND:
            self._pending = _ARGUMENTS.get(sign[1], 0)
        return sign

    def _words(self, match: re.Match[str]) -> _Sign | None:
        """Return the text of `\\text{...}`; of a colour or an alignment, nothing."""
        words = _WORDS.match(self._text, self._at)
        if words is None:
            return self._take((STRANGE, match["command"]))
        self._at = words.end()
        if match["word"] in _ASIDE:
            strange = match["word"] in ("begin", "end") and words[1] not in _LAID_OUT
            return (STRANGE, words[1]) if strange else None
        return self._take(_read_word(words[1]))


def _read_word(words: str) -> _Sign | None:
    """Return a unit or a name; None for words that join statements."""
    stripped = words.strip()
    if not stripped:
        return None
    if stripped in FUNCTIONS:
        return (COMMAND, stripped)
    if stripped.lower() == "mod":
        return (MODULO, stripped)
    if _JOINING.search(stripped.lower()):
        return (BREAK, stripped)
    return (WORD, stripped)


# Expressions, read from tokens.
#
# Some notations mean two things: 2½ or 2 · ½, 50 % as a half or as 50 percent, 1/2x as (1/2)x or 1/(2x). `readings`
# gives all that an expression may mean.

MOST_TOKENS = 200
"""Of one expression; a longer one is not read."""
DEEPEST = 40
"""Brackets within brackets; deeper ones are not read."""


class Unread(ValueError):
    """These tokens are not an expression of the grammar."""


class ReadingRules(NamedTuple):
    """Readings of ambiguous notations."""

    mixed: bool = True
    """2½ is a mixed number."""
    percent: bool = True
    """% is a hundredth; else it is a unit."""
    tight: bool = False
    """What is multiplied without a sign stays together below a slash."""


READINGS = tuple(ReadingRules(*choice) for choice in product((True, False), repeat=3))


def readings(written: Sequence[Token]) -> list[Expression]:
    """Return all readings of these tokens, the most common first.

    Raises:
        Unread: they are not an expression.
    """
    reader = _ExpressionParser(written, ReadingRules())
    found = [reader.whole()]
    if reader.ambiguous:
        found += [_ExpressionParser(written, reading).whole() for reading in READINGS]
        found = list(dict.fromkeys(found))
    return found


_END = Token(BREAK, "")
_BEGINNINGS = (NUMBER, SYMBOL, COMMAND, CONSTANT, OPEN)


class _ExpressionParser:
    """Recursive descent; every bracket costs a few frames of the stack, so that depth is bounded."""

    def __init__(self, written: Sequence[Token], reading: ReadingRules) -> None:
        if not 0 < len(written) <= MOST_TOKENS:
            raise Unread(f"{len(written)} tokens")
        self._rest = iter(written)
        self._here = next(self._rest)
        self._reading = reading
        self._depth = 0
        self._bars = 0
        self.ambiguous = False

    def whole(self) -> Expression:
        found = self._sum()
        if self._here is not _END:
            raise Unread(f"nothing may follow at {self._here.text!r}")
        return found

    def _next(self) -> Token:
        token, self._here = self._here, next(self._rest, _END)
        return token

    def _is(self, kind: Kind, *texts: str) -> bool:
        return self._here.kind is kind and self._here.text in texts

    def _is_operator(self, *texts: str) -> bool:
        return self._here.text in texts and self._here.kind is OPERATOR

    def _sum(self) -> Expression:
        found = self._term()
        while self._is_operator("+", "-"):
            sign = self._next().text
            found = Apply(sign, (found, self._term()))
        return found

    def _term(self) -> Expression:
        if self._is_operator("+", "-"):
            negative = self._next().text == "-"
            if self._is_operator("+", "-"):
                raise Unread("two signs")
            return Apply("neg", (self._term(),)) if negative else self._term()
        found = self._factor()
        while (begins := self._begins()) or self._is_operator("*", "/"):
            if begins:
                found = self._parse_product(found)
            elif self._next().text == "*":
                found = Apply("*", (found, self._parse_signed()))
            else:
                divisor = self._parse_signed()
                if self._begins():
                    self.ambiguous = True
                while self._reading.tight and self._begins():
                    divisor = self._parse_product(divisor)
                found = Apply("/", (found, divisor))
        return found

    def _parse_signed(self) -> Expression:
        if self._is_operator("-"):
            self._next()
            return Apply("neg", (self._factor(),))
        return self._factor()

    def _begins(self) -> bool:
        """Return whether a factor without a sign begins here."""
        kind = self._here.kind
        return kind in _BEGINNINGS or (kind is BAR and self._bars == 0)

    def _parse_product(self, left: Expression) -> Expression:
        """Parse the product of `left` and the factors next to it."""
        if self._here.kind is NUMBER:
            raise Unread("two numbers without a sign between them")
        return Apply("*", (left, self._factor()))

    def _factor(self) -> Expression:
        found = self._parse_postfix(self._primary())
        if self._is_operator("^"):
            self._next()
            if not self._is_operator("deg"):
                self._deeper()
                found = Apply("^", (found, self._parse_signed()))
                self._depth -= 1
            found = self._parse_postfix(found)
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unread("too deep")

    def _parse_postfix(self, found: Expression) -> Expression:
        while self._is_operator("!", "%", "deg", "²", "³") or self._here.kind is WORD:
            token = self._next()
            if token.kind is WORD:
                found = Apply("*", (found, self._unit(token.text)))
            elif token.text == "%":
                self.ambiguous = True
                found = Apply("%", (found,)) if self._reading.percent else found
            elif token.text in "²³":
                found = Apply("^", (found, Number(Fraction(2 if token.text == "²" else 3))))
            else:
                found = Apply(token.text, (found,))
        return found

    def _unit(self, name: str) -> Expression:
        """Apply a power to a unit: 24 cm^2 is not the square of 24 cm."""
        unit = Symbol(name, unit=True)
        if not self._is_operator("^"):
            return unit
        self._next()
        return Apply("^", (unit, self._primary()))

    def _primary(self) -> Expression:
        self._deeper()
        found = self._operand(self._next())
        self._depth -= 1
        return found

    def _operand(self, token: Token) -> Expression:
        kind = token.kind
        if kind is NUMBER:
            return self._number(token)
        if kind is SYMBOL or kind is WORD:
            return Symbol(token.text)
        if kind is OPEN:
            return self._parse_brackets(token)
        if kind is COMMAND:
            return self._command(token.text)
        if kind is CONSTANT:
            return Apply(token.text)
        if kind is not BAR or self._bars:
            raise Unread(f"no expression begins with {token.text!r}")
        self._bars += 1
        found = self._sum()
        if self._next().kind is not BAR:
            raise Unread("a bar is not closed")
        self._bars -= 1
        return Apply("abs", (found,))

    def _number(self, token: Token) -> Expression:
        """Read a number, or a mixed number: 8 1/3."""
        number = Number(token.value, token.places)
        if token.places is not None or not self._is(COMMAND, "frac"):
            return number
        fraction = self._primary()
        match fraction:
            case Apply("/", (Number(above), Number(below))) if 0 < above < below:
                self.ambiguous = True
                return Apply("+" if self._reading.mixed else "*", (number, fraction))
            case _:
                return Apply("*", (number, fraction))

    def _parse_brackets(self, opened: Token) -> Expression:
        bars, self._bars = self._bars, 0
        found = self._sum()
        if opened.text == "{" and self._is_operator("choose"):
            self._next()
            found = Apply("choose", (found, self._sum()))
        closed = self._next()
        if closed.kind is not CLOSE or closed.text != opened.text:
            raise Unread(f"{opened.text!r} is not closed")
        self._bars = bars
        rounded = {"lfloor": "floor", "lceil": "ceil", "|": "abs"}.get(opened.text)
        return Apply(rounded, (found,)) if rounded else found

    def _command(self, name: str) -> Expression:
        if name == "sqrt":
            degree: Expression = Number(Fraction(2))
            if self._is(OPEN, "["):
                degree = self._parse_brackets(self._next())
            return Apply("root", (degree, self._primary()))
        if name in FUNCTIONS:
            if name in ("gcd", "lcm", "max", "min"):
                return Apply(name, self._arguments())
            if self._is_operator("^"):
                self._next()
                power = self._primary()
                if power == Number(Fraction(-1)) or isinstance(power, Apply):
                    raise Unread("an inverse function")
                return Apply("^", (Apply(name, (self._argument(),)), power))
            return Apply(name, (self._argument(),))
        if name.startswith("log_"):
            base = name.removeprefix("log_")
            read = Number(Fraction(base[:9])) if base.isdecimal() else Symbol(base)
            return Apply("log", (read, self._argument()))
        operation = "/" if name == "frac" else "choose"
        return Apply(operation, (self._primary(), self._primary()))

    def _argument(self) -> Expression:
        """Parse the argument of a function: a bracket, or a factor and the names behind it, such as 2 pi x."""
        if self._here.kind is OPEN:
            return self._factor()
        found = self._factor()
        while self._here.kind in (SYMBOL, CONSTANT):
            found = self._parse_product(found)
        return found

    def _arguments(self) -> tuple[Expression, ...]:
        if not self._is(OPEN, "("):
            raise Unread("arguments without brackets")
        self._next()
        found = [self._sum()]
        while self._is_operator(","):
            self._next()
            found.append(self._sum())
        if not self._is(CLOSE, "("):
            raise Unread("arguments are not closed")
        self._next()
        return tuple(found)


# Expressions of our grammar as SymPy's, built node by node: no text is parsed, no name is evaluated.
#
# SymPy computes powers of numbers as it builds them, so large powers are refused first.

LARGEST_POWER = 24
"""Maximum exponent of a base that is not a rational number: a sum to this power still has few enough terms."""


def symbolic(expression: Expression, *, angle: bool = False) -> "Expr":
    """Return the expression for SymPy; `angle`: inside a trigonometric function, where degrees are not mere numbers.

    Raises:
        Unsuitable: see there.
        Undefined: a part of it has no value, such as a division by zero.
    """
    import sympy

    if isinstance(expression, Symbol):
        return sympy.Symbol(expression.name)
    value = None if angle and not isinstance(expression, Number) else exact_or_none(expression)
    if value is not None:
        return sympy.Rational(value.numerator, value.denominator)
    assert isinstance(expression, Apply)  # noqa: S101  # a number has its value
    operation = _operations().get(expression.operation)
    if operation is None:
        raise Unsuitable(expression.operation)
    # What would be large, or means two things.
    refuse_ambiguous(expression)
    if expression.operation == "^":
        exponent = expression.operands[1]
        power = exact_or_none(exponent)
        if power is not None and abs(power) > LARGEST_POWER:
            raise Unsuitable("a large power")
        if power is None and any(isinstance(part, Apply) and part.operation == "^" for part in parts(exponent)):
            raise Unsuitable("a tower of powers")
    inside = angle or expression.operation in ANGLES
    operands = [symbolic(operand, angle=inside) for operand in expression.operands]
    built: Expr = operation(*operands)
    return built * (sympy.pi / 180) if angle and expression.operation == "deg" else built


@cache
def _operations() -> Mapping[str, Callable[..., Any]]:
    import sympy

    return {
        "+": lambda left, right: left + right,
        "-": lambda left, right: left - right,
        "*": lambda left, right: left * right,
        "/": lambda left, right: left / right,
        "^": lambda base, exponent: base**exponent,
        "neg": lambda value: -value,
        "%": lambda value: value / 100,
        "deg": lambda value: value,
        "root": _root,
        "abs": sympy.Abs,
        "pi": lambda: sympy.pi,
        "floor": sympy.floor,
        "ceil": sympy.ceiling,
        "ln": sympy.log,
        "log": lambda base, value: sympy.log(value) / sympy.log(base),
        "arcsin": sympy.asin,
        "arccos": sympy.acos,
        "arctan": sympy.atan,
        **{name: getattr(sympy, name) for name in ANGLES},
    }


def _root(degree: "Expr", value: "Expr") -> "Expr":
    """Return the root; for a negative number and an odd degree the real one, as taught at school."""
    from sympy import Integer, real_root, root

    odd = isinstance(degree, Integer) and degree % 2 == 1
    found: Expr = real_root(value, degree) if odd and value.is_negative else root(value, degree)
    return found
