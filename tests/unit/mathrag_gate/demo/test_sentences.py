"""What the demonstration says follows from figures: other figures, other sentences."""

import re
from pathlib import Path
from typing import Any

import pytest

from mathrag.intervals import wilson
from mathrag_gate.demo import sentences
from mathrag_gate.demo.sentences import World


def report(right: int = 60, **changed: Any) -> dict[str, Any]:
    share = wilson(right, 100)
    accuracy = {"value": right / 100, "low": share.low, "high": share.high, "correct": right, "graded": 100}
    return {
        "accuracy": accuracy, "calls_made": {"judge": 150}, "calls_reused": {"judge": 30}, "gate": gated(),
        "request_counts": {"completed": 100},
        "residencies": [residency(1), residency(2)], **changed,
    }  # fmt: skip


def gated(**changed: Any) -> dict[str, Any]:
    documents = ["d"] * 180
    return {
        "strategy": "rules", "rho": 0.71, "low": 0.6, "high": 0.8, "tau": 0.45, "documents": documents,
        "reason": "rho = 0.710 > tau = 0.45: rules", **changed,
    }  # fmt: skip


def residency(epoch: int, *models: str) -> dict[str, Any]:
    return {"device": "cpu:0", "epoch": epoch, "models": list(models or ("a-model",))}


def pair(gained: int, lost: int, p: float, value: float, needed: int | None = 979) -> dict[str, Any]:
    difference = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return {
        "gained": gained, "lost": lost, "items": 100, "adjusted": p, "separable": p < 0.05, "difference": difference,
        "needed": needed,
    }  # fmt: skip


def sample(answer: str | None, *context: str, correct: bool | None) -> dict[str, Any]:
    return {"question": "What is 2 quopo 4?", "gold": "8", "answer": answer, "correct": correct, "context": context}


def score(value: float, swapped: float | None, failed: int = 0) -> dict[str, Any]:
    mean = {"value": value, "low": value - 0.04, "high": value + 0.04, "n": 150}
    return {"mean": mean, "controls": swapped and {"swapped": swapped}, "failed": failed}


def test_a_metric_stands_beside_its_control() -> None:
    said = sentences.metric({"hybrid": score(0.3, 0.125), "mathrag-gate": score(0.49, None)})
    header, hybrid, gated, *_ = said.splitlines()
    assert header.endswith("  other questions (the control)")
    assert hybrid.split() == ["hybrid", "0.30", "(0.26", "to", "0.34)", "0.12"]
    assert gated.split() == ["mathrag-gate", "0.49", "(0.45", "to", "0.53)", "-"]
    assert "Without a rating" not in said


def test_a_metric_of_one_answer_has_no_interval_and_one_of_none_no_mean() -> None:
    alone, none = score(0.3, None), score(0.5, None)
    alone["mean"] |= {"low": None, "high": None}
    none["mean"] |= {"value": None, "low": None, "high": None}
    _, first, second, *_ = sentences.metric({"hybrid": alone, "mathrag-gate": none}).splitlines()
    assert (first.split(), second.split()) == (["hybrid", "0.30", "-"], ["mathrag-gate", "-", "-"])


def test_answers_that_the_judge_gave_no_rating_are_counted_beside_a_metric() -> None:
    said = sentences.metric({"hybrid": score(0.3, 0.1, failed=2), "mathrag-gate": score(0.5, 0.1, failed=1)})
    assert "Without a rating, and in no mean: 3 answers." in " ".join(said.split())


def test_rules_that_agree_with_the_judge_are_said_to_score_the_rest() -> None:
    said = sentences.decision(report())
    assert said == "r = 0.71 on 180 documents, so the rules score the rest. The judge gave 180 ratings."


def test_rules_that_do_not_agree_leave_the_scoring_to_the_judge() -> None:
    said = sentences.decision(report(gate=gated(strategy="judge", rho=0.12, low=-0.1, high=0.3)))
    assert said == "r = 0.12 on 180 documents, so the judge scores all documents. The judge gave 180 ratings."


