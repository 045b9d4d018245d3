"""What the demonstration says follows from figures: other figures, other sentences."""

from pathlib import Path
from typing import Any

import pytest

from mathrag.demo import sentences
from shared.statistics.intervals import wilson


def report(right: int = 60, **changed: Any) -> dict[str, Any]:
    share = wilson(right, 100)
    accuracy = {"value": right / 100, "low": share.low, "high": share.high, "correct": right, "graded": 100}
    return {
        "accuracy": accuracy, "calls_made": {"judge": 150}, "calls_reused": {"judge": 30}, "gate": gated(),
        "request_counts": {"completed": 100}, "model_loads": 2, "seconds": 4.0,
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


def sample(index: int, answer: str | None, *, correct: bool | None) -> dict[str, Any]:
    return {"index": index, "question": f"What is q{index}?", "gold": "8", "answer": answer, "correct": correct}


def test_rules_that_agree_with_the_judge_are_said_to_score_the_rest() -> None:
    said = sentences.gate(report())
    assert "scores of 180 documents" in said
    assert "r = 0.71, threshold 0.45" in said
    assert "rules agree with the judge, so rules score the rest: the judge was asked for 180 ratings only" in said
    assert "close decision" not in said


def test_rules_that_do_not_agree_leave_the_scoring_to_the_judge() -> None:
    said = sentences.gate(report(gate=gated(strategy="judge", rho=0.12, low=-0.1, high=0.3)))
    assert "r = 0.12" in said
    assert "Rules and judge agree too little, so the judge scores all that was found: 180 ratings" in said
    assert "score the rest" not in said


def test_a_threshold_inside_the_interval_is_a_close_decision() -> None:
    assert "close decision: the 95 % interval of r, 0.35 to 0.58" in sentences.gate(
        report(gate=gated(low=0.35, high=0.58))
    )


def test_a_gate_without_a_correlation_says_why() -> None:
    said = sentences.gate(report(gate=gated(rho=None, strategy="judge", reason="all ratings are equal: judge")))
    assert said == "Gate: it could not compare rules and judge: all ratings are equal: judge."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pair(60, 5, 1e-9, 0.55), "Conclusion: reordering by reasoning helps here. 60 questions are right with"),
        (pair(5, 60, 1e-9, -0.55), "Conclusion: reordering by reasoning does harm here. 5 questions are right with"),
        (pair(7, 5, 0.774, 0.02), "Conclusion: none; these questions do not tell the two apart. 7 questions are right"),
        (pair(0, 0, 1.0, 0.0), "Conclusion: none. mathrag-gate and hybrid agree on all 100 questions."),
    ],
)
def test_a_conclusion_is_what_the_test_supports(found: dict[str, Any], said: str) -> None:
    conclusion = sentences.conclusion(found)
    assert conclusion.startswith(said)
    assert ("no proof that they are equal" in conclusion) == (not found["separable"])


def test_the_figures_of_a_conclusion_are_those_of_the_comparison() -> None:
    said = sentences.conclusion(pair(7, 5, 0.774, 0.02))
    assert "+2.0 points (95 %: -8.0 to +12.0)" in said
    assert "in 77.4 % of cases (p = 0.774)" in said
    assert "about 979 questions" in said
    assert "about" not in sentences.conclusion(pair(5, 5, 1.0, 0.0, None))
    assert "(p < 0.001)" in sentences.conclusion(pair(60, 5, 1e-9, 0.55))


def test_in_short_only_what_is_separable_is_ranked() -> None:
    said = sentences.summary({"one": pair(60, 5, 1e-9, 0.55), "other": pair(7, 5, 0.774, 0.02)})
    assert "one: reordering by reasoning helps, +55.0 points" in said
    assert "other: no difference between mathrag-gate and hybrid can be told from chance." in said


def test_every_pipeline_has_its_accuracy_with_counts_and_interval() -> None:
    nothing = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "graded": 0}
    reports = {"hybrid": report(47), "dense": report(accuracy=nothing), "mathrag-gate": report(50)}
    said = sentences.results("world", reports, pair(7, 5, 0.774, 0.02))
    assert "hybrid        47 of 100     47.0 %      37.5 to 56.7 %" in said
    assert "dense         nothing was graded" in said


def test_the_question_shown_is_one_that_tells_the_pipelines_apart() -> None:
    rows = {
        "hybrid": [sample(0, "8", correct=True), sample(1, None, correct=False), sample(2, "7", correct=None)],
        "mathrag-gate": [sample(0, "8", correct=True), sample(1, "8", correct=True), sample(2, "5", correct=False)],
    }
    index, said = sentences.question(rows)
    assert index == 1
    assert "What is q1?" in said
    assert "hybrid        no answer   wrong" in said
    assert "mathrag-gate  8           right" in said


def test_where_mathrag_gate_is_never_right_the_first_question_is_shown_as_it_is() -> None:
    rows = {"hybrid": [sample(0, "8", correct=True)], "mathrag-gate": [sample(0, "5", correct=False)]}
    index, said = sentences.question(rows)
    assert (index, "mathrag-gate  5           wrong" in said) == (0, True)


def test_loads_are_counted_over_jobs_that_share_residencies() -> None:
    jobs = [report(), report(residencies=[residency(2), residency(3, "a", "b")])]
    said = sentences.loads(jobs, report(seconds=1.5), [report(seconds=2.0), report(seconds=2.25), report()])
    assert "all of the above, 200 answers         4 model loads" in said
    assert "3 questions in one job                2 model loads, 1.5 s" in said
    assert "the same, one at a time               6 model loads, 8.2 s" in said
    assert "Working in stages saved 4 of 6 model loads." in said


def test_stages_that_save_nothing_are_not_praised() -> None:
    said = sentences.loads([report()], report(model_loads=1), [report(model_loads=1)])
    assert "Stages saved no load here." in said
    assert "1 model load, 4.0 s" in said


def test_violations_are_named_with_their_job() -> None:
    assert "nothing is wrong" in sentences.audits({"one": [], "other": []})
    assert "The audit found violations: other 2." in sentences.audits({"one": [], "other": ["I5", "I9"]})


def test_documents_that_mislead_are_counted() -> None:
    assert "90 documents, 40 of which mislead" in sentences.world("a", 90, 40, 10)
    assert "90 documents, none of which misleads" in sentences.world("a", 90, 0, 10)


def test_commands_name_the_data_and_the_question_shown() -> None:
    said = sentences.next_steps(Path("here"), "clean", 7)
    assert "export MATHRAG_DATA_DIR=here\n" in said
    assert "mathrag sample show clean-mathrag-gate 7\n" in said
