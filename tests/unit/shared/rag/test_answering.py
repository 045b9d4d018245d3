"""Prompts and their documents: what is dropped, and what is compressed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Call, Generate, Grade, Judge, Rerank
from shared.params import CompressParams, Params, RelevanceSource, RerankParams
from shared.pipelines.grading import run_and_grade
from shared.rag.answering import (
    PromptDocuments,
    Ranking,
    ask_for_relevance,
    compress,
    keep_above_floor,
    make_ranked_trace,
    make_refusal_outcome,
    rank_by_relevance,
)
from shared.rag.prompts import show_documents
from shared.rag.text import estimate_tokens, split_sentences
from shared.replies import CallFailed, Document, Failure, FailureKind, Graded, Relevance, Reply, Scored
from shared.samples import Candidate, Decision, Extraction, Item, Outcome, Steps, Trace
from tests.unit.cases import named
from tests.unit.shared.pipelines.test_pipelines import A, Answer, B, C, run, world

# Prompts that do not fit: the worst documents are dropped, one by one, and the trace says so.

TOO_LONG = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")
PIPELINES = ["critic-loop", "dense", "enhanced", "enhanced-crag", "hybrid", "hyde", "mathrag-gate", "sparse"]


def holding(most: int, answer: Answer = world) -> Answer:
    def reply(call: Call) -> Reply:
        if isinstance(call, Rerank):
            return Scored(scores=tuple(1 - at / 10 for at in range(len(call.documents))))
        return TOO_LONG if isinstance(call, Generate) and len(call.context) > most else answer(call)

    return reply


def ask(pipeline: str, most: int, size: int = 3, **groups: Any) -> tuple[Outcome, list[tuple[str, ...]]]:
    outcome, asked = run(pipeline, holding(most), msgspec.convert({"context_size": size, **groups}, Params))
    return outcome, [call.context for step in asked for call in step if isinstance(call, Generate)]


def ask_broken(kind: FailureKind) -> object:
    return run("dense", lambda call: Failure(kind=kind) if isinstance(call, Generate) else world(call))


def failure(function: Callable[..., object], *given: object) -> str:
    try:
        function(*given)
    except CallFailed as failed:
        return str(failed)
    return "(not at all)"


def dropped(outcome: Outcome) -> list[object]:
    return [each.detail["document"] for each in outcome.trace.decisions if each.stage == "context"]


def test_the_worst_documents_are_dropped_until_the_prompt_fits() -> None:
    wrong = {}
    for pipeline in PIPELINES:
        whole, _ = named(ask, pipeline, 3)
        ranked = list(whole.context)
        for most in [0, 1, 2]:
            outcome, tried = named(ask, pipeline, most)
            found = outcome.answer, list(outcome.context), dropped(outcome), [len(context) for context in tried]
            if found != ("14", ranked[:most], ranked[most:][::-1], list(range(len(ranked), most - 1, -1))):
                wrong[pipeline, most] = found
    assert wrong == {}


def test_the_trace_says_why_a_document_was_dropped() -> None:
    outcome, _ = ask("dense", 2)
    decision = outcome.trace.decisions[-1]
    assert (decision.stage, decision.action, decision.fallback) == ("context", "drop", "context_exceeded")
    assert decision.detail == {"document": C, "reason": "900 tokens of 512"}


def test_what_fits_is_asked_once() -> None:
    outcome, tried = ask("dense", 3)
    assert (tried, dropped(outcome)) == ([(A, B, C)], [])


def test_a_question_that_does_not_fit_alone_fails_in_words() -> None:
    said = {pipeline: named(failure, ask, pipeline, -1) for pipeline in ["closed-book", *PIPELINES]}
    words = "context_exceeded: 900 tokens of 512"
    assert {pipeline: found for pipeline, found in said.items() if words not in found} == {}


def test_no_other_failure_drops_a_document() -> None:
    kinds = sorted(set(FailureKind) - {FailureKind.CONTEXT_EXCEEDED})
    said = {kind.value: named(failure, ask_broken, kind) for kind in kinds}
    assert {kind: found for kind, found in said.items() if kind not in found} == {}


def test_what_is_left_is_compressed_anew() -> None:
    first, _ = ask("enhanced", 4, size=4, compress={"ratio": 1.0, "tokens": 60})
    left, _ = ask("enhanced", len(first.context) - 1, size=4, compress={"ratio": 1.0, "tokens": 60})
    assert set(left.context) < set(first.context)
    assert [each.stage for each in left.trace.decisions].count("compress") == 1


# Context compression: what stays of documents under a ratio and a number of tokens.


QUESTION = "What is the area of the triangle?"
LONG = (
    "First we draw the triangle. The weather was nice. Its base is $b = 4. 0$ and its height is 3. "
    "Some people like music. The area of the triangle is $\\frac{1}{2} b h$. So the area is \\boxed{6}."
)
SENTENCES = st.sampled_from(
    [
        "The area is 6. ", "So x = 3. ", "We know that $a. b = c$ holds. ", r"Then \[x = 1.\] ", "It rains today. ",
        "We know that $a. b = c$ holds here. ", "鸭子每天下蛋。", "A triangle has three sides and three corners. ",
        "Why? ",
    ]
)  # fmt: skip
BODIES = st.lists(SENTENCES, max_size=8).map("".join)
DOCUMENTS = st.lists(st.builds(Document, problem=st.sampled_from(["", "A problem?"]), text=BODIES), max_size=4)


def compressed(*documents: Document, question: str = QUESTION, ratio: float = 0.7, size: int = 4000) -> PromptDocuments:
    library = {document.hash: document for document in documents}
    return compress(question, list(library), library, CompressParams(ratio=ratio, tokens=size))


def context(found: PromptDocuments, *documents: Document) -> str:
    library = {document.hash: document for document in documents}
    return found.passage or show_documents([library[each] for each in found.documents])


def test_what_has_nothing_to_do_with_the_question_goes_first() -> None:
    document = Document(problem="Find it.", text=LONG)
    found = compressed(document, ratio=0.6)
    assert found.documents == (document.hash,)
    assert found.passage.startswith("Problem: Find it.\nSolution: First we draw the triangle.")
    assert found.passage.endswith("So the area is \\boxed{6}.\n\n")
    assert "music" not in found.passage
    assert "weather" not in found.passage
    assert "$\\frac{1}{2} b h$" in found.passage


def test_the_figures_of_a_compression_are_recorded() -> None:
    document = Document(problem="Find it", text=LONG)
    found = compressed(document)
    detail = found.decisions[0].detail
    before, after = estimate_tokens(show_documents([document])), estimate_tokens(found.passage)
    assert (found.decisions[0].stage, found.decisions[0].action) == ("compress", "compressed")
    assert (detail["tokens before"], detail["tokens after"], detail["ratio"]) == (before, after, after / before)
    assert (detail["sentences"], detail["dropped"]) == (6.0, 6.0 - len(split_sentences(found.passage)))


def test_a_repeated_sentence_goes_and_the_first_one_stays() -> None:
    first = Document(text="The product of all of the roots of this monic polynomial is its last coefficient. So 3.")
    again = Document(text="So 3. The product of all of the roots of this monic polynomial is its last coefficient.")
    found = compressed(first, again, ratio=0.99)
    assert (
        found.passage == "The product of all of the roots of this monic polynomial is its last coefficient. So 3.\n\n"
    )
    assert found.documents == (first.hash,)


def test_different_figures_are_no_repetition() -> None:
    found = compressed(Document(text="So x = 3. It rains. So x = 4."), ratio=0.8)
    assert found.passage == "So x = 3. So x = 4.\n\n"


def test_a_document_of_which_nothing_stays_is_not_shown() -> None:
    near = Document(problem="Area?", text="The area of the triangle is 6.")
    far = Document(problem="Music?", text="Some people listen to many kinds of music.")
    found = compressed(near, far, ratio=0.5)
    assert found.documents == (near.hash,)
    assert found.passage == "Problem: Area?\nSolution: The area of the triangle is 6.\n\n"


def test_one_sentence_stays_whatever_the_ratio() -> None:
    document = Document(text="The area of the triangle is 6.")
    assert compressed(document, ratio=0.1) == compressed(document, ratio=1)


def test_a_ratio_of_one_and_enough_tokens_change_nothing() -> None:
    document = Document(text="So x = 3. So x = 3.")
    found = compressed(document, ratio=1)
    assert (found.documents, found.passage, found.decisions[0].action) == ((document.hash,), "", "unchanged")


def test_nothing_is_shown_where_nothing_fits() -> None:
    found = compressed(Document(text="The circumference of this particular circle is approximately eighteen."), size=16)
    assert (found.documents, found.passage, found.decisions[0].detail["tokens after"]) == ((), "", 0.0)


def test_no_documents_are_no_error() -> None:
    assert compressed().documents == ()
    assert compressed().decisions[0].detail["ratio"] == 1.0


def test_a_problem_that_alone_is_too_long_takes_its_document_along() -> None:
    wordy = "What is the remainder when the following enormous number is divided by seven?"
    assert compressed(Document(problem=wordy, text="It is 3."), size=16).documents == ()
    assert compressed(Document(problem=wordy, text=""), size=16).documents == ()


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_the_tokens_are_never_exceeded(documents: list[Document], ratio: float, size: int) -> None:
    found = compressed(*documents, ratio=ratio, size=size)
    assert estimate_tokens(context(found, *documents)) <= size


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_what_stays_are_whole_sentences_in_order(documents: list[Document], ratio: float, size: int) -> None:
    found = compressed(*documents, ratio=ratio, size=size)
    library = {document.hash: document for document in documents}
    rest = context(found, *documents)
    for hash_ in found.documents:
        if library[hash_].problem:
            rest = rest.removeprefix(f"Problem: {library[hash_].problem}\nSolution: ")
        for sentence in split_sentences(library[hash_].text):
            rest = rest.lstrip().removeprefix(sentence.strip())
        rest = rest.lstrip()
    assert rest.strip() == ""


@given(BODIES, st.integers(16, 80))
def test_what_fits_is_left_alone_the_second_time(body: str, size: int) -> None:
    once = context(compressed(Document(text=body), ratio=1, size=size), Document(text=body))
    again = Document(text=once.strip())
    assert context(compressed(again, ratio=1, size=size), again).strip() == once.strip()


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_the_same_documents_always_leave_the_same(documents: list[Document], ratio: float, size: int) -> None:
    assert compressed(*documents, ratio=ratio, size=size) == compressed(*documents, ratio=ratio, size=size)


# What follows from probabilities of relevance: order, threshold, refusal, floor.

GONE = Failure(kind=FailureKind.NOT_CONFIGURED, detail="no reranker")
UNREADABLE = Failure(kind=FailureKind.UNPARSED, detail="neither yes nor no")
PROBABILITIES = st.lists(st.floats(0, 1), max_size=8)


def ranking(*scores: float, size: int = 1, threshold: float = 0.4, refuse: bool = False) -> Ranking:
    params = Params(context_size=size, rerank=RerankParams(threshold=threshold, refuse=refuse))
    return rank_by_relevance(dict(zip("abcdefgh", scores, strict=False)), params)


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
    found = rank_by_relevance(dict.fromkeys("cab", GONE), Params(rerank=RerankParams(refuse=True)))
    assert (found.order, found.kept, found.refusal) == (tuple("cab"), tuple("cab"), None)
    assert found.relevance == {}
    assert found.decisions == (Decision(stage="rerank", action="original order", fallback="not_configured"),)


def test_a_document_of_unknown_relevance_keeps_its_place_and_stays() -> None:
    scores = {"a": 0.1, "b": UNREADABLE, "c": 0.9, "d": 0.2}
    found = rank_by_relevance(scores, Params())
    assert (found.order, found.kept) == (("c", "b", "d", "a"), ("c", "b"))
    assert found.relevance == {"a": 0.1, "c": 0.9, "d": 0.2}
    (decision,) = found.decisions
    assert (decision.action, decision.fallback, decision.detail["unknown"]) == ("threshold", "unparsed", 1.0)


def test_the_floor_is_in_itself_enough() -> None:
    found = keep_above_floor({"a": 0.5, "b": 0.49, "c": 0.9}, 0.5)
    assert (found.rated, found.relevance) == (("a", "c"), {"a": 0.5, "b": 0.49, "c": 0.9})
    assert found.decisions == (Decision(stage="floor", action="floor", detail={"floor": 0.5, "below": 1.0}),)


def test_without_a_reranker_there_is_no_floor() -> None:
    found = keep_above_floor(dict.fromkeys("abc", GONE), 0.5)
    assert (found.rated, found.relevance) == (tuple("abc"), {})
    assert found.decisions == (Decision(stage="floor", action="none", fallback="not_configured"),)


def test_a_document_of_unknown_relevance_is_not_below_the_floor() -> None:
    found = keep_above_floor({"a": 0.1, "b": UNREADABLE}, 0.5)
    assert (found.rated, found.relevance) == (("b",), {"a": 0.1})
    detail = {"floor": 0.5, "below": 1.0, "unknown": 1.0}
    assert found.decisions == (Decision(stage="floor", action="floor", detail=detail, fallback="unparsed"),)


# Whom a pipeline asks for relevance.


def relevance_of(documents: str, by: RelevanceSource, answer: Callable[[Call], Reply]) -> dict[str, float | Failure]:
    asking = ask_for_relevance("q", documents, by)
    try:
        asked = next(asking)
        asking.send(answer(asked) if not isinstance(asked, list) else [answer(each) for each in asked])
    except StopIteration as ended:
        return dict(ended.value)
    raise AssertionError("it asks once")


def test_the_reranker_is_asked_for_all_documents_at_once() -> None:
    asked: list[Call] = []

    def answer(call: Call) -> Reply:
        asked.append(call)
        return Scored(scores=(0.2, 0.7))

    assert relevance_of("ab", "reranker", answer) == {"a": 0.2, "b": 0.7}
    assert asked == [Rerank(question="q", documents=("a", "b"))]


def test_the_judge_is_asked_for_each_document_once() -> None:
    asked: list[Judge] = []

    def answer(call: Call) -> Reply:
        assert isinstance(call, Judge)
        asked.append(call)
        return UNREADABLE if call.document == "b" else Relevance(probability=0.7, text="yes", labels={"yes": 0.7})

    assert relevance_of("aba", "yes-no", answer) == {"a": 0.7, "b": UNREADABLE}
    assert [(call.rubric, call.document, call.question) for call in asked] == [
        ("relevance-yes-no", "a", "q"),
        ("relevance-yes-no", "b", "q"),
    ]
    assert all(call.logprobs and call.decoding and not call.decoding.temperature for call in asked)
    asked.clear()
    relevance_of("a", "rating", answer)
    assert [call.rubric for call in asked] == ["relevance"]


def test_a_failed_reranker_says_nothing_of_any_document() -> None:
    assert relevance_of("ab", "reranker", lambda _: GONE) == {"a": GONE, "b": GONE}


def test_a_reranker_that_gives_a_score_too_few_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        relevance_of("ab", "reranker", lambda _: Scored(scores=(0.5,)))


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
    again = make_ranked_trace(trace, rank_by_relevance({"a": GONE}, Params()))
    assert again == msgspec.structs.replace(trace, decisions=again.decisions)


def test_a_refused_question_has_no_answer_and_is_no_failure() -> None:
    outcome = make_refusal_outcome("no document was found", Trace())
    assert (outcome.answer, outcome.extraction, outcome.refusal) == (None, Extraction.REFUSED, "no document was found")
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
    known = dict(zip("abcdefgh", scores, strict=False))
    rated = [set(keep_above_floor(known, each).rated) for each in (low, high)]
    assert rated[1] <= rated[0]
