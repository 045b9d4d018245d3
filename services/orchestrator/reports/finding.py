"""What a comparison found, in one sentence that ranks only what the tests tell apart."""

from collections.abc import Sequence

import msgspec

from services.orchestrator.reports.compared import Compared, Versus
from shared.statistics import pairs

MOST_NAMED = 3
"""More systems than this are counted and not named."""


def best(systems: Sequence[Compared]) -> str | None:
    """The name of the first system with the highest figure; None where none has one."""
    known = [each for each in systems if each.measured.value is not None]
    return max(known, key=lambda each: each.measured.value or 0.0).name if known else None


def against(found: Sequence[Versus], name: str, other: str | None) -> Versus | None:
    """The pair of `name` with `other`, or where `other` is None with its baseline; `name` is its left side."""
    for each in found:
        if each.left == name and other in (None, each.right):
            return each
        if other is not None and (each.right, each.left) == (name, other):
            return turned(each)
    return None


def turned(found: Versus) -> Versus:
    """The same from the right side; `moved` is left out."""
    changed = msgspec.structs.replace(
        pairs.reversed_pair(found),
        left=found.right, right=found.left, left_only=found.right_only, right_only=found.left_only, moved={},
    )  # fmt: skip
    return msgspec.structs.replace(changed, words=pairs.words(changed))


def finding(systems: Sequence[Compared], found: Sequence[Versus], baseline: str | None) -> str:
    """The headline of these systems and pairs; `baseline` is the right side of all pairs, None: each with each."""
    known, first = [each for each in found if each.items], best(systems)
    if not known or first is None:
        return "Nothing can be compared yet: no item has a value on two sides"
    return _with_baseline(known, baseline) if baseline is not None else _each_with_each(known, first)


def _with_baseline(found: Sequence[Versus], baseline: str) -> str:
    ordered = sorted(found, key=_difference, reverse=True)
    better = [each for each in ordered if each.separable and _difference(each) > 0]
    worse = [each for each in reversed(ordered) if each.separable and _difference(each) < 0]
    n = _items(found)
    if better:
        said = f"{_named(better)} {_verb(better, 'beats', 'beat')} {baseline} at {n}, by {_points(better)}"
    else:
        said = f"No variant beats {baseline} at {n}{_leading(ordered[0])}"
    return f"{said}; {_named(worse)} {_verb(worse, 'is', 'are')} worse, by {_points(worse)}" if worse else said


def _each_with_each(found: Sequence[Versus], first: str) -> str:
    of_first = [turned(each) if each.left == first else each for each in found if first in (each.left, each.right)]
    others = sorted(of_first, key=_difference, reverse=True)
    beaten = [each for each in others if each.separable]
    n = _items(found)
    if beaten and len(beaten) == len(others):
        whom = beaten[0].left if len(beaten) == 1 else "all others"
        return f"{first} beats {whom} at {n}, by {_points(beaten)}"
    if beaten:
        level = [each for each in others if not each.separable]
        beats = f"{first} beats {_named(beaten)} at {n}"
        return f"{beats}; {_named(level)} {_verb(level, 'is', 'are')} not separable from it"
    some = any(each.separable for each in found)
    said = f"No variant stands out at {n}" if some else f"No two are separable at {n}"
    return said + (_leading(turned(others[0])) if others else "")


def _difference(each: Versus) -> float:
    return each.difference.value or 0.0 if each.difference else 0.0


def _leading(each: Versus) -> str:
    return f"; {each.left} leads by {_points([each])}, not separable" if _difference(each) > 0 else ""


def _named(found: Sequence[Versus]) -> str:
    """The left sides."""
    names = [each.left for each in found]
    if len(names) > MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _verb(found: Sequence[Versus], one: str, several: str) -> str:
    return one if len(found) == 1 else several


def _points(found: Sequence[Versus]) -> str:
    """Such as "10 points", "2.5 to 10 points"."""
    sizes = sorted({f"{100 * abs(_difference(each)):.1f}".removesuffix(".0") for each in found}, key=float)
    return f"{' to '.join(dict.fromkeys((sizes[0], sizes[-1])))} {'point' if sizes == ['1'] else 'points'}"


def _items(found: Sequence[Versus]) -> str:
    """Such as "n = 40", "n = 36 to 40"."""
    counts = sorted({each.items for each in found})
    return f"n = {' to '.join(f'{count:,}' for count in dict.fromkeys((counts[0], counts[-1])))}"
