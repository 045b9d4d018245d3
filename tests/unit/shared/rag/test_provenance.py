from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.rag.provenance import (
    RULES,
    Ending,
    SampleFacts,
    classify_ending,
    find_scorer,
    is_context_reranked,
    sort_as_found,
)
from shared.samples import Candidate, Extraction, Outcome, Strategy, Trace
from tests.unit.cases import named

# What candidates tell: the order in which they were found, who scored them, whether the prompt moved.


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


# How samples ended: each rule by itself, their order, and that every combination of facts has exactly one ending.

OTHER, GOOD, UNRATED = "a" * 64, "b" * 64, "c" * 64
WRONG_ANSWER = SampleFacts(correct=False, strict=False)
SHOWN = SampleFacts(
    correct=False,
    strict=False,
    searched=True,
    relevant=frozenset({GOOD}),
    candidates=(Candidate(document=OTHER, rank=1, fused=0.5, quality=1.0), Candidate(document=GOOD, rank=2, fused=0.4)),
    context=(OTHER,),
)
"""A wrong answer from a document that is not the relevant one, which was found."""
WRONG = frozenset({
    Ending.TRUNCATED, Ending.EXTRACTION, Ending.RETRIEVAL_MISS, Ending.JUDGE_FAILURE, Ending.ARITHMETIC, Ending.LOGIC,
})  # fmt: skip
"""Endings of samples that have a text which is not correct."""


def unrated(*, fused: float, rank: int = 3) -> Candidate:
    return Candidate(document=UNRATED, rank=rank, fused=fused, failure="unparsed")


def test_each_rule_has_its_ending() -> None:
    cases = [
        (SampleFacts(failure="context_exceeded"), Ending.FAILED),
        (SampleFacts(failure="refused"), Ending.REFUSED),
        (SampleFacts(refusal="nothing was relevant", extraction=Extraction.REFUSED), Ending.REFUSED),
        (SampleFacts(extraction=Extraction.REFUSED), Ending.REFUSED),
        (SampleFacts(correct=True, strict=True), Ending.CORRECT),
        (SampleFacts(correct=True, strict=False), Ending.CORRECT),
        (SampleFacts(correct=True, truncated=True), Ending.CORRECT),
        (SampleFacts(correct=False, truncated=True), Ending.TRUNCATED),
        (SampleFacts(truncated=True, extraction=Extraction.UNBALANCED, gold=False), Ending.TRUNCATED),
        (SampleFacts(truncated=True, gold=False), Ending.UNGRADED),
        (SampleFacts(correct=False, extraction=Extraction.MISSING), Ending.EXTRACTION),
        (SampleFacts(extraction=Extraction.UNBALANCED, gold=False), Ending.EXTRACTION),
        (SampleFacts(gold=False), Ending.UNGRADED),
        (SampleFacts(correct=None, strict=True), Ending.UNGRADED),
        (SampleFacts(correct=False, strict=True), Ending.UNGRADED),
        (replace(SHOWN, relevant=frozenset({UNRATED})), Ending.RETRIEVAL_MISS),
        (replace(SHOWN, unscored=True), Ending.JUDGE_FAILURE),
        (replace(SHOWN, refuted=("8+7=4",)), Ending.ARITHMETIC),
        (SHOWN, Ending.LOGIC),
        (WRONG_ANSWER, Ending.LOGIC),
    ]
    wrong = [
        (facts, found) for facts, expected in cases if (found := named(classify_ending, facts)).ending is not expected
    ]
    assert wrong == []


def test_nothing_is_a_retrieval_miss_unless_it_is_known_what_should_have_been_found() -> None:
    missed = replace(SHOWN, relevant=frozenset({UNRATED}))
    assert classify_ending(missed).ending is Ending.RETRIEVAL_MISS
    for unknown in (replace(missed, relevant=None), replace(missed, relevant=frozenset())):
        assert classify_ending(unknown).ending is Ending.LOGIC
    assert classify_ending(replace(missed, searched=False, candidates=(), context=())).ending is Ending.LOGIC


def test_a_search_that_finds_nothing_misses_what_is_relevant() -> None:
    nothing = replace(SHOWN, candidates=(), context=())
    assert classify_ending(nothing) == (Ending.RETRIEVAL_MISS, "none of the relevant documents (1) was found")


def test_a_relevant_document_that_was_found_but_not_shown_is_no_retrieval_miss() -> None:
    assert classify_ending(SHOWN).reason.endswith("the best relevant document was ranked 2 and was not in the prompt")
    assert classify_ending(replace(SHOWN, context=(GOOD,))).reason.endswith("a relevant document was in the prompt")
    assert classify_ending(replace(SHOWN, relevant=None)).reason.endswith(
        "it is not known which documents are relevant"
    )
    assert classify_ending(WRONG_ANSWER).reason.endswith("the prompt had no documents")


def test_a_missing_rating_counts_where_it_cost_a_document_its_place() -> None:
    displaced = replace(SHOWN, candidates=(*SHOWN.candidates, unrated(fused=0.9)))
    assert classify_ending(displaced) == (
        Ending.JUDGE_FAILURE,
        f"document {UNRATED[:12]} would have been in the prompt, unscored: unparsed",
    )


