"""The first screen of a report says in plain words what the figures say, and never more."""

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from mathrag_gate import first_screen
from mathrag_gate.first_screen import System
from shared.models.shipped import WARNING
from shared.samples import SampleRow
from shared.statistics.significance import compare_pair
from tests.unit.bundles import REPORT, SAMPLE

TERMS = ("Wilson", "Bonferroni", "McNemar", "Holm", "p =", "`", "separable", "n =")


def accuracy(correct: int, graded: int = 150, items: int | None = None) -> dict[str, Any]:
    value = correct / graded if graded else None
    low, high = (0.0, 1.0) if value is None else (max(value - 0.08, 0), min(value + 0.08, 1))
    return {
        "value": value, "low": low, "high": high, "items": graded if items is None else items, "correct": correct,
        "graded": graded,
    }  # fmt: skip


def report(name: str, pipeline: str, found: dict[str, Any], **fields: Any) -> dict[str, Any]:
    counts = {"total": 150, "completed": 150, "failed": 0, "cancelled": 0, **fields.pop("counts", {})}
    settings = {**REPORT["settings"], "pipeline": pipeline, **fields.pop("settings", {})}
    return {
        **REPORT, "id": name, "name": name, "accuracy": found, "request_counts": counts, "settings": settings,
        "extraction": {"ok": 150}, **fields,
    }  # fmt: skip


def systems(*reports: dict[str, Any], **labels: str) -> list[System]:
    return first_screen.make_systems(reports, None, labels)


HYBRID, GATE = report("a", "hybrid", accuracy(66)), report("b", "mathrag-gate", accuracy(122))
DENSE, ALONE = report("c", "dense", accuracy(70)), report("d", "closed-book", accuracy(23))


def make_pair(left: str, right: str, gained: int, lost: int, items: int = 150, **fields: Any) -> dict[str, Any]:
    """A pair as the API returns it, tested for real: so many items are right on one side only."""
    sides = {(0, 0): items - gained - lost, (1, 0): gained, (0, 1): lost}
    found = compare_pair([{(Fraction(one), Fraction(other)): n for (one, other), n in sides.items() if n}])
    difference = found.difference
    return {
        "left": left, "right": right, "items": found.items, "gained": found.gained, "lost": found.lost,
        "separable": found.separable, "needed": found.needed, "left_only": 0, "right_only": 0,
        "difference": difference and {"value": difference.value}, **fields,
    }  # fmt: skip


def compared(baseline: str | None, *pairs: dict[str, Any]) -> dict[str, Any]:
    return {"baseline": baseline, "pairs": list(pairs)}


def sentence(of: list[System], comparison: Any = None) -> str:
    said = first_screen.write_sentence(
        of, first_screen.list_contests(of, comparison), comparison["baseline"] if comparison else None
    )
    assert not [term for term in TERMS if term in said]
    return said


def advice(of: list[System], comparison: Any = None) -> str:
    contest = first_screen.choose_contest(first_screen.list_contests(of, comparison), comparison)
    return " ".join(first_screen.list_next_steps(of, contest))


# Names.


def test_a_system_is_called_by_what_its_pipeline_does_and_not_by_its_job() -> None:
    assert [each.label for each in systems(HYBRID, GATE)] == ["search by meaning and words", "reordered search results"]
    assert systems(HYBRID)[0].heading == "Search by meaning and words"
    assert systems(report("x", "my-plugin", accuracy(1)))[0].label == "my-plugin"


def test_systems_of_one_pipeline_are_told_apart_by_model_then_dataset_then_name() -> None:
    qwen, llama = ({"models": {"generate": {"name": name}}} for name in ("qwen", "llama"))
    by_model = systems(
        report("a", "dense", accuracy(1), settings=qwen), report("b", "dense", accuracy(1), settings=llama)
    )
    assert [each.label for each in by_model] == ["search by meaning by qwen", "search by meaning by llama"]
    over = [report(name, "dense", accuracy(1), settings={"dataset": f"set-{name}"}) for name in "ab"]
    assert [each.label for each in systems(*over)] == ["search by meaning on set-a", "search by meaning on set-b"]
    alike = [report(name, "dense", accuracy(1)) for name in "ab"]
    assert [each.label for each in systems(*alike)] == ["search by meaning (a)", "search by meaning (b)"]


