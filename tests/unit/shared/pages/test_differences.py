"""What differs between two trees of values."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.pages.formatting import ValueDifference, compare_trees, flatten_tree

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text(max_size=2)
TREES = st.dictionaries(
    st.sampled_from(["a", "b", "a.b"]),
    st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)),
    max_size=3,
)


def applied(found: list[ValueDifference], tree: dict[str, Any]) -> dict[str, Any]:
    after = flatten_tree(tree)
    for each in found:
        if each.change == "removed":
            del after[each.name]
        else:
            after[each.name] = each.right
    return after


def test_a_difference_says_what_was_added_removed_and_changed() -> None:
    left = {"gate": {"tau": 0.3, "top": 3}, "candidates": 10, "seed": 1}
    right = {"seed": 1, "gate": {"tau": 0.4, "items": 20}, "candidates": 10}
    assert compare_trees(left, right) == [
        ValueDifference(name="gate.items", change="added", right=20),
        ValueDifference(name="gate.tau", change="changed", left=0.3, right=0.4),
        ValueDifference(name="gate.top", change="removed", left=3),
    ]


def test_a_value_in_the_place_of_a_group_is_a_difference() -> None:
    found = compare_trees({"crag": {"similarity": {"upper": 1.0}}}, {"crag": {"similarity": None}})
    assert [(each.name, each.change) for each in found] == [
        ("crag.similarity", "added"), ("crag.similarity.upper", "removed"),
    ]  # fmt: skip


def test_a_name_with_a_dot_is_no_group() -> None:
    found = compare_trees({"terms": {"a.b": ["x"]}}, {"terms": {"a": {"b": ["x"]}}})
    assert [(each.name, each.change) for each in found] == [("terms.a.b", "added"), ("terms.a.b", "removed")]


def test_true_is_not_one() -> None:
    (found,) = compare_trees({"cot": 1}, {"cot": True})
    assert (found.left, found.right) == (1, True)


@given(tree=TREES)
def test_a_tree_does_not_differ_from_itself(tree: dict[str, Any]) -> None:
    assert compare_trees(tree, dict(reversed(tree.items()))) == []


@given(left=st.dictionaries(st.sampled_from("abc"), VALUES), right=st.dictionaries(st.sampled_from("abc"), VALUES))
def test_what_is_found_leads_from_left_to_right(left: dict[str, Any], right: dict[str, Any]) -> None:
    found = compare_trees(left, right)
    assert applied(found, left) == right
    assert {each.name for each in found} == {each.name for each in compare_trees(right, left)}