def test_a_threshold_inside_the_interval_is_a_close_decision() -> None:
    said = sentences.decision(report(gate=gated(low=0.35, high=0.58)))
    assert said.endswith("The decision is close: the 95 % interval of r, 0.35 to 0.58, contains the threshold.")


def test_a_gate_without_a_correlation_says_why() -> None:
    said = sentences.decision(report(gate=gated(rho=None, strategy="judge", reason="all ratings are equal: judge")))
    assert said == "rules and judge could not be compared: all ratings are equal: judge."


def test_r_and_its_threshold_are_explained_before_the_decisions() -> None:
    said = sentences.gate({"one": report(gate=gated(tau=0.5)), "other": report(gate=gated(tau=0.5, rho=0.6))})
    assert "If r is above the threshold of 0.5, the rules agree with the judge" in " ".join(said.split())
    assert said.index("threshold of 0.5") < said.index("one: r = 0.71") < said.index("other: r = 0.60")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            pair(60, 5, 1e-9, 0.55),
            "reordering by reasoning helps. 60 questions are right only with mathrag-gate, 5",
        ),
        (
            pair(5, 60, 1e-9, -0.55),
            "reordering by reasoning harms. 5 questions are right only with mathrag-gate,",
        ),
        (
            pair(7, 5, 0.774, 0.02),
            "no conclusion, because these questions show no clear difference. 7 questions are right",
        ),
        (pair(0, 0, 1.0, 0.0), "no conclusion. mathrag-gate and hybrid agree on all 100 questions."),
    ],
)
def test_a_conclusion_is_what_the_test_supports(found: dict[str, Any], said: str) -> None:
    conclusion = sentences.conclusion(found)
    assert conclusion.startswith(said)
    assert ("not prove that they are equal" in conclusion) == (not found["separable"])


def test_the_figures_of_a_conclusion_are_those_of_the_comparison() -> None:
    said = sentences.conclusion(pair(7, 5, 0.774, 0.02))
    assert "+2.0 points (95 %: -8.0 to +12.0)" in said
    assert "in 77.4 % of cases (p = 0.774, McNemar's exact test)" in said
    assert "about 979 questions" in said
    assert "about" not in sentences.conclusion(pair(5, 5, 1.0, 0.0, None))
    assert "(p < 0.001, McNemar's exact test)" in sentences.conclusion(pair(60, 5, 1e-9, 0.55))


def test_every_pipeline_has_a_row_with_its_accuracy_in_each_set() -> None:
    nothing = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "graded": 0}
    found = dict.fromkeys(sentences.PIPELINES, report(47))
    worlds = {"one": World(100, 90, 40), "other": World(100, 1090, 0)}
    said = sentences.accuracies(worlds, {"one": found, "other": {**found, "dense": report(accuracy=nothing)}})
    heads, sizes, *rows = (re.split(r" {2,}", line.strip()) for line in said.splitlines())
    assert heads == ["one: 100 questions", "other: 100 questions"]
    assert sizes == ["it reads", "90 documents, 40 mislead", "1,090 documents, none misleads"]
    assert [row[0] for row in rows] == list(sentences.PIPELINES)
    assert rows[1][2:] == ["47.0 % (37.5 to 56.7), 47 of 100", "nothing was graded"]


def test_questions_that_tell_the_pipelines_apart_come_first() -> None:
    marks = {"hybrid": (True, False, False, None), "dense": (True, True, False, True)}
    rows = {name: [sample("1", correct=mark) for mark in found] for name, found in marks.items()}
    rows["mathrag-gate"] = [sample("8", correct=mark) for mark in (True, True, True, False)]
    assert sentences.list_examples(rows) == [2, 1, 0, 3]