def test_a_label_of_the_user_is_kept_as_it_is() -> None:
    (named, other) = systems(HYBRID, GATE, a="iSearch 2")
    assert (named.label, named.heading) == ("iSearch 2", "iSearch 2")
    assert other.label == "reordered search results"


def test_an_experiments_system_has_the_reports_of_its_jobs() -> None:
    pooled = {"jobs": [{"name": "gate", "pipeline": "mathrag-gate", "accuracy": accuracy(9), "jobs": ["b", "gone"]}]}
    (found,) = first_screen.make_systems([HYBRID, GATE], pooled, {"gate": "Ours"})
    assert (found.label, [each["id"] for each in found.reports]) == ("Ours", ["b"])


def test_the_title_asks_what_was_compared() -> None:
    assert first_screen.write_title(systems(HYBRID, GATE)) == (
        "Which gives more right answers: search by meaning and words or reordered search results?"
    )
    assert first_screen.write_title(systems(DENSE)) == "How many questions are answered right with search by meaning?"
    assert first_screen.write_title(systems(HYBRID, GATE, DENSE)) == "Which of 3 systems gives the most right answers?"
    assert first_screen.write_title([]) == "No job has a result yet"


# The sentence.


def test_a_difference_beyond_chance_is_named_with_both_figures() -> None:
    assert sentence(systems(HYBRID, GATE), compared("a", make_pair("b", "a", 67, 11))) == (
        "With reordered search results, 122 of 150 questions are answered right, against 66 of 150 questions with"
        " search by meaning and words: a difference that chance does not explain."
    )
    turned = sentence(systems(HYBRID, GATE), compared("b", make_pair("a", "b", 11, 67)))
    assert turned.startswith("With reordered search results, 122 of 150")


def test_a_difference_within_chance_is_not_claimed() -> None:
    close = systems(HYBRID, report("b", "mathrag-gate", accuracy(68)))
    assert sentence(close, compared("a", make_pair("b", "a", 8, 6))) == (
        "No difference between reordered search results and search by meaning and words can be told from chance with"
        " 150 questions: 68 are answered right with the first, 66 with the second."
    )


def test_a_tie_is_no_difference_found() -> None:
    equal = systems(HYBRID, report("b", "mathrag-gate", accuracy(66)))
    assert sentence(equal, compared("a", make_pair("b", "a", 0, 0))).startswith(
        "No difference was found: on each of 150"
    )
    split = sentence(equal, compared("a", make_pair("b", "a", 5, 5)))
    assert split.startswith("No difference between")
    assert "chance" in split


def test_figures_over_other_questions_than_the_tested_ones_are_not_quoted() -> None:
    partial = make_pair("b", "a", 40, 5, items=100, left_only=50)
    said = sentence(systems(HYBRID, GATE), compared("a", partial))
    assert said.startswith(
        "On the 100 questions graded for both, the share of right answers is 35 percentage points higher"
    )
    assert "122" not in said
    close = sentence(systems(HYBRID, GATE), compared("a", {**partial, "separable": False}))
    assert close.endswith("with 100 questions graded for both.")


def test_one_job_says_how_sure_its_share_is() -> None:
    assert sentence(systems(HYBRID)) == (
        "With search by meaning and words, 66 of 150 questions are answered right; for all questions of this kind the"
        " share probably lies between 36 and 52 %."
    )


def test_repeated_questions_are_a_share_of_the_questions() -> None:
    repeated = systems(report("a", "dense", accuracy(90, 300, 150)))
    assert "30 % of 150 questions" in sentence(repeated)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_said_of_answers_that_were_not_graded(count: int) -> None:
    ungraded = systems(*(report(str(n), "dense", accuracy(0, 0)) for n in range(count)))
    assert sentence(ungraded) == "No answer was graded, so the number of right answers is unknown."
    assert "right answers to the questions" in advice(ungraded)


