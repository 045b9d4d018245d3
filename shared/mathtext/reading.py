"""Expressions, read from tokens.

Some notations mean two things: 2½ or 2 · ½, 50 % as a half or as 50 percent, 1/2x as (1/2)x or 1/(2x). `readings` gives
all that an expression may mean.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from shared.mathtext.expressions import Apply, Expression, Number, Symbol
from shared.mathtext.notation import FUNCTIONS, Kind, Token

MOST_TOKENS = 200
"""Of one expression; a longer one is not read."""
DEEPEST = 40
"""Brackets within brackets; deeper ones are not read."""


class Unread(ValueError):
    """These tokens are no expression of the grammar."""


class Reading(NamedTuple):
    """What ambiguous notations are taken for."""

    mixed: bool = True
    """2½ is a mixed number."""
    percent: bool = True
    """% is a hundredth; else it is a unit."""
    tight: bool = False
    """What is multiplied without a sign stays together below a slash."""


READINGS = tuple(Reading(*choice) for choice in product((True, False), repeat=3))


def readings(written: Sequence[Token]) -> list[Expression]:
    """All that these tokens may mean, the commonest first.

    Raises:
        Unread: they are no expression.
    """
    reader = _Reader(written, Reading())
    found = [reader.whole()]
    if reader.ambiguous:
        found += [_Reader(written, reading).whole() for reading in READINGS]
    return list(dict.fromkeys(found))


class _Reader:
    """Recursive descent; every bracket costs a few frames of the stack, so that depth is bounded."""

    def __init__(self, written: Sequence[Token], reading: Reading) -> None:
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

    def _peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else Token(Kind.BREAK, "")

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _is(self, kind: Kind, *texts: str) -> bool:
        token = self._peek()
        return token.kind is kind and token.text in texts

    def _operator(self, *texts: str) -> bool:
        return self._is(Kind.OPERATOR, *texts)

    def _sum(self) -> Expression:
        found = self._term()
        while self._operator("+", "-"):
            sign = self._next().text
            found = Apply(sign, (found, self._term()))
        return found

    def _term(self) -> Expression:
        if self._operator("+", "-"):
            negative = self._next().text == "-"
            if self._operator("+", "-"):
                raise Unread("two signs")
            return Apply("neg", (self._term(),)) if negative else self._term()
        found = self._factor()
        while self._operator("*", "/") or self._begins():
            if self._begins():
                found = self._beside(found)
            elif self._next().text == "*":
                found = Apply("*", (found, self._signed()))
            else:
                found = Apply("/", (found, self._below()))
        return found

    def _below(self) -> Expression:
        """What a slash divides by."""
        found = self._signed()
        if self._begins():
            self.ambiguous = True
        while self._reading.tight and self._begins():
            found = self._beside(found)
        return found

    def _signed(self) -> Expression:
        if self._operator("-"):
            self._next()
            return Apply("neg", (self._factor(),))
        return self._factor()

    def _begins(self) -> bool:
        """Whether a factor begins here that no sign stands before."""
        token = self._peek()
        if token.kind is Kind.BAR:
            return self._bars == 0
        return token.kind in (Kind.NUMBER, Kind.SYMBOL, Kind.COMMAND, Kind.CONSTANT, Kind.OPEN)

    def _beside(self, left: Expression) -> Expression:
        """The product of `left` and what stands beside it."""
        if self._peek().kind is Kind.NUMBER:
            raise Unread("two numbers without a sign between them")
        return Apply("*", (left, self._factor()))

    def _factor(self) -> Expression:
        found = self._postfixed(self._primary())
        if self._operator("^"):
            self._next()
            found = self._postfixed(self._raised(found))
        return found

    def _raised(self, base: Expression) -> Expression:
        if self._operator("deg"):
            return base
        self._deeper()
        exponent = self._signed()
        self._depth -= 1
        return Apply("^", (base, exponent))

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unread("too deep")

    def _postfixed(self, found: Expression) -> Expression:
        while self._operator("!", "%", "deg", "²", "³") or self._peek().kind is Kind.WORD:
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
        """A unit with its own power: 24 cm^2 is no square of 24 cm."""
        unit = Symbol(name, unit=True)
        if not self._operator("^"):
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
                return self._bracketed(token)
            case Kind.BAR if self._bars == 0:
                return self._between_bars()
            case Kind.COMMAND:
                return self._command(token.text)
            case _:
                raise Unread(f"no expression begins with {token.text!r}")

    def _number(self, token: Token) -> Expression:
        """A number, or a mixed one: 8 1/3."""
        number = Number(token.value, token.places)
        if token.places is not None or not self._is(Kind.COMMAND, "frac"):
            return number
        fraction = self._primary()
        if not _proper(fraction):
            return Apply("*", (number, fraction))
        self.ambiguous = True
        return Apply("+" if self._reading.mixed else "*", (number, fraction))

    def _bracketed(self, opened: Token) -> Expression:
        bars, self._bars = self._bars, 0
        found = self._sum()
        if opened.text == "{" and self._operator("choose"):
            self._next()
            found = Apply("choose", (found, self._sum()))
        closed = self._next()
        if closed.kind is not Kind.CLOSE or closed.text != opened.text:
            raise Unread(f"{opened.text!r} is not closed")
        self._bars = bars
        rounded = {"lfloor": "floor", "lceil": "ceil", "|": "abs"}.get(opened.text)
        return Apply(rounded, (found,)) if rounded else found

    def _between_bars(self) -> Expression:
        self._bars += 1
        found = self._sum()
        if self._next().kind is not Kind.BAR:
            raise Unread("a bar is not closed")
        self._bars -= 1
        return Apply("abs", (found,))

    def _command(self, name: str) -> Expression:
        if name == "sqrt":
            degree: Expression = Number(Fraction(2))
            if self._is(Kind.OPEN, "["):
                degree = self._bracketed(self._next())
            return Apply("root", (degree, self._primary()))
        if name in FUNCTIONS:
            return self._function(name)
        if name.startswith("log_"):
            return Apply("log", (_base(name), self._argument()))
        operation = "/" if name == "frac" else "choose"
        return Apply(operation, (self._primary(), self._primary()))

    def _function(self, name: str) -> Expression:
        if name in ("gcd", "lcm", "max", "min"):
            return Apply(name, self._arguments())
        if self._operator("^"):
            self._next()
            power = self._primary()
            if power == Number(Fraction(-1)) or isinstance(power, Apply):
                raise Unread("an inverse function")
            return Apply("^", (Apply(name, (self._argument(),)), power))
        return Apply(name, (self._argument(),))

    def _argument(self) -> Expression:
        """What a function is applied to: a bracket, or a factor and the names behind it, such as 2 pi x."""
        if self._peek().kind is Kind.OPEN:
            return self._factor()
        found = self._factor()
        while self._peek().kind in (Kind.SYMBOL, Kind.CONSTANT):
            found = self._beside(found)
        return found

    def _arguments(self) -> tuple[Expression, ...]:
        if not self._is(Kind.OPEN, "("):
            raise Unread("arguments without brackets")
        self._next()
        found = [self._sum()]
        while self._operator(","):
            self._next()
            found.append(self._sum())
        if not self._is(Kind.CLOSE, "("):
            raise Unread("arguments are not closed")
        self._next()
        return tuple(found)


def _base(name: str) -> Expression:
    """Of a logarithm: a number, or a name."""
    base = name.removeprefix("log_")
    return Number(Fraction(base[:9])) if base.isdecimal() else Symbol(base)


def _proper(expression: Expression) -> bool:
    """Whether it is a fraction of two whole numbers below 1."""
    if not isinstance(expression, Apply) or expression.operation != "/":
        return False
    above, below = expression.operands
    return isinstance(above, Number) and isinstance(below, Number) and 0 < above.value < below.value