@pytest.mark.parametrize(
    ("hybrid", "gate", "telling"),
    [("bad", "best", True), ("good", "best", False), ("bad", "good", False), ("bad", "bad", False)],
)
def test_an_example_has_a_misleading_document_and_one_of_the_best(hybrid: str, gate: str, telling: bool) -> None:
    rows = sample("5", hybrid, correct=False), sample("8", gate, correct=True)
    assert sentences.is_example(*rows, {"best": 3, "good": 2}) == telling
    assert not sentences.is_example(sample("8", hybrid, correct=True), rows[1], {"best": 3, "good": 2})
    assert not sentences.is_example(rows[0], sample("5", gate, correct=False), {"best": 3, "good": 2})


def test_without_documents_nothing_is_an_example() -> None:
    assert not sentences.is_example(sample("5", correct=False), sample("8", "best", correct=True), {"best": 3})
    assert not sentences.is_example(sample("5", "bad", correct=False), sample("8", "best", correct=True), {})


def test_the_misleading_document_is_beside_the_right_one() -> None:
    rows = {
        "closed-book": sample(None, correct=None),
        "hybrid": sample("5", "bad", "best", correct=False),
        "mathrag-gate": sample("8", "best", correct=True),
    }
    documents = {
        "bad": {"problem": "What is 4 quopo 2?", "text": "a quopo b = (3+b)-a. 7*2=4. It is 4."},
        "best": {"problem": "Find 1 quopo 1.", "text": "a quopo b = (6+b)-a. " + 6 * "First 6+1=7. " + "It is 6."},
    }
    asked, *columns, answers = sentences.example(rows, documents).splitlines()
    assert asked.split("  ")[1:] == ["What is 2 quopo 4?", "Right answer: 8"]
    assert [re.split(r" {2,}", line)[1:] for line in columns] == [
        ["First document for hybrid (misleading):", "First document for mathrag-gate (right):"],
        ["What is 4 quopo 2?", "Find 1 quopo 1."],
        ["a quopo b = (3+b)-a. 7*2=4. It is 4.", "a quopo b = (6+b)-a. First 6+1=7. First 6+1=7. First"],
        ["6+1=7. First 6+1=7. First 6+1=7. First 6+1=7. It is 6."],
    ]
    assert answers == "  Answers: closed-book no answer (not graded), hybrid 5 (wrong), mathrag-gate 8 (right)."


def test_without_documents_that_made_the_difference_only_the_answers_are_shown() -> None:
    said = sentences.example({"hybrid": sample("5", correct=False), "mathrag-gate": sample("4", correct=False)}, {})
    assert said.endswith("Answers: hybrid 5 (wrong), mathrag-gate 4 (wrong).")
    assert "document" not in said


def test_loads_are_counted_over_jobs_that_share_residencies() -> None:
    jobs = [report(), report(residencies=[residency(2), residency(3, "a", "b")])]
    said = sentences.loads(jobs, [report(residencies=[residency(4)]), report(residencies=[residency(4)])])
    assert said.startswith("The 200 answers took 4 model loads:")
    assert said.endswith("The metric took 1 more.")


def test_violations_are_named_with_their_job() -> None:
    assert "found no violation" in sentences.audits({"one": [], "other": []})
    assert "The audit found violations: other 2." in sentences.audits({"one": [], "other": ["I5", "I9"]})


def test_commands_name_the_program_and_the_data_as_the_shell_needs_them() -> None:
    program = ["/my tools/mathrag"]
    said = sentences.own_data("http://127.0.0.1:1", Path("my demo"), program, elsewhere=False)
    assert "all of this:  http://127.0.0.1:1\n" in said
    assert "\n  export MATHRAG_DATA_DIR='my demo/stack'\n  '/my tools/mathrag' corpus create" in said
    assert said.endswith("'/my tools/mathrag' down --data-dir 'my demo/stack'")
    elsewhere = sentences.own_data("http://127.0.0.1:1", Path("demo"), program, elsewhere=True)
    assert "\n  unset MATHRAG_URL; export MATHRAG_DATA_DIR=demo/stack\n" in elsewhere