def test_systems_without_a_common_question_are_not_compared() -> None:
    nothing = make_pair("b", "a", 1, 0, items=1) | {"items": 0, "difference": None}
    half = systems(HYBRID, report("b", "mathrag-gate", accuracy(0, 0)))
    assert sentence(half, compared("a", nothing)).startswith("The systems cannot be compared: only the answers of one")
    assert sentence(systems(HYBRID, GATE), compared("a", nothing)) == (
        "2 systems answer between 44 and 81 % of the questions right; no test compared them."
    )
    assert "same questions" in advice(systems(HYBRID, GATE), compared("a", nothing))


def test_several_systems_are_ranked_against_the_baseline_only() -> None:
    four = systems(HYBRID, GATE, DENSE, ALONE)
    found = compared("a", make_pair("b", "a", 67, 11), make_pair("c", "a", 20, 16), make_pair("d", "a", 3, 46))
    assert sentence(four, found) == (
        "With search by meaning and words, 66 of 150 questions are answered right, more with reordered search results"
        " (122) and fewer with the model alone (23): chance does not explain these differences. From search by meaning"
        " (70) it cannot be told apart."
    )
    none = compared("a", make_pair("b", "a", 5, 4), make_pair("c", "a", 4, 4), make_pair("d", "a", 0, 1))
    assert sentence(four, none) == (
        "No difference between search by meaning and words and 3 other systems can be told from chance with 150"
        " questions."
    )


def test_without_a_baseline_the_best_is_named_with_those_it_beats() -> None:
    three = systems(HYBRID, GATE, DENSE)
    beaten = compared(None, make_pair("a", "b", 11, 67), make_pair("b", "c", 60, 8), make_pair("a", "c", 5, 6))
    assert sentence(three, beaten) == (
        "With reordered search results, 122 of 150 questions are answered right, more than with search by meaning and"
        " words (66) and search by meaning (70): chance does not explain these differences."
    )
    partly = compared(None, make_pair("a", "b", 11, 67), make_pair("b", "c", 6, 5), make_pair("a", "c", 5, 6))
    assert sentence(three, partly).endswith("from search by meaning (70) it cannot be told apart.")
    level = compared(None, make_pair("a", "b", 4, 6), make_pair("b", "c", 6, 5), make_pair("a", "c", 5, 6))
    assert sentence(three, level) == "No difference between the 3 systems can be told from chance with 150 questions."
    others = compared(None, make_pair("a", "b", 4, 6), make_pair("b", "c", 6, 5), make_pair("a", "c", 1, 40))
    assert "chance may explain its lead over each of the others" in sentence(three, others)


def test_a_grid_counts_the_comparisons_with_its_baselines() -> None:
    grid = [f"{variant} k={k}" for k in (1, 2) for variant in ("dense", "gate")]
    four = systems(*(report(name, "dense", accuracy(60)) for name in grid))
    pairs = (make_pair("gate k=1", "dense k=1", 40, 5), make_pair("gate k=2", "dense k=2", 4, 5))
    assert sentence(four, compared("dense", *pairs)) == (
        "Against dense at the same settings, more questions are answered right in 1 of 2 comparisons and fewer in 0:"
        " chance does not explain these differences."
    )
    assert sentence(four, compared("dense", pairs[1])).startswith("None of 1 comparisons")


def test_many_jobs_that_were_not_compared_are_not_ranked() -> None:
    many = systems(*(report(str(n), "dense", accuracy(20 + n)) for n in range(34)))
    assert sentence(many) == "34 systems answer between 13 and 35 % of the questions right; no test compared them."


# Cautions, cost and advice.


def test_failures_missing_grades_and_a_broken_audit_are_cautions() -> None:
    counts = {"completed": 140, "failed": 6, "cancelled": 4}
    (found,) = systems(report("a", "dense", accuracy(60, 130), counts=counts))
    assert first_screen.list_cautions([found], {"a"}) == [
        "6 of 150 answers failed; they count neither as right nor as wrong.",
        "4 of 150 answers were never made, because the job was cancelled.",
        "10 of 150 answers could not be graded.",
        "1 more warning: see the jobs' pages.",
    ]
    assert first_screen.list_cautions(systems(HYBRID, GATE), set()) == []


