import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease import policy
from shared.pages import formatting, lines
from shared.pages.formatting import (
    ValueDifference,
    compare_trees,
    explain_missing_answers,
    extract_terms,
    flatten_tree,
    format_accuracy,
    format_headline,
    highlight,
)
from shared.pages.lines import describe_repeats

# What differs between two trees of values.


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


# The headline of a job's report.

GRADED = {"value": 0.61, "low": 0.567, "high": 0.652, "items": 500, "correct": 305, "graded": 500}
REPEATED = {"value": 0.25, "low": 0.142, "high": 0.402, "items": 40, "correct": 50, "graded": 80}
WRONG = {"value": 0.0, "low": 0.0, "high": 0.088, "items": 40, "correct": 0, "graded": 40}


@pytest.mark.parametrize(
    ("accuracy", "failed", "said"),
    [
        (GRADED, 0, "61.0 % right (56.7 to 65.2), 305 of 500"),
        (GRADED, 3, "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"),
        ({**GRADED, "value": None, "graded": 0}, 7, "Nothing was graded; 7 failed"),
        (REPEATED, 0, "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers"),
        (REPEATED, 2, "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers; 2 failed"),
    ],
)
def test_a_report_begins_with_what_was_found(accuracy: Any, failed: int, said: str) -> None:
    report = {"accuracy": accuracy, "extraction": {"ok": 500}, "request_counts": {"failed": failed}}
    assert format_headline(report) == said


def test_one_item_is_not_several() -> None:
    assert format_accuracy({**REPEATED, "items": 1, "graded": 3}).endswith(", mean of 1 item, 3 answers")


def test_a_server_of_an_earlier_release_counts_no_items() -> None:
    figure = {name: value for name, value in GRADED.items() if name != "items"}
    assert format_accuracy(figure) == "61.0 % (56.7 to 65.2), 305 of 500"


@pytest.mark.parametrize(
    ("extraction", "counts", "how_much"),
    [
        ({"missing": 40}, "40 of 40", "nothing"),
        ({"missing": 20, "unbalanced": 1, "ok": 19}, "21 of 40", "little"),
        ({"unbalanced": 30, "ok": 10}, "30 of 40", "little"),
        ({"missing": 3, "ok": 2, "refused": 35}, "3 of 5", "little"),
        ({"missing": 1, "only_reasoning": 1, "empty": 1}, "2 of 3", "little"),
    ],
)
@pytest.mark.parametrize(("failed", "troubles"), [(0, ""), (3, "; 3 failed")])
def test_a_report_of_answers_that_could_not_be_read_says_so_first(
    extraction: dict[str, int], counts: str, how_much: str, failed: int, troubles: str
) -> None:
    found = format_headline({"accuracy": WRONG, "extraction": extraction, "request_counts": {"failed": failed}})
    assert found == (
        f"In {counts} answers no final answer could be found, so 0.0 % says {how_much} about the system"
        f"{troubles}. Choose another grader; an import can also give the final answers themselves, as `answer`."
    )


@pytest.mark.parametrize(
    "extraction",
    [{}, {"ok": 40}, {"ok": 20, "missing": 20}, {"ok": 20, "missing": 15, "unbalanced": 5}, {"refused": 40},
     {"ok": 5, "missing": 4, "refused": 31}],
)  # fmt: skip
def test_a_few_answers_without_a_final_one_change_no_headline(extraction: dict[str, int]) -> None:
    report = {"accuracy": WRONG, "extraction": extraction, "request_counts": {"failed": 0}}
    assert format_headline(report) == "0.0 % right (0.0 to 8.8), 0 of 40"


def test_nothing_that_was_graded_says_nothing_anyway() -> None:
    assert explain_missing_answers({"missing": 40}, {**WRONG, "value": None}) is None


@pytest.mark.parametrize(
    ("items", "over"), [(40, ""), (10, "; over the 10 of 40 items with a verdict in every repeat")]
)
def test_repeats_say_over_which_items_they_are(items: int, over: str) -> None:
    repeats = {"accuracies": [0.5, 0.5], "items": items, "mean": 0.5, "std": 0.0}
    assert describe_repeats(repeats, REPEATED) == f"50.00 %, std 0.00 [by repeat 50.0, 50.0{over}; not an interval]"


# Flips in words.


def waiting(**fields: Any) -> dict[str, Any]:
    return {"models": ["b"], "waiting": 500, "left": 42, "low_s": 110.0, "high_s": 250.0, **fields}


