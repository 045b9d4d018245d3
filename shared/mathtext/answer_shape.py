r"""What kind of thing an answer is: a value, a list, a pair, a set, intervals, an equation, a number in a base.

`answer_reading` reads it from an answer's normal form.
"""

from typing import NamedTuple

from shared.mathtext.units import Unit


class Value(NamedTuple):
    """A number or an expression, with what is measured in."""

    text: str
    unit: Unit | None = None
    """None: there is none, or none that is known."""


class Words(NamedTuple):
    """Nothing to compute."""

    text: str
    """In lower case, unless it is a single letter."""


class Listed(NamedTuple):
    """Several answers, in any order; each as often as it is given."""

    parts: tuple["Shape", ...]


class Finite(NamedTuple):
    """A set in braces."""

    parts: tuple["Shape", ...]


class Bracketed(NamedTuple):
    """A pair, a vector or an interval: what it is, only the other answer can say."""

    opening: str
    closing: str
    parts: tuple["Shape", ...]


class Interval(NamedTuple):
    """Real numbers between two values; an infinite end is open."""

    low: str
    high: str
    low_open: bool
    high_open: bool


class Reals(NamedTuple):
    """Intervals, of what `name` stands for."""

    pieces: tuple[Interval, ...]
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
    """What a text with a running letter stands for: all values of `2k\\pi` where k is a whole number."""

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
