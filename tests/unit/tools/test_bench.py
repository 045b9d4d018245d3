"""The Pareto table of routing: what thresholds cost and bring, computed from two jobs."""

from itertools import combinations
from typing import Any

import pytest

from tools.bench.routing import (
    DEFAULT,
    Item,
    Part,
    against_levels,
    item,
    pareto,
    picture,
    point,
    saved_by_chance,
    table,
    thresholds,
)


def question(
    probability: float | None,
    *calls: str,
    rules: bool | None = True,
    judge: bool | None = True,
    level: int | None = None,
) -> Item:
    return Item(probability, frozenset(calls), rules, judge, level)


ITEMS = [
    question(0.1, "a", "b", rules=False, level=1),
    question(0.3, "b", "c", judge=False, level=2),
    question(0.6, "c", "d", rules=False, level=4),
    question(0.8, "d", "e", level=5),
]


def test_a_call_is_saved_only_if_no_hard_question_waits_for_it() -> None:
    found = point(ITEMS, 0.5)
    assert (found.questions, found.easy, found.calls) == (4, 2, 3)
    assert found.saved == pytest.approx(2 / 5)


def test_savings_grow_slower_than_the_share_of_easy_questions() -> None:
    assert [point(ITEMS, at).saved for at in (0.0, 0.2, 0.5, 0.7, 1.0)] == pytest.approx([0, 0.2, 0.4, 0.6, 1])


def test_easy_questions_are_answered_as_by_rules_and_hard_ones_as_by_the_judge() -> None:
    found = point(ITEMS, 0.5)
    assert (found.pair.gained, found.pair.lost, found.accuracy.value) == (1, 1, 0.75)
    assert point(ITEMS, 0.0).accuracy.value == 0.75
    assert point(ITEMS, 1.0).accuracy.value == 0.5


def test_a_question_that_could_not_be_estimated_is_hard_at_every_threshold() -> None:
    found = point([question(None, "a"), question(0.1, "b")], 1.0)
    assert (found.easy, found.calls) == (1, 1)


def test_items_that_one_of_the_jobs_did_not_grade_cost_calls_and_are_in_no_accuracy() -> None:
    found = point([*ITEMS, question(0.9, "x", rules=None), question(0.9, "y", judge=None)], 0.5)
    assert (found.questions, found.calls, found.pair.items) == (6, 5, 4)


def test_what_chance_saves_is_the_mean_over_all_ways_to_draw() -> None:
    for easy in range(5):
        drawn = list(combinations(ITEMS, easy))
        saved = [1 - len(frozenset().union(*(each.calls for each in ITEMS if each not in some))) / 5 for some in drawn]
        assert saved_by_chance(ITEMS, easy) == pytest.approx(sum(saved) / len(saved))


def test_where_the_judge_rates_nothing_there_is_nothing_to_save() -> None:
    found = point([question(0.1), question(0.9)], 0.5)
    assert (found.calls, found.saved, found.saved_by_chance) == (0, 0, 0)


def test_skill_is_what_a_route_gains_over_drawing_as_many_at_random() -> None:
    right = [question(0.1, judge=False), question(0.9, rules=False)] * 20
    wrong = [question(0.9, judge=False), question(0.1, rules=False)] * 20
    found, other = point(right, 0.5).skill, point(wrong, 0.5).skill
    assert found is not None
    assert other is not None
    assert (found.value, other.value) == (0.5, -0.5)
    assert found.low > 0 > other.high
    assert [point(right, at).by_chance for at in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.5, 0.5])
    assert point(right, 0.5).accuracy.value == pytest.approx(1)


def test_thresholds_come_to_every_tenth_of_the_questions_and_hold_the_default_one() -> None:
    items = [question(number / 1000, str(number)) for number in range(100)]
    found = thresholds(items)
    assert [point(items, at).easy for at in found] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100]
    assert DEFAULT in found


def test_the_tests_of_a_table_are_corrected_together() -> None:
    lossy = [question(number / 100, rules=number % 5 > 0) for number in range(100)]
    for each in pareto(lossy):
        assert each.pair.adjusted >= each.pair.p
    assert any(each.pair.adjusted > each.pair.p for each in pareto(lossy))


def test_an_estimate_is_held_against_levels_where_there_are_some_of_both_kinds() -> None:
    found = against_levels(ITEMS * 10)
    assert found is not None
    assert found.value == 1
    assert against_levels([ITEMS[0], ITEMS[1]]) is None
    assert against_levels([question(0.5)]) is None


def test_an_item_is_read_from_results_and_provenance() -> None:
    steps: list[dict[str, Any]] = [
        {"role": "retrieve", "key": "r", "attempt": {"reply": {"type": "retrieved"}}},
        {"role": "estimate", "key": "e", "attempt": {"reply": {"type": "estimated", "probability": 0.25}}},
        {"role": "judge", "key": "j", "attempt": None},
        {"role": "judge", "key": "j", "attempt": None},
    ]
    found = item({"level": "Level 4", "correct": False}, steps, by_rules=True)
    assert found == Item(0.25, frozenset({"j"}), by_rules=True, by_judge=False, level=4)
    steps[1]["attempt"]["reply"] = {"type": "failure", "kind": "refused"}
    assert item({"level": None, "correct": None}, steps, None) == Item(None, frozenset({"j"}), None, None, None)


def test_what_chance_comes_to_lies_between_rules_and_judge() -> None:
    items = [*ITEMS, question(0.1, "x", rules=None)]
    assert [point(items, at).by_chance for at in (0.0, 0.2, 1.0)] == pytest.approx([0.75, 0.6875, 0.5])
    assert point([question(0.5, judge=None)], 0.7).by_chance is None


def test_a_picture_has_a_point_for_each_threshold() -> None:
    drawn = picture(Part(name="world", area=None, points=pareto(ITEMS)))
    assert drawn.name == "pareto-world"
    assert [(row.saved, row.value, row.chance_value) for row in drawn.rows][-1] == (1, 0.5, 0.5)
    assert len(drawn.rows) == len(thresholds(ITEMS))


def test_a_table_has_a_line_for_each_threshold() -> None:
    lines = table(Part(name="world", area=against_levels(ITEMS * 10), points=pareto(ITEMS * 10))).splitlines()
    assert lines[0] == "ROC AUC of the estimate against the items' levels: 1.000 (1.000 to 1.000)"
    assert lines[4].startswith("| 0.1 | 0 of 40 | 5 | 0.0 % | 0.0 % | 75.0 % (")
    assert lines[-1].startswith("| 1 | 40 of 40 | 0 | 100.0 % | 100.0 % | 50.0 % (")
    assert {line.count("|") for line in lines[2:]} == {9}