def test_demonstration_models_that_were_asked_about_another_world_are_a_caution_first() -> None:
    warned = {**report("a", "dense", accuracy(60)), "notes": [f"{WARNING} (world-generator) know nothing else"]}
    (caution,) = first_screen.list_cautions(systems(warned), set())
    assert caution.startswith("The models of the demo gave these answers")


def test_answers_that_cannot_be_read_come_before_every_other_advice() -> None:
    unreadable = report("a", "dense", accuracy(0), extraction={"ok": 2, "missing": 148})
    both = systems(unreadable, GATE)
    (caution,) = first_screen.list_cautions(both, set())
    assert caution.startswith("With search by meaning: in 148 of 150 answers no final answer could be found")
    assert advice(both, compared("a", make_pair("b", "a", 67, 11))).startswith("First choose a grader")


def test_advice_follows_from_the_test() -> None:
    pair = systems(HYBRID, GATE)
    assert advice(pair, compared("a", make_pair("b", "a", 67, 11))) == (
        "Prefer reordered search results to search by meaning and words. Before you do, read the 11 questions that only"
        " search by meaning and words gets right."
    )
    assert advice(pair, compared("a", make_pair("b", "a", 50, 0))).endswith("search by meaning and words.")
    close = make_pair("b", "a", 8, 6)
    assert f"ask about {close['needed']:,} questions instead of 150" in advice(pair, compared("a", close))
    assert "time and cost" in advice(pair, compared("a", make_pair("b", "a", 0, 0)))


def test_failures_of_many_answers_come_before_a_preference() -> None:
    failing = report("a", "dense", accuracy(60, 130), counts={"completed": 130, "failed": 20})
    assert advice(systems(failing, GATE), compared("a", make_pair("b", "a", 67, 11))).startswith("First find out why")


def test_one_job_is_to_be_compared() -> None:
    assert advice(systems(HYBRID)) == (
        "Answer the same questions in another way: only a comparison shows whether this is good. Read some of the 84"
        " wrong answers."
    )


def test_the_cost_counts_calls_loads_and_money_where_it_is_known() -> None:
    free = {**HYBRID, "cost": None, "model_calls": 91, "calls_reused": {"retrieve": 300, "generate": 59}}
    paid = {**GATE, "cost": {"made": 1.0, "all": 2.5, "models": {}}, "seconds": 600.0}
    one, other = first_screen.list_costs(systems(free, paid))
    assert (one.right, one.calls, one.loads, one.usd) == ("66 of 150", "91 (59 reused)", "2", None)
    assert (other.time, other.usd) == ("10 min", "$2.50")


def test_the_facts_name_questions_documents_and_the_models_that_were_asked() -> None:
    models = {"generate": {"name": "qwen"}, "judge": {"name": "judge-1"}}
    asked = [
        report("a", "hybrid", accuracy(1), settings={"models": models}, calls_made={"generate": 5}, items=150),
        report("b", "mathrag-gate", accuracy(1), settings={"models": models}, calls_made={"judge": 5, "generate": 5}),
    ]  # fmt: skip
    assert dict(first_screen.list_facts(systems(*asked), {"math": 876})) == {
        "Questions": "500 (dataset math-500)", "Documents": "876 (corpus math)",
        "Models": "qwen answers; judge-1 rates documents",
    }  # fmt: skip
    assert dict(first_screen.list_facts(systems(asked[0]), {}))["Documents"] == "none"


# Examples.


def row(index: int, *, correct: bool | None, **fields: Any) -> SampleRow:
    known = {
        **SAMPLE, "index": index, "repeat": 0, "question": f"Question {index}", "gold": "1", "answer": "1",
        "correct": correct, "context": (), "ended_at": datetime(2026, 1, 1, tzinfo=UTC), "state": "completed", **fields,
    }  # fmt: skip
    return SampleRow(**known)


def test_examples_are_one_question_for_each_side() -> None:
    left = [row(n, correct=correct) for n, correct in enumerate((True, True, False, None, True))]
    right = [row(n, correct=correct) for n, correct in enumerate((True, False, True, True, False))]
    assert [(each.heading, each.indexes) for each in first_screen.choose_differing(("A", "B"), left, right)] == [
        ("Right with A, wrong with B", (1, 1)), ("Right with B, wrong with A", (2, 2)),
    ]  # fmt: skip
    (only,) = first_screen.choose_differing(("A", "B"), left[:2], right[:2])
    assert only.indexes == (1, 1)
    assert first_screen.choose_differing(("A", "B"), left, left) == []


