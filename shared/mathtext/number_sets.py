r"""Sets of real numbers: intervals and points, joined, cut and taken away from each other, and in one normal form.

Ends are compared as numbers; a set with a name in an end has no normal form.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cmp_to_key
from typing import Any, NamedTuple

from shared.mathtext.answer_shape import INFINITY, Bracketed, Finite, Interval, Reals, Shape, Value
from shared.mathtext.equal_values import compare_numbers, real

MOST_PIECES = 50
"""Of one set; one of more has no normal form."""


class Unordered(ValueError):
    """An end is no number, or there are too many pieces."""


class _Edge(NamedTuple):
    """An end of an interval."""

    at: "Fraction | float | Any"
    side: int
    """-1: just below the number, 0: the number itself, 1: just above it."""
    text: str


_Piece = tuple[_Edge, _Edge]
"""The lowest and the highest that belongs to an interval."""
_LOWEST, _HIGHEST = _Edge(float("-inf"), 1, "-" + INFINITY), _Edge(float("inf"), -1, INFINITY)


def as_reals(found: Shape) -> Reals | None:
    """The shape as a set of numbers, if it can be one."""
    if isinstance(found, Reals):
        return found
    if isinstance(found, Finite):
        points = [Interval(part.text, part.text, False, False) for part in found.parts if isinstance(part, Value)]  # noqa: FBT003
        return Reals(tuple(points)) if len(points) == len(found.parts) else None
    if not isinstance(found, Bracketed) or len(found.parts) != 2:
        return None
    low, high = found.parts
    if not isinstance(low, Value) or not isinstance(high, Value) or r"\langle" in found.opening:
        return None
    return Reals((Interval(low.text, high.text, found.opening == "(", found.closing == ")"),))


def in_order(found: Reals) -> Reals:
    """The same set of as few intervals as it has, the lowest first.

    Raises:
        Unordered: it has none.
    """
    return _reals(_merged(_pieces(found)), found.name)


def union(one: Reals, other: Reals) -> Reals:
    """What is in either.

    Raises:
        Unordered: see `in_order`; so do `intersection` and `difference`.
    """
    return in_order(Reals(one.pieces + other.pieces, one.name or other.name))


def intersection(one: Reals, other: Reals) -> Reals:
    """What is in both."""
    return _reals(_both(_pieces(one), _pieces(other)), one.name or other.name)


def difference(one: Reals, other: Reals) -> Reals:
    """What is in `one` only."""
    return _reals(_both(_pieces(one), _outside(_merged(_pieces(other)))), one.name)


def disjoint(sets: Sequence[Reals]) -> bool:
    """Whether no number is in two of them."""
    pieces = [_merged(_pieces(each)) for each in sets]
    return not any(_both(one, other) for at, one in enumerate(pieces) for other in pieces[:at])


def _pieces(found: Reals) -> list[_Piece]:
    if len(found.pieces) > MOST_PIECES:
        raise Unordered(f"{len(found.pieces)} pieces")
    edges = [
        (_Edge(_number(each.low), int(each.low_open), each.low), _Edge(_number(each.high), -each.high_open, each.high))
        for each in found.pieces
    ]
    return [piece for piece in edges if _compared(*piece) <= 0]


def _number(text: str) -> Any:
    if text in (INFINITY, "-" + INFINITY):
        return _HIGHEST.at if text == INFINITY else _LOWEST.at
    found = real(text)
    if found is None:
        raise Unordered(text)
    return found


def _compared(one: _Edge, other: _Edge) -> int:
    return compare_numbers(one.at, other.at) or one.side - other.side


_ORDER = cmp_to_key(_compared)


def _merged(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Pieces that overlap or touch as one."""
    found: list[_Piece] = []
    for low, high in sorted(pieces, key=lambda piece: _ORDER(piece[0])):
        if found and _touch(found[-1][1], low):
            found[-1] = (found[-1][0], max(found[-1][1], high, key=_ORDER))
        else:
            found.append((low, high))
    return found


def _touch(high: _Edge, low: _Edge) -> bool:
    """Whether nothing lies between the end of one piece and the beginning of the next."""
    order = compare_numbers(low.at, high.at)
    return order < 0 or (order == 0 and 0 in (low.side, high.side))


def _both(pieces: Sequence[_Piece], others: Sequence[_Piece]) -> list[_Piece]:
    found = [
        (max(one[0], other[0], key=_ORDER), min(one[1], other[1], key=_ORDER)) for one in pieces for other in others
    ]
    return _merged(piece for piece in found if _compared(*piece) <= 0)


def _outside(pieces: Sequence[_Piece]) -> list[_Piece]:
    """What is in none of the pieces, which are in order."""
    highs = [_LOWEST, *(_Edge(high.at, high.side + 1, high.text) for _, high in pieces)]
    lows = [*(_Edge(low.at, low.side - 1, low.text) for low, _ in pieces), _HIGHEST]
    return [piece for piece in zip(highs, lows, strict=True) if _compared(*piece) <= 0]


def _reals(pieces: Iterable[_Piece], name: str | None) -> Reals:
    return Reals(tuple(Interval(low.text, high.text, low.side != 0, high.side != 0) for low, high in pieces), name)
