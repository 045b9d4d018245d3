from collections.abc import Sequence
from typing import Any

import pytest

from services.orchestrator.reports.retrieval import MOST, Findings, Guided, Guiding, Retrieval
from shared.samples import Candidate, Decision, Extraction, Outcome, Trace
from shared.statistics.significance import Difference
from shared.storage.samples import ABSENT, SampleWithOutcome
from tests.unit.services.orchestrator.test_report import sample

# How good a job's documents were: orders before and after reranking, the prompt, items and repeats.


GOLD = {0: {"a": 2}, 1: {"b": 1, "c": 1}}


def answered(index: int, order: str, fused: str = "", context: str = "", repeat: int = 0) -> SampleWithOutcome:
    scores = {document: 1 / rank for rank, document in enumerate(fused, start=1)}
    candidates = tuple(
        Candidate(document=document, rank=rank, fused=scores.get(document)) for rank, document in enumerate(order, 1)
    )
    outcome = Outcome(answer="1", extraction=Extraction.OK, context=tuple(context), trace=Trace(candidates=candidates))
    return sample(index, repeat=repeat), outcome


def found(*batches: Sequence[SampleWithOutcome], gold: dict[int, dict[str, int]] = GOLD) -> Retrieval:
    findings = Findings()
    for batch in batches:
        findings.add(batch, gold)
    figures = findings.figures()
    assert figures is not None
    return figures


def test_the_order_before_reranking_and_the_one_after_it_are_measured_apart() -> None:
    figures = found([answered(0, "ax", fused="xa"), answered(1, "bcx", fused="bcx")])
    assert (figures.fused["MRR"].value, figures.final["MRR"].value) == (0.75, 1.0)
    test = figures.reranking["MRR"]
    assert isinstance(test, Difference)
    assert (test.value, test.n) == (0.25, 2)


def test_a_document_that_fusion_did_not_find_has_no_place_before_reranking() -> None:
    figures = found([answered(0, "ax", fused="x"), answered(1, "bc", fused="bc")])
    assert figures.fused["Recall@10"].value == 0.5
    assert figures.final["Recall@10"].value == 1


def test_one_index_alone_has_no_order_before() -> None:
    figures = found([answered(0, "a"), answered(1, "xb")])
    assert (figures.fused, figures.reranking) == ({}, {})
    assert figures.final["MRR"].value == 0.75


def test_the_prompt_has_a_recall_of_its_own() -> None:
    assert found([answered(0, "a", context="a"), answered(1, "bcx", context="bx")]).context.value == 0.75


def test_repeats_of_an_item_count_as_one() -> None:
    figures = found([answered(0, "a"), answered(0, "xa", repeat=1)], [answered(0, "x", repeat=2), answered(1, "b")])
    assert (figures.items, figures.final["MRR"].n) == (2, 2)
    assert figures.final["MRR"].value == pytest.approx((0.5 + 1) / 2)


def test_a_document_that_the_corpus_does_not_hold_is_not_found_and_counted() -> None:
    gold = {0: {"a": 1, f"{ABSENT}lost": 1}}
    figures = found([answered(0, "a"), answered(0, "a", repeat=1)], gold=gold)
    assert (figures.absent, figures.final["Recall@10"].value) == (1, 0.5)


def test_samples_that_failed_or_whose_item_names_no_document_are_in_no_figure() -> None:
    batch = [(sample(0, state="failed"), None), answered(7, "a")]
    findings = Findings()
    findings.add(batch, GOLD)
    assert findings.figures() is None
    findings.add([answered(8, "")], {8: {"a": 1}})
    figures = findings.figures()
    assert figures is not None
    assert (figures.items, figures.final["nDCG@10"].value) == (1, 0)


# What a report says of rules.

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