def test_a_missing_rating_far_down_the_list_decides_nothing() -> None:
    assert classify_ending(replace(SHOWN, candidates=(*SHOWN.candidates, unrated(fused=0.1)))).ending is Ending.LOGIC


def test_a_document_that_is_shown_without_a_rating_is_a_judge_failure() -> None:
    shown = replace(SHOWN, candidates=(*SHOWN.candidates, unrated(fused=0.1)), context=(OTHER, GOOD, UNRATED))
    assert "is in the prompt, unscored: unparsed" in classify_ending(shown).reason


def test_without_fused_scores_the_best_rank_of_any_list_says_what_would_have_been_shown() -> None:
    unscored = Candidate(document=UNRATED, rank=9, dense_rank=1, failure="timeout")
    shown = Candidate(document=OTHER, rank=1, dense_rank=7, sparse_rank=2)
    facts = replace(SHOWN, candidates=(shown, unscored), relevant=None)
    assert classify_ending(facts).ending is Ending.JUDGE_FAILURE
    deeper = replace(unscored, dense_rank=None, paths={"rewrite": 3})
    assert classify_ending(replace(facts, candidates=(shown, deeper))).ending is Ending.LOGIC


def test_the_search_is_asked_before_the_judge_and_the_judge_before_the_text() -> None:
    everything = replace(SHOWN, relevant=frozenset({UNRATED}), unscored=True, refuted=("1+1=3",))
    found = replace(everything, relevant=SHOWN.relevant)
    scored = replace(found, unscored=False)
    endings = [classify_ending(facts).ending for facts in (everything, found, scored, replace(scored, refuted=()))]
    assert endings == [Ending.RETRIEVAL_MISS, Ending.JUDGE_FAILURE, Ending.ARITHMETIC, Ending.LOGIC]


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        document=st.sampled_from([OTHER, GOOD, UNRATED]),
        rank=st.integers(1, 5),
        fused=st.none() | st.floats(0, 1),
        failure=st.none() | st.just("unparsed"),
    ),
    max_size=3,
).map(tuple)
DOCUMENTS = st.lists(st.sampled_from([OTHER, GOOD, UNRATED]), max_size=3, unique=True)
FACTS = st.builds(
    SampleFacts,
    failure=st.sampled_from([None, None, None, "timeout", "refused"]),
    refusal=st.sampled_from([None, None, None, "nothing is relevant"]),
    correct=st.sampled_from([None, False, False, True]),
    strict=st.sampled_from([None, False, False, True]),
    gold=st.booleans(),
    extraction=st.sampled_from([Extraction.OK, *Extraction]),
    truncated=st.booleans(),
    searched=st.booleans(),
    relevant=st.none() | DOCUMENTS.map(frozenset),
    candidates=CANDIDATES,
    context=DOCUMENTS.map(tuple),
    unscored=st.booleans(),
    refuted=st.sampled_from([(), ("8+7=4",)]),
)


@given(facts=FACTS)
def test_every_combination_ends_in_exactly_one_way(facts: SampleFacts) -> None:
    found, reason = classify_ending(facts)
    assert reason
    ended = facts.failure is None and facts.refusal is None and facts.extraction is not Extraction.REFUSED
    assert (found is Ending.CORRECT) == (ended and facts.correct is True)
    assert (found in (Ending.FAILED, Ending.REFUSED)) == (not ended)
    if found is Ending.UNGRADED:
        assert facts.correct is None or facts.strict
    if found in (Ending.RETRIEVAL_MISS, Ending.JUDGE_FAILURE, Ending.ARITHMETIC, Ending.LOGIC):
        assert (facts.correct, bool(facts.strict), facts.truncated) == (False, False, False)
        assert facts.extraction is Extraction.OK
    if found is Ending.RETRIEVAL_MISS:
        assert facts.searched
        assert facts.relevant
        assert not facts.relevant.intersection(facts.context)
    if found is Ending.LOGIC:
        assert not facts.refuted
        assert not facts.unscored


@given(facts=FACTS)
def test_the_first_rule_that_applies_decides(facts: SampleFacts) -> None:
    applying = [found for rule in RULES if (found := rule(facts)) is not None]
    assert classify_ending(facts) == applying[0]
    assert applying[-1].ending is Ending.LOGIC


@given(facts=FACTS)
def test_without_relevant_documents_a_sample_ends_as_if_nothing_had_been_missed(facts: SampleFacts) -> None:
    with_them, without = classify_ending(facts).ending, classify_ending(replace(facts, relevant=None)).ending
    assert without is not Ending.RETRIEVAL_MISS
    assert with_them in (without, Ending.RETRIEVAL_MISS)


def test_wrong_endings_are_those_of_answers_that_somebody_could_have_got_right() -> None:
    verdicts = (None, False, True)
    for correct, strict, extraction, truncated in product(verdicts, verdicts, Extraction, (False, True)):
        facts = SampleFacts(correct=correct, strict=strict, extraction=extraction, truncated=truncated)
        found = classify_ending(facts).ending
        wrong = not correct and (extraction is not Extraction.OK or (correct is False and not strict))
        assert (found in WRONG) == (wrong and extraction is not Extraction.REFUSED)
