"""Read mathematical notation into expressions, exactly or by sympy."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    **{name: Token(Kind.COMMAND, name) for name in FUNCTIONS},
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), Token(Kind.COMMAND, "frac")),
    **dict.fromkeys(("binom", "dbinom", "tbinom"), Token(Kind.COMMAND, "binom")),
    **dict.fromkeys(("cdot", "times", "ast"), Token(Kind.OPERATOR, "*")),
    **dict.fromkeys(("circ", "degree"), Token(Kind.OPERATOR, "deg")),
    **{name: Token(Kind.RELATION, "other") for name in _OTHERS},
    **{name: Token(Kind.BREAK, name) for name in _BREAKS},
    **{name: Token(Kind.MODULO, name) for name in ("pmod", "bmod", "mod", "pod")},
    "sqrt": Token(Kind.COMMAND, "sqrt"), "div": Token(Kind.OPERATOR, "/"), "%": Token(Kind.OPERATOR, "%"),
    "choose": Token(Kind.OPERATOR, "choose"), "equiv": Token(Kind.RELATION, "≡"), "pi": Token(Kind.CONSTANT, "pi"),
    "{": Token(Kind.OPEN, "("), "}": Token(Kind.CLOSE, "("), "lbrack": Token(Kind.OPEN, "["),
    "rbrack": Token(Kind.CLOSE, "["), "lfloor": Token(Kind.OPEN, "lfloor"), "rfloor": Token(Kind.CLOSE, "lfloor"),
    "lceil": Token(Kind.OPEN, "lceil"), "rceil": Token(Kind.CLOSE, "lceil"), "lvert": Token(Kind.OPEN, "|"),
    "rvert": Token(Kind.CLOSE, "|"), "vert": Token(Kind.BAR, "|"), "\\": Token(Kind.LINE, "\\\\"),
}  # fmt: skip
"""Names behind a backslash that are neither letters, blanks nor texts."""
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
    """Return the tokens of one formula. `tex`: `^12` is TeX's, which raises the 1 only; else all of it is raised.

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
        """The pending parts at each open brace."""
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
        """Return `token`, which ends at `end`, and count it as a pending argument."""
        self._at = end
        if token is not None and token.kind is not Kind.OPEN:
            self._pending = max(0, self._pending - 1)
        return token

    def _number(self) -> Token:
        if self._pending and self._tex:
            found = self._text[self._at]
            return self._read_base(self._at + 1, found)
        listed = self._lists or self._before in ("(", "[", ",")
        match = (_LISTED if listed else _NUMBER).match(self._text, self._at)
        if match is None:  # a digit of another script
            self._at += 1
            return Token(Kind.STRANGE, self._text[self._at - 1])
        return self._read_base(match.end(), match[0])

    def _read_base(self, end: int, digits: str) -> Token:
        """Return the number, in the base that its subscript names."""
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
        token = _COMMANDS.get(name, Token(Kind.STRANGE, name))
        end = match.end()
        if name == "log" and (base := _SUBSCRIPT.match(self._text, end)):
            token = token._replace(text=f"log_{base[1].strip('{}')}")
            end = base.end()
        self._take(end, token)
        if token.kind is Kind.COMMAND:
            self._pending = _ARGUMENTS.get(token.text, 0)
        return token

    def _words(self, match: re.Match[str]) -> Token | None:
        """Return the text of `\\text{...}`; of a colour or an alignment, nothing."""
        words = _WORDS.match(self._text, match.end())
        if words is None:
            return self._take(match.end(), Token(Kind.STRANGE, match[0]))
        if match[1] in _ASIDE:
            self._at = words.end()
            strange = match[1] in ("begin", "end") and words[1] not in _LAID_OUT
            return Token(Kind.STRANGE, words[1]) if strange else None
        return self._take(words.end(), _read_word(words[1]))


def _read_word(words: str) -> Token | None:
    """Return a unit or a name; None for words that join statements."""
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
    return list(dict.fromkeys(found))


class _ExpressionParser:
    """Recursive descent; every bracket costs a few frames of the stack, so that depth is bounded."""

    def __init__(self, written: Sequence[Token], reading: ReadingRules) -> None:
        if not 0 < len(written) <= MOST_TOKENS:
            raise Unread(f"{len(written)} tokens")
        self._tokens = written
        self._reading = reading
        self._at = 0
        self._depth = 0
        self._bars = 0
        self.ambiguous = False

    def whole(self) -> Expression:
        found = self._sum()
        if self._at < len(self._tokens):
            raise Unread(f"nothing may follow at {self._tokens[self._at].text!r}")
        return found

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else Token(Kind.BREAK, "")

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _is(self, kind: Kind, *texts: str) -> bool:
        token = self._peek()
        return token.kind is kind and token.text in texts

    def _is_operator(self, *texts: str) -> bool:
        return self._is(Kind.OPERATOR, *texts)

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
        while self._is_operator("*", "/") or self._begins():
            if self._begins():
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
        token = self._peek()
        if token.kind is Kind.BAR:
            return self._bars == 0
        return token.kind in (Kind.NUMBER, Kind.SYMBOL, Kind.COMMAND, Kind.CONSTANT, Kind.OPEN)

    def _parse_product(self, left: Expression) -> Expression:
        """Parse the product of `left` and the factors next to it."""
        if self._peek().kind is Kind.NUMBER:
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
        while self._is_operator("!", "%", "deg", "²", "³") or self._peek().kind is Kind.WORD:
            token = self._next()
            if token.kind is Kind.WORD:
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
        match token.kind:
            case Kind.NUMBER:
                return self._number(token)
            case Kind.SYMBOL | Kind.WORD:
                return Symbol(token.text)
            case Kind.CONSTANT:
                return Apply(token.text)
            case Kind.OPEN:
                return self._parse_brackets(token)
            case Kind.BAR if self._bars == 0:
                self._bars += 1
                found = self._sum()
                if self._next().kind is not Kind.BAR:
                    raise Unread("a bar is not closed")
                self._bars -= 1
                return Apply("abs", (found,))
            case Kind.COMMAND:
                return self._command(token.text)
            case _:
                raise Unread(f"no expression begins with {token.text!r}")

    def _number(self, token: Token) -> Expression:
        """Read a number, or a mixed number: 8 1/3."""
        number = Number(token.value, token.places)
        if token.places is not None or not self._is(Kind.COMMAND, "frac"):
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
        if closed.kind is not Kind.CLOSE or closed.text != opened.text:
            raise Unread(f"{opened.text!r} is not closed")
        self._bars = bars
        rounded = {"lfloor": "floor", "lceil": "ceil", "|": "abs"}.get(opened.text)
        return Apply(rounded, (found,)) if rounded else found

    def _command(self, name: str) -> Expression:
        if name == "sqrt":
            degree: Expression = Number(Fraction(2))
            if self._is(Kind.OPEN, "["):
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
        if self._peek().kind is Kind.OPEN:
            return self._factor()
        found = self._factor()
        while self._peek().kind in (Kind.SYMBOL, Kind.CONSTANT):
            found = self._parse_product(found)
        return found

    def _arguments(self) -> tuple[Expression, ...]:
        if not self._is(Kind.OPEN, "("):
            raise Unread("arguments without brackets")
        self._next()
        found = [self._sum()]
        while self._is_operator(","):
            self._next()
            found.append(self._sum())
        if not self._is(Kind.CLOSE, "("):
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
