"""Values, lines and templates as people read them."""

import html
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.formatting import explain_missing_answers, format_accuracy, format_duration_range, format_headline
from mathrag.report_lines import (
    describe_repeats,
    describe_rules,
    describe_scoring_problems,
    format_latency,
    name_rules,
)
from shared.lease import policy
from shared.pages import formatting, lines, pages
from shared.pages.formatting import ValueDifference, compare_trees, extract_terms, flatten_tree, highlight
from shared.pages.lines import BY_ACTION, BY_STAGE, SENTENCES, describe_decision, summarise_reply
from shared.pages.pages import format_query, rewrite_blocks
from shared.replies import Graded, Marked
from shared.samples import Decision
from tests.unit.cases import named

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
    assert format_duration_range(low, high) == said


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


MONEY = "He buys a house for $80,000 and then puts in $50,000 in repairs."


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        (MONEY, []),
        (f"{MONEY} So $80{{,}}000 + x$ dollars, or $x$, not $20.", ["$80{,}000 + x$", "$x$"]),
        ("$5$ and $6$", ["$5$", "$6$"]),
        (r"It is $\frac{1}{2}$, $x^2 + 1$ or $$\int_0^1 x$$", [r"$\frac{1}{2}$", "$x^2 + 1$", r"$$\int_0^1 x$$"]),
        ("$ 5 and 6 $", []),
        ("$ x + 1 $ is $ 3 and $4", ["$ x + 1 $"]),
        ("from $5-$6, that is $1", []),
        ("$a\nb$", []),
        (r"\(a\), \[b\] and \boxed{7}", [r"\(a\)", r"\[b\]", r"\boxed{7}"]),
    ],
)
def test_amounts_of_money_are_no_formulas(text: str, formulas: list[str]) -> None:
    shown = html.unescape(str(highlight(text, ())))
    assert re.findall(r'<span class="math">(.*?)</span>', shown) == formulas
    assert formatting.mark_math(text).startswith('<span class="math">') == bool(formulas)
    script = (pages.FOLDER / "scripts" / "2-mathematics.js").read_text("utf-8")
    delimiters = re.search(r"const DELIMITERS = /(.*)/g;", script)
    assert delimiters is not None
    assert [found[0] for found in re.finditer(delimiters[1], text)] == formulas


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


# Decisions in sentences, also of methods that have none.


HASH = "ab" * 32


def test_a_sentence_names_the_figures_that_it_was_decided_by() -> None:
    easy = Decision(stage="route", action="easy", detail={"probability": 0.23456, "threshold": 0.5})
    assert describe_decision(easy, {}).startswith("The question looks easy (hard with probability 0.235, below 0.5)")
    drop = Decision(stage="context", action="drop", detail={"document": HASH, "reason": "too long"}, fallback="f")
    assert (
        describe_decision(drop, {HASH: "doc-7"}) == "Document doc-7 did not fit into the prompt: too long. Fallback: f."
    )
    dropped = Decision(stage="dedupe", action="dropped", detail={"documents": [HASH] * 7})
    assert describe_decision(dropped, {}).endswith(f"{HASH[:12]} and 2 more.")


def test_a_loop_says_its_round() -> None:
    assert describe_decision(Decision(stage="refine", action="deeper", round=2, detail={"new": 3.0}), {}).startswith(
        "Round 2: "
    )


def test_what_has_no_sentence_is_named_as_the_trace_names_it() -> None:
    unknown = Decision(stage="dowse", action="with a rod", detail={"said": "{x}", "sure": True, "where": None})
    assert describe_decision(unknown, {}) == "Dowse: with a rod (said {x}, sure yes, where not known)."


def test_every_sentence_can_be_said_of_a_decision_without_figures() -> None:
    known = [*SENTENCES, *(f"x {name}" for name in BY_ACTION), *(f"{name} x" for name in BY_STAGE)]
    decisions = [
        Decision(stage=stage, action=action, detail={}) for stage, _, action in (each.partition(" ") for each in known)
    ]
    assert [decision for decision in decisions if not named(describe_decision, decision, {})] == []


# Rules as a sample shows them.


def test_a_sample_names_its_rules_and_what_each_brought() -> None:
    told: dict[str, Any] = {"rule": "[..] leads to [..]", "number": 12.0, "certainty": 0.25}
    decisions = [
        {"stage": "relation", "action": "named"},
        {"stage": "rule", "action": "search", "detail": {**told, "documents": ["a", "b"]}},
        {"stage": "rule", "action": "prompt", "detail": told},
    ]
    assert list(describe_rules(decisions)) == [
        ("rule 12", "[..] leads to [..] (0.250): 2 documents"),
        ("rule 12", "[..] leads to [..] (0.250): only in the prompt"),
    ]


def test_a_document_names_the_rules_that_brought_it() -> None:
    assert name_rules({"paths": {"rule 3": 1, "rule 12": 4}}) == "rule 3, rule 12"
    assert name_rules({"paths": {"original dense": 1}}) == name_rules({"paths": None}) == name_rules({}) == ""


