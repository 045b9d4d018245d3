"""Parts of a pipeline that wait side by side."""

import pytest

from shared.calls import Estimate
from shared.rag.fusion import Part, interleave, keep_first_of_each, run_in_step
from tests.unit.shared.pipelines.test_pipelines import drive


def part(name: str, rounds: int, each: int = 1) -> Part[list[str]]:
    replies: list[str] = []
    for number in range(rounds):
        replies += yield [Estimate(question=f"{name}{number}{call}") for call in range(each)]
    return replies


def test_what_parts_wait_for_is_asked_together_and_each_gets_its_own_replies() -> None:
    parts = [part("a", 1), part("b", 0), part("c", 2, each=2)]
    results, asked = drive(run_in_step(parts), lambda call: call.question)  # type: ignore[union-attr,arg-type,return-value]
    assert results == [["a00"], [], ["c00", "c01", "c10", "c11"]]
    assert [[call.question for call in step] for step in asked] == [["a00", "c00", "c01"], ["c10", "c11"]]  # type: ignore[union-attr]


def test_no_parts_wait_for_nothing() -> None:
    with pytest.raises(StopIteration) as ended:
        next(run_in_step([]))
    assert ended.value.value == []


def test_lists_are_merged_by_turns() -> None:
    merged = list(interleave(["ab", "", "cde"]))  # type: ignore[list-item]
    assert merged == ["a", "c", "b", "d", "e"]
    assert keep_first_of_each(["bb", "a", "b"], len) == ["bb", "a"]
