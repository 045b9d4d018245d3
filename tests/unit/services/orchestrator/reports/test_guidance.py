"""What a report says of rules."""

from typing import Any

from services.orchestrator.reports.retrieval import MOST, Guided, Guiding
from shared.samples import Decision, Extraction, Outcome, Trace
from shared.storage.samples import SampleWithOutcome
from tests.unit.services.orchestrator.reports.test_report import sample

NAMED = Decision(stage="relation", action="named", detail={"relation": "r", "bank": "b"})
NONE = Decision(stage="relation", action="none", detail={"bank": "b"}, fallback="no_rule")


def rule(number: int, *documents: str, **detail: Any) -> Decision:
    told = {"rule": f"text {number}", "number": number, "certainty": 0.5, "documents": list(documents), **detail}
    return Decision(stage="rule", action="search", detail=told)


def decided(index: int, correct: bool | None, *decisions: Decision) -> SampleWithOutcome:
    outcome = Outcome(answer=None, extraction=Extraction.OK, trace=Trace(decisions=decisions))
    return sample(index, correct=correct), outcome


def figures(*samples: SampleWithOutcome) -> Guided | None:
    guiding = Guiding()
    guiding.add(samples)
    return guiding.figures()


def test_questions_with_and_without_rules_are_told_apart() -> None:
    found = figures(
        decided(0, True, NAMED, rule(3, "a", "b"), rule(7, "a")), decided(1, False, NAMED, rule(3, "c")),
        decided(2, True, NONE), (sample(3), None),
    )  # fmt: skip
    assert found is not None
    assert (found.bank, found.relations, found.unguided, found.used) == ("b", {"named": 2, "none": 1}, 1, 2)
    assert (found.with_rules.correct, found.with_rules.graded) == (1, 2)
    assert (found.without_rules.correct, found.without_rules.graded) == (1, 1)
    assert [(each.number, each.samples, each.documents, each.accuracy.value) for each in found.rules] == [
        (3, 2, 3, 0.5),
        (7, 1, 1, 1.0),
    ]


def test_a_rule_of_the_prompt_alone_has_brought_no_documents() -> None:
    prompt = Decision(stage="rule", action="prompt", detail={"rule": "t", "number": 1, "certainty": 1.0})
    found = figures(decided(0, None, NAMED, prompt))
    assert found is not None
    assert [(each.samples, each.documents) for each in found.rules] == [(1, 0)]


def test_the_rules_that_guided_most_are_listed() -> None:
    found = figures(
        decided(0, True, NAMED, *(rule(number) for number in range(50, 0, -1))), decided(1, True, NAMED, rule(9))
    )
    assert found is not None
    assert (found.used, [each.number for each in found.rules][:3], len(found.rules)) == (50, [9, 1, 2], MOST)


def test_a_job_without_rules_has_nothing_to_say() -> None:
    assert figures(decided(0, True, Decision(stage="crag", action="correct"))) is None