def test_what_the_next_flip_waits_for_is_said_with_its_time() -> None:
    assert lines.describe_next_flip(waiting()).startswith(
        "42 calls left for the resident models; 500 wait for b: flip in 1.8 to 4.2 min"
    )
    assert "Too few calls" in lines.describe_next_flip(waiting(low_s=None, high_s=None))
    assert lines.describe_next_flip(waiting(left=0)) == "500 wait for b; the flip is due."
    assert lines.describe_next_flip(None) == "No call waits for another model."


def test_every_cause_that_is_decided_on_has_words() -> None:
    assert set(policy.DECIDED) <= lines.CAUSES.keys()
    assert lines.explain_flip({"models": [], "cause": "moon"}) == "nothing, because moon"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (3.6, 4.6, "3.6 to 4.6 s"),
        (80, 100, "80 s to 1.7 min"),
        (125, 125.1, "about 2.1 min"),
        (600, 7200, "10 min to 2 h"),
        (0.2, 12, "0.2 to 12 s"),
    ],
)
def test_times_are_said_in_the_unit_that_is_read_at_once(low: float, high: float, said: str) -> None:
    assert formatting.format_duration_range(low, high) == said


# Words of a question in a text: what is marked, and that nothing of the text acts.


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("prime numbers", "Primes and PRIME numbers", ["PRIME", "numbers"]),
        ("3.14 or 12", "3.14, 3, 12 and 112", ["3.14", "12"]),
        (r"\frac of", r"write \frac and \fraction", [r"\frac"]),
        ("解二次方程", "一元二次方程的解", ["二次方程"]),
        ("解", "一元的解", []),
        ("x", "x_1 and max", ["x"]),
        ("", "nothing", []),
    ],
)
def test_whole_words_are_marked_whatever_their_case(question: str, text: str, marked: list[str]) -> None:
    assert re.findall(r"<mark>(.*?)</mark>", str(highlight(text, extract_terms(question)))) == marked


def test_a_formula_is_marked_as_a_whole_and_typeset() -> None:
    shown = str(highlight("so $a+b$ and $c$", extract_terms("a")))
    assert shown == 'so <mark><span class="math">$a+b$</span></mark> and <span class="math">$c$</span>'


def test_the_text_stays_whole_and_escaped() -> None:
    text = "<script>prime</script> \u202e $x<y$ & prime"
    shown = str(highlight(text, extract_terms("prime script x")))
    assert "<script>" not in shown
    assert "U+202E" in shown
    plain = re.sub(r"</?(mark|span)[^>]*>", "", shown)
    assert plain == "&lt;script&gt;prime&lt;/script&gt; U+202E $x&lt;y$ &amp; prime"


# Texts of people and of the code on a page: everything is shown, and nothing of it acts.

HOSTILE = '<img src=x onerror="alert(1)">'


def test_what_stands_between_backticks_is_code() -> None:
    assert formatting.mark_code("see `a <b>` and 1 ` 2") == "see <code>a &lt;b&gt;</code> and 1 ` 2"
    assert "<img" not in formatting.mark_code(f"`{HOSTILE}` {HOSTILE}")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, '<span class="faint">none</span>'),
        ("", '<span class="faint">empty</span>'),
        (False, "<code>false</code>"),
        (0, "<code>0</code>"),
        ([], "<code>[]</code>"),
        ("rrf", "<code>rrf</code>"),
        ({"größe": [1, None]}, "<code>{&#34;größe&#34;: [1, null]}</code>"),
        (HOSTILE, "<code>&lt;img src=x onerror=&#34;alert(1)&#34;&gt;</code>"),
        ("a\u202eb", '<code>a<span class="hidden-character">U+202E</span>b</code>'),
    ],
)
def test_a_value_is_written_as_on_a_command_line(value: object, shown: str) -> None:
    assert formatting.format_value(value) == shown


@pytest.mark.parametrize(
    ("answer", "typeset"),
    [
        ("\\frac{1}{2}", '<span class="math">$\\frac{1}{2}$</span>'),
        ("x^2", '<span class="math">$x^2$</span>'),
        ("$x^2$", '<span class="math">$x^2$</span>'),
        ("\\boxed{7}", '<span class="math">\\boxed{7}</span>'),
        ("12", "12"),
        ("snake_case", "snake_case"),
    ],
)
def test_an_answer_is_typeset_where_it_is_mathematics_without_saying_so(answer: str, typeset: str) -> None:
    assert formatting.mark_formula(answer) == typeset