# What went wrong before the prompt was built, in a report's line.

NONE = {"parse_failures": 0, "unscored": 0, "duplicates_dropped": 0, "decisions": {}}


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (NONE, ""),
        ({**NONE, "decisions": {"crag": {"kept": 5}}}, ""),
        ({**NONE, "duplicates_dropped": 2}, "2 near-duplicates dropped"),
        (
            {**NONE, "duplicates_dropped": 2, "decisions": {"duplicates": {"kept": 3}}},
            "2 near-duplicates dropped, 3 documents in prompts that almost repeat the question",
        ),
    ],
)
def test_documents_that_almost_repeat_the_question_are_counted_beside_those_dropped(
    report: dict[str, object], said: str
) -> None:
    assert describe_scoring_problems(report) == said


def test_a_sample_names_the_document_that_almost_repeats_its_question() -> None:
    kept = Decision(stage="duplicates", action="kept", detail={"document": "ab" * 32, "share": 14 / 15})
    said = describe_decision(kept, {"ab" * 32: "doc-7"})
    assert said.startswith("Document doc-7 was in the prompt although it almost repeats the question (0.933 of the")


# Ends of addresses.


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Graded(math_verify=True, strict=False), "math-verify right, strict wrong"),
        (Graded(math_verify=None, strict=False), "math-verify none, strict wrong"),
        (Marked(correct=False), "wrong"),
        (Marked(correct=True, strict=False, score=2 / 3), "right, strict wrong, score 0.667"),
    ],
)
def test_a_verdict_is_said_in_words(verdict: Graded | Marked, said: str) -> None:
    assert summarise_reply(verdict, None) == said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"), (59, "just now"), (-59, "just now"), (60, "1 min ago"), (3599, "59 min ago"),
        (3600, "1 h ago"), (86_399, "23 h ago"), (86_400, "1 day ago"), (2 * 86_400, "2 days ago"),
        (61 * 86_400, "2026-09-28"), (-7200, "in 2 h"), (-2 * 86_400, "in 2 days"),
    ],
)  # fmt: skip
def test_a_time_is_said_as_its_distance_with_the_full_one_as_title(seconds: int, words: str) -> None:
    now = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
    instant = now - timedelta(seconds=seconds)
    shown = pages.format_ago(instant.astimezone(timezone(timedelta(hours=2))).isoformat(), now)
    assert shown == (
        f'<time datetime="{instant:%Y-%m-%dT%H:%M:%S}Z" title="{instant:%Y-%m-%d %H:%M:%S} UTC">{words}</time>'
    )


def test_an_unknown_time_is_empty() -> None:
    assert pages.format_ago(None) == ""


def test_pairs_have_no_values_of_a_programming_language() -> None:
    found = {"dirty": False, "image": None, "share": 0.25, "count": 3, "index": {"hash": None}}
    assert pages.format_pairs(found) == 'dirty no, image not known, share 0.25, count 3, index {"hash": null}'


def test_what_is_not_set_is_left_out_and_0_is_a_value() -> None:
    assert format_query({"index": 0, "name": "a b", "cursor": None, "state": "", "wrong": False}) == "?index=0&name=a+b"
    assert format_query({"cursor": None}) == ""


# Style sheet, scripts and libraries of the pages.


def test_what_reads_events_comes_with_what_starts_it() -> None:
    found = pages.find_asset(pages.asset_path("live.js").removeprefix("/assets/"))
    assert found is not None
    body = found.body.decode()
    assert body.index('version="4.0.1"') < body.index('registerExtension("sse"')


def test_no_file_of_a_library_is_served_twice() -> None:
    assert pages.find_asset("x/htmx-4.0.1/htmx.min.js") is None
    assert pages.find_asset("x/katex-0.19.1/LICENSE") is None
    assert pages.find_asset("x/katex-0.19.1/katex.min.js") is not None


# Computed blocks of a page: what stands between the marks is written anew, and nothing else.


def test_a_page_is_written_anew_between_its_marks_alone() -> None:
    text = "before\n<!-- main: computed -->\nold\n<!-- end -->\nafter 1 2 3\n"
    new = rewrite_blocks(text, {"main": "| new |"})
    assert new == "before\n<!-- main: computed -->\n\n| new |\n\n<!-- end -->\nafter 1 2 3\n"
    assert rewrite_blocks(new, {"main": "| new |"}) == new


def test_a_block_that_nothing_computes_is_refused() -> None:
    with pytest.raises(KeyError, match="strange"):
        rewrite_blocks("<!-- strange: computed -->\n1\n<!-- end -->", {})


def test_latency_is_the_share_of_a_sample_in_the_time_of_each_stage() -> None:
    stages = {"retrieve": {"device_s": None}, "judge": {"device_s": 20.0}, "generate": {"device_s": 200.0}}
    said = format_latency(stages, 500)
    assert said == "0.44 s a sample: judge 0.04, generate 0.4 [its share of the calls' time, reused ones included]"
    assert format_latency(stages, 0) is None
    assert format_latency({"retrieve": {"device_s": None}}, 500) is None
