"""What candidates tell: the order in which they were found, who scored them, whether the prompt moved."""

import pytest

from shared.rag.provenance import find_scorer, is_context_reranked, sort_as_found
from shared.samples import Candidate, Extraction, Outcome, Strategy, Trace


def outcome(context: tuple[str, ...], *candidates: Candidate) -> Outcome:
    return Outcome(answer="1", extraction=Extraction.OK, context=context, trace=Trace(candidates=candidates))


def test_documents_are_ordered_as_they_were_found() -> None:
    found = [
        Candidate(document="d", rank=1, dense_rank=2), Candidate(document="c", rank=2, fused=0.1),
        Candidate(document="b", rank=3, fused=0.1), Candidate(document="a", rank=4, fused=0.3),
        Candidate(document="e", rank=5, paths={"rule 3": 1}),
    ]  # fmt: skip
    assert [each.document for each in sort_as_found(found)] == ["a", "b", "c", "e", "d"]


def test_a_prompt_moved_where_reranking_changed_its_documents_or_their_order() -> None:
    first, second = Candidate(document="a", rank=1, fused=0.2), Candidate(document="b", rank=2, fused=0.1)
    assert is_context_reranked(outcome(("b",), first, second))
    assert is_context_reranked(outcome(("b", "a"), first, second))
    assert not is_context_reranked(outcome(("a", "b"), first, second))
    assert not is_context_reranked(outcome(("a",), first, second))
    assert not is_context_reranked(outcome((), first))
    assert not is_context_reranked(outcome(()))


@pytest.mark.parametrize(
    ("trace", "who"),
    [
        (Trace(), None),
        (Trace(candidates=(Candidate(document="a", rank=1, fused=0.1),)), None),
        (Trace(candidates=(Candidate(document="a", rank=1, quality=0.5, features={"box": 1.0}),)), Strategy.RULES),
        (Trace(candidates=(Candidate(document="a", rank=1, quality=0.5),)), Strategy.JUDGE),
        (Trace(candidates=(Candidate(document="a", rank=1, failure="unparsed"),), unscored=True), Strategy.JUDGE),
        (Trace(candidates=(Candidate(document="a", rank=1, features={"verified": 0.0}),)), Strategy.VERIFIER),
        (
            Trace(candidates=(Candidate(document="a", rank=1, failure="verifier_timeout"),), unscored=True),
            Strategy.VERIFIER,
        ),
    ],
)
def test_who_scored_is_told_from_what_the_scores_were_made_of(trace: Trace, who: Strategy | None) -> None:
    assert find_scorer(trace) is who
