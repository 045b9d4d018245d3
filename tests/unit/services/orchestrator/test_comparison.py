from collections import Counter
from fractions import Fraction

import pytest

from services.orchestrator.reports.comparison import (
    MOST_CHARACTERS,
    MOST_LINES,
    Compared,
    Versus,
    compare_prompts,
    find_best,
    find_pair,
    swap_sides,
    write_finding,
)
from services.orchestrator.reports.tally import Accuracy
from shared.statistics import significance
from shared.statistics.intervals import Repeats
from shared.statistics.significance import Mean

# Headlines of comparisons: what is not separable is not ranked.


YES, NO = Fraction(1), Fraction(0)


def system(name: str, value: float | None) -> Compared:
    return Compared(
        name=name, jobs=(), datasets=("items",), pipeline="dense", items=40,
        accuracy=Accuracy(value=value, low=0, high=1, items=40, correct=0, graded=40),
        measured=Mean(value=value, low=0.0, high=1.0, n=40), bootstrap=None,
        repeats=Repeats(accuracies=(), items=0, mean=None, std=None), endings={},
    )  # fmt: skip


def versus(left: str, right: str, gained: int, lost: int, *, items: int = 40) -> Versus:
    counts = Counter({(YES, NO): gained, (NO, YES): lost, (YES, YES): items - gained - lost})
    found = significance.compare_pair([counts] if items else [])
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return Versus(
        left=left, right=right, left_only=1, right_only=2, moved={}, words=significance.describe_pair(found), **fields
    )


SYSTEMS = [system("hybrid", 0.6), system("dense", 0.5), system("sparse", 0.2)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([versus("hybrid", "dense", 6, 2)],
         "No variant beats dense at n = 40; hybrid leads by 10 points, not separable"),
        ([versus("hybrid", "dense", 2, 6)], "No variant beats dense at n = 40"),
        ([versus("hybrid", "dense", 12, 0), versus("sparse", "dense", 3, 3)],
         "hybrid beats dense at n = 40, by 30 points"),
        ([versus("hybrid", "dense", 12, 0), versus("gate", "dense", 11, 0), versus("sparse", "dense", 0, 20)],
         "hybrid and gate beat dense at n = 40, by 27.5 to 30 points; sparse is worse, by 50 points"),
        ([versus(f"v{n}", "dense", 20 - n, 0, items=36 + n) for n in range(5)],
         "v0 and 4 others beat dense at n = 36 to 40, by 40 to 55.6 points"),
    ],
)  # fmt: skip
def test_with_a_baseline_only_what_is_separable_beats_it(found: list[Versus], said: str) -> None:
    assert write_finding(SYSTEMS, found, "dense") == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([versus("hybrid", "dense", 6, 2), versus("sparse", "hybrid", 3, 4), versus("dense", "sparse", 1, 1)],
         "No two are separable at n = 40; hybrid leads by 2.5 points, not separable"),
        ([versus("dense", "hybrid", 0, 12), versus("hybrid", "sparse", 20, 0), versus("dense", "sparse", 1, 1)],
         "hybrid beats all others at n = 40, by 30 to 50 points"),
        ([versus("dense", "hybrid", 1, 2), versus("hybrid", "sparse", 20, 0), versus("dense", "sparse", 1, 1)],
         "hybrid beats sparse at n = 40; dense is not separable from it"),
        ([versus("hybrid", "dense", 2, 2), versus("hybrid", "sparse", 3, 3), versus("dense", "sparse", 9, 0)],
         "No variant stands out at n = 40"),
        ([versus("hybrid", "dense", 12, 0)], "hybrid beats dense at n = 40, by 30 points"),
    ],
)  # fmt: skip
def test_without_one_the_best_is_held_against_the_others(found: list[Versus], said: str) -> None:
    assert write_finding(SYSTEMS, found, None) == said


def test_where_nothing_is_graded_the_headline_says_so() -> None:
    empty = versus("hybrid", "dense", 0, 0, items=0)
    assert write_finding(SYSTEMS, [empty], "dense").startswith("Nothing can be compared yet")
    assert write_finding([system("hybrid", None)], [versus("hybrid", "dense", 1, 0)], None).startswith("Nothing")
    assert find_best([system("hybrid", None)]) is None


def test_a_pair_is_found_from_either_side() -> None:
    found = [versus("hybrid", "dense", 6, 2)]
    seen = find_pair(found, "dense", "hybrid")
    assert seen is not None
    assert (seen.left, seen.right, seen.gained, seen.lost, seen.left_only) == ("dense", "hybrid", 2, 6, 2)
    assert seen.words.startswith("not separable at n = 40: -10.0 points")
    assert swap_sides(seen) == found[0]
    assert find_pair(found, "hybrid", None) == found[0]
    assert find_pair(found, "dense", None) is None


# Where two prompts differ: what is left out, what is cut.


def told(left: str, right: str) -> list[tuple[str, str]]:
    return [(line.side, line.text) for line in compare_prompts(left, right).lines]


def test_equal_prompts_have_no_lines() -> None:
    found = compare_prompts("a\nb", "a\nb")
    assert (found.lines, found.cut) == ([], False)


def test_what_differs_stands_among_three_equal_lines() -> None:
    equal = [f"line {n}" for n in range(10)]
    left, right = "\n".join([*equal, "old", *equal]), "\n".join([*equal, "new", "newer", *equal])
    before, after = [("both", line) for line in equal[-3:]], [("both", line) for line in equal[:3]]
    assert told(left, right) == [
        ("gap", "7 equal lines"), *before, ("left", "old"), ("right", "new"), ("right", "newer"), *after,
        ("gap", "7 equal lines"),
    ]  # fmt: skip


def test_long_prompts_are_cut_and_say_so() -> None:
    long = "x" * MOST_CHARACTERS
    assert compare_prompts(long + "a", long + "b").cut
    assert not compare_prompts(long, "y" + long[1:]).cut
    many = "\n".join("x" * MOST_LINES)
    assert compare_prompts(many + "\na", many).cut
    assert compare_prompts(many + "\na", many).lines == []


def test_empty_lines_and_no_line_differ() -> None:
    assert told("a", "a\n") == [("both", "a"), ("right", "")]
    assert told("", "a") == [("left", ""), ("right", "a")]
