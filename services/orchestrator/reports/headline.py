"""States the result of a comparison in one sentence that ranks only systems which the tests tell apart."""

from collections.abc import Sequence

import msgspec

from services.orchestrator.reports.comparison_views import Compared, Versus
from shared.statistics import significance

MOST_NAMED = 3
"""Number of systems above which the sentence gives their count in place of their names."""


def find_best(systems: Sequence[Compared]) -> str | None:
    """Return the name of the first system with the highest value; None if no system has one."""
    known = [each for each in systems if each.measured.value is not None]
    return max(known, key=lambda each: each.measured.value or 0.0).name if known else None


def find_pair(found: Sequence[Versus], name: str, other: str | None) -> Versus | None:
    """Return the pair of `name` with `other`, or with its baseline if `other` is None; `name` is the left side."""
    for each in found:
        if each.left == name and other in (None, each.right):
            return each
        if other is not None and (each.right, each.left) == (name, other):
            return swap_sides(each)
    return None


def swap_sides(found: Versus) -> Versus:
    """Exchange the sides of a pair; `moved` is left out."""
    changed = msgspec.structs.replace(
        significance.reverse_pair(found),
        left=found.right, right=found.left, left_only=found.right_only, right_only=found.left_only, moved={},
    )  # fmt: skip
    return msgspec.structs.replace(changed, words=significance.describe_pair(changed))


def write_finding(systems: Sequence[Compared], found: Sequence[Versus], baseline: str | None) -> str:
    """Return the headline of a comparison; `baseline` is the right side of all pairs, None if every pair was
    compared.
    """
    known, first = [each for each in found if each.items], find_best(systems)
    if not known or first is None:
        return "Nothing can be compared yet: no item has been measured in two systems"
    return _compare_with_baseline(known, baseline) if baseline is not None else _compare_all_pairs(known, first)


def _compare_with_baseline(found: Sequence[Versus], baseline: str) -> str:
    ordered = sorted(found, key=_get_difference, reverse=True)
    better = [each for each in ordered if each.separable and _get_difference(each) > 0]
    worse = [each for each in reversed(ordered) if each.separable and _get_difference(each) < 0]
    n = _format_items(found)
    if better:
        beats = _choose_verb(better, "beats", "beat")
        sentence = f"{_join_names(better)} {beats} {baseline} at {n}, by {_format_points(better)}"
    else:
        sentence = f"No variant beats {baseline} at {n}{_describe_lead(ordered[0])}"
    return (
        f"{sentence}; {_join_names(worse)} {_choose_verb(worse, 'is', 'are')} worse, by {_format_points(worse)}"
        if worse
        else sentence
    )


def _compare_all_pairs(found: Sequence[Versus], first: str) -> str:
    of_first = [swap_sides(each) if each.left == first else each for each in found if first in (each.left, each.right)]
    others = sorted(of_first, key=_get_difference, reverse=True)
    beaten = [each for each in others if each.separable]
    n = _format_items(found)
    if beaten and len(beaten) == len(others):
        whom = beaten[0].left if len(beaten) == 1 else "all others"
        return f"{first} beats {whom} at {n}, by {_format_points(beaten)}"
    if beaten:
        level = [each for each in others if not each.separable]
        beats = f"{first} beats {_join_names(beaten)} at {n}"
        return f"{beats}; {_join_names(level)} {_choose_verb(level, 'is', 'are')} not separable from it"
    some = any(each.separable for each in found)
    sentence = f"No variant stands out at {n}" if some else f"No two are separable at {n}"
    return sentence + (_describe_lead(swap_sides(others[0])) if others else "")


def _get_difference(each: Versus) -> float:
    return each.difference.value or 0.0 if each.difference else 0.0


def _describe_lead(each: Versus) -> str:
    return f"; {each.left} leads by {_format_points([each])}, not separable" if _get_difference(each) > 0 else ""


def _join_names(found: Sequence[Versus]) -> str:
    """Name the left sides."""
    names = [each.left for each in found]
    if len(names) > MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _choose_verb(found: Sequence[Versus], one: str, several: str) -> str:
    return one if len(found) == 1 else several


def _format_points(found: Sequence[Versus]) -> str:
    """Return the range of differences, such as "10 points" or "2.5 to 10 points"."""
    sizes = sorted({f"{100 * abs(_get_difference(each)):.1f}".removesuffix(".0") for each in found}, key=float)
    return f"{' to '.join(dict.fromkeys((sizes[0], sizes[-1])))} {'point' if sizes == ['1'] else 'points'}"


def _format_items(found: Sequence[Versus]) -> str:
    """Return the range of item counts, such as "n = 40" or "n = 36 to 40"."""
    counts = sorted({each.items for each in found})
    return f"n = {' to '.join(f'{count:,}' for count in dict.fromkeys((counts[0], counts[-1])))}"