def test_questions_match_by_text_and_not_by_position() -> None:
    (found,) = first_screen.choose_differing(
        ("A", "B"), [row(7, correct=True, question="Same")], [row(3, correct=False, question="Same")]
    )
    assert found.indexes == (7, 3)
    other_gold = row(3, correct=False, question="Same", gold="2")
    assert first_screen.choose_differing(("A", "B"), [row(7, correct=True, question="Same")], [other_gold]) == []


def test_a_short_question_that_both_answered_from_other_documents_is_preferred() -> None:
    long = "word " * 100
    left = [row(0, correct=True, question=long), *(row(n, correct=True) for n in (1, 2, 3))]
    right = [
        row(0, correct=False, question=long), row(1, correct=False, answer=None), row(2, correct=False),
        row(3, correct=False, context=("d",)),
    ]  # fmt: skip
    (found,) = first_screen.choose_differing(("A", "B"), left, right)
    assert found.indexes == (3, 3)


def test_one_job_shows_a_right_and_a_wrong_answer() -> None:
    rows = [row(0, correct=None), row(1, correct=False), row(2, correct=True), row(3, correct=True)]
    assert [(each.heading, each.indexes) for each in first_screen.choose_alone(rows)] == [
        ("Answered right", (2,)), ("Answered wrong", (1,)),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "most", "short"), [
    ("short", 20, "short"),
    ("two\nlines  of text", 20, "two lines of text"),
    ("one two three four", 12, "one two …"),
    ("value $x + y + z$ ends", 15, "value …"),
    ("value \\(x + y + z\\) ends", 15, "value …"),
    ("A" * 30, 10, "A" * 9 + " …"),
])  # fmt: skip
def test_texts_are_cut_after_a_word_and_outside_of_formulas(text: str, most: int, short: str) -> None:
    assert first_screen.shorten(text, most) == short


# Relevant documents that reordering removed.


def test_reordering_is_found_only_where_nothing_else_differs() -> None:
    def pair(**gate: Any) -> list[System]:
        settings = {"params": {"context_size": 3}, "corpus": "math"}
        return systems(
            report("a", "hybrid", accuracy(1), settings=settings),
            report("b", "mathrag-gate", accuracy(1), settings={**settings, **gate}),
        )

    found = first_screen.find_reordering(pair(params={"context_size": 3, "gate": {"tau": 0.9}}))
    assert found is not None
    assert [each.name for each in found] == ["b", "a"]
    assert first_screen.find_reordering(pair(params={"context_size": 1})) is None
    assert first_screen.find_reordering(pair(dataset="other")) is None
    assert first_screen.find_reordering(pair(params=None)) is None
    assert first_screen.find_reordering(systems(HYBRID, DENSE)) is None


def test_removed_and_added_relevant_documents_are_counted_by_question() -> None:
    relevant = {0: ["r"], 1: ["r", "s"], 2: ["r"], 3: ["r"], 5: ["r"]}
    contexts = [(("r", "x"), ("x",)), (("s",), ("x",)), (("r",), ("r",)), (("x",), ("r",)), (("r",), ("x",))]
    plain = [row(n, correct=True, context=before) for n, (before, _) in enumerate(contexts)]
    gate = [row(n, correct=True, context=after) for n, (_, after) in enumerate(contexts)]
    gate += [row(0, correct=True, repeat=1), row(5, correct=True)]
    assert first_screen.describe_reordering(gate, plain, relevant) == (
        "Reordering removed every relevant document from the prompt for 2 of the 3 questions whose prompt had one, and"
        " put one in for 1 of the 1 whose prompt had none."
    )
    assert first_screen.describe_reordering(gate[3:4], plain, relevant) == (
        "Reordering put a relevant document into the prompt for 1 of the 1 question whose prompt had none."
    )
    assert first_screen.describe_reordering(plain, plain, relevant) is None
    assert first_screen.describe_reordering(gate, plain, {}) is None
