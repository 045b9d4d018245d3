"""What follows from probabilities of relevance: order, threshold, refusal, floor."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Grade
from shared.params import Params, RerankParams
from shared.pipelines.grading import run_and_grade
from shared.rag.answering import Ranking, keep_above_floor, make_ranked_trace, make_refusal_outcome, rank_by_relevance
from shared.replies import Failure, FailureKind, Graded, Scored
from shared.samples import Candidate, Decision, Extraction, Item, Steps, Trace

GONE = Failure(kind=FailureKind.NOT_CONFIGURED, detail="no reranker")
PROBABILITIES = st.lists(st.floats(0, 1), max_size=8)


def ranking(*scores: float, size: int = 1, threshold: float = 0.4, refuse: bool = False) -> Ranking:
    params = Params(context_size=size, rerank=RerankParams(threshold=threshold, refuse=refuse))
    return rank_by_relevance("abcdefgh"[: len(scores)], Scored(scores=scores), params)


def test_the_most_relevant_document_comes_first_and_the_irrelevant_go() -> None:
    found = ranking(0.1, 0.9, 0.4, 0.39)
    assert (found.order, found.kept, found.refusal) == (("b", "c", "d", "a"), ("b", "c"), None)
    assert found.relevance == {"a": 0.1, "b": 0.9, "c": 0.4, "d": 0.39}


def test_equally_relevant_documents_keep_their_places() -> None:
    assert ranking(0.5, 0.7, 0.5, 0.7).order == ("b", "d", "a", "c")


def test_where_nothing_is_relevant_the_best_stay() -> None:
    found = ranking(0.1, 0.2, 0.05, size=2)
    assert (found.kept, found.refusal) == (("b", "a"), None)
    assert found.decisions == (
        Decision(
            stage="rerank", action="best", detail={"documents": 3.0, "kept": 2.0, "best": 0.2, "threshold": 0.4}
        ),
    )  # fmt: skip


def test_where_nothing_is_relevant_a_question_is_refused_if_that_is_wanted() -> None:
    found = ranking(0.1, 0.2, refuse=True)
    assert found.kept == ()
    assert found.refusal == "the most relevant document has a probability of 0.200, below 0.4"
    assert found.decisions[0].action == "refuse"


def test_one_relevant_document_is_enough_not_to_refuse() -> None:
    found = ranking(0.1, 0.4, refuse=True)
    assert (found.kept, found.refusal, found.decisions[0].action) == (("b",), None, "threshold")


def test_no_document_at_all_is_refused_only_if_that_is_wanted() -> None:
    assert ranking(refuse=True).refusal == "no document was found"
    assert ranking() == Ranking((), (), {}, ranking().decisions)


def test_a_threshold_of_zero_keeps_all() -> None:
    assert ranking(0.0, 0.1, threshold=0.0, refuse=True).kept == ("b", "a")


def test_a_failed_reranking_leaves_the_order_and_refuses_nothing() -> None:
    found = rank_by_relevance("cab", GONE, Params(rerank=RerankParams(refuse=True)))
    assert (found.order, found.kept, found.refusal) == (tuple("cab"), tuple("cab"), None)
    assert found.relevance == {}
    assert found.decisions == (Decision(stage="rerank", action="original order", fallback="not_configured"),)


def test_a_score_too_few_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        rank_by_relevance("ab", Scored(scores=(0.5,)), Params())
    with pytest.raises(ValueError, match="shorter"):
        keep_above_floor("ab", Scored(scores=(0.5,)), 0.5)


def test_the_floor_is_in_itself_enough() -> None:
    found = keep_above_floor("abc", Scored(scores=(0.5, 0.49, 0.9)), 0.5)
    assert (found.rated, found.relevance) == (("a", "c"), {"a": 0.5, "b": 0.49, "c": 0.9})
    assert found.decisions == (Decision(stage="floor", action="floor", detail={"floor": 0.5, "below": 1.0}),)


def test_without_a_reranker_there_is_no_floor() -> None:
    found = keep_above_floor("abc", GONE, 0.5)
    assert (found.rated, found.relevance) == (tuple("abc"), {})
    assert found.decisions == (Decision(stage="floor", action="none", fallback="not_configured"),)


def test_a_trace_takes_the_rankings_order() -> None:
    before = Decision(stage="rewrite", action="rewritten")
    fused = (("a", 0.3), ("b", 0.2), ("c", 0.1))
    candidates = tuple(Candidate(document=d, rank=i, fused=f, score=f) for i, (d, f) in enumerate(fused, start=1))
    trace = make_ranked_trace(Trace(candidates=candidates, decisions=(before,)), ranking(0.1, 0.9, 0.5))
    assert [(c.document, c.rank, c.fused, c.relevance, c.score) for c in trace.candidates] == [
        ("b", 1, 0.2, 0.9, 0.9),
        ("c", 2, 0.1, 0.5, 0.5),
        ("a", 3, 0.3, 0.1, 0.1),
    ]
    assert [decision.stage for decision in trace.decisions] == ["rewrite", "rerank"]


def test_a_trace_without_probabilities_keeps_its_scores() -> None:
    trace = Trace(candidates=(Candidate(document="a", rank=1, score=0.3),))
    again = make_ranked_trace(trace, rank_by_relevance("a", GONE, Params()))
    assert again == msgspec.structs.replace(trace, decisions=again.decisions)


def test_a_refused_question_has_no_answer_and_is_no_failure() -> None:
    outcome = make_refusal_outcome("no document was found", Trace())
    assert (outcome.answer, outcome.extraction, outcome.refusal) == (
        None,
        Extraction.REFUSED,
        "no document was found",
    )
    assert outcome.context == ()


def test_a_refused_question_is_graded_as_not_answered() -> None:
    def refusing() -> Steps:
        yield from ()
        return make_refusal_outcome("no document was found", Trace())

    steps = run_and_grade(refusing(), Item(ordinal=0, question="q", gold="6"), {})
    assert next(steps) == Grade(answer=None, gold="6")
    with pytest.raises(StopIteration) as ended:
        steps.send(Graded(math_verify=False, strict=False))
    assert (ended.value.value.refusal, ended.value.value.verdict.math_verify) == ("no document was found", False)
    with pytest.raises(StopIteration) as ended:
        next(run_and_grade(refusing(), Item(ordinal=0, question="q"), {}))
    assert ended.value.value.verdict is None


@given(PROBABILITIES, st.floats(0, 1), st.booleans())
def test_what_is_kept_is_the_head_of_the_order(scores: list[float], threshold: float, refuse: bool) -> None:
    found = ranking(*scores, threshold=threshold, refuse=refuse)
    assert sorted(found.order) == sorted("abcdefgh"[: len(scores)])
    assert found.kept == found.order[: len(found.kept)]
    assert (found.refusal is None) or found.kept == ()


@given(PROBABILITIES, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_floor_never_rates_more(scores: list[float], floor: float, higher: float) -> None:
    low, high = sorted((floor, higher))
    documents = "abcdefgh"[: len(scores)]
    rated = [set(keep_above_floor(documents, Scored(scores=tuple(scores)), each).rated) for each in (low, high)]
    assert rated[1] <= rated[0]
