"""The critic loop: every row of document 004's decision table, and what the loop may never do."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Decoding, Generate, Judge, Retrieve, Write
from shared.params import CriticParams, Params
from shared.pipelines import registry
from shared.rag.critic import CriticAction, Round, RoundDecision, decide
from shared.replies import CallFailed, Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved
from shared.samples import Candidate, Decision, Item, Outcome, Sample
from tests.unit.shared.pipelines.test_pipelines import drive

QUESTION = "What is x?"
NEVER = Failure(kind=FailureKind.UNPARSED, detail="no single [[1]] to [[5]]")
GENERATE, REWRITE, CONTINUE = (
    RoundDecision(CriticAction.GENERATE),
    RoundDecision(CriticAction.REWRITE),
    RoundDecision(CriticAction.CONTINUE),
)
FORCED = RoundDecision(CriticAction.GENERATE, forced=True)
BETTER = "x better"
"""Another query; it is about the same thing."""
TWIN = "the twin"
LIBRARY = defaultdict(lambda: Document(problem="", text="t"), {TWIN: Document(problem="What is  X?", text="14")})


def page(*relevance: float | None) -> list[Candidate]:
    return [
        Candidate(document=str(n), rank=0, relevance=each, failure="unparsed" if each is None else None)
        for n, each in enumerate(relevance)
    ]


def after(attempt: int, relevant: int, *relevance: float | None, **params: Any) -> RoundDecision:
    return decide(Round(attempt, "q", page(*relevance), relevant), CriticParams(**params))


@pytest.mark.parametrize("aggregate", ["count", "mean"])
@pytest.mark.parametrize(
    ("row", "attempt", "relevant", "relevance", "expected"),
    [
        ("low relevance, too few documents, attempts left", 1, 0, (0.5, 0.5, 0.25), CONTINUE),
        ("the same with one relevant document", 2, 1, (0.75, 0.25, 0.5), CONTINUE),
        ("very low again, too few documents", 2, 0, (0.0, 0.25, 0.25), REWRITE),
        ("very low again, one relevant document from before", 2, 1, (0.0, 0.25, 0.25), REWRITE),
        ("high relevance, enough documents, first attempt", 1, 2, (0.75, 0.75, 0.5), GENERATE),
        ("high relevance, enough documents, last attempt", 3, 2, (0.75, 1.0, 1.0), GENERATE),
        ("low relevance, no attempts left", 3, 0, (0.5, 0.5, 0.25), FORCED),
        ("very low, no attempts left: no rewrite that nobody would use", 3, 0, (0.0, 0.0, 0.0), FORCED),
    ],
)
def test_every_row_of_the_decision_table(
    aggregate: Any, row: str, attempt: int, relevant: int, relevance: Sequence[float], expected: RoundDecision
) -> None:
    assert after(attempt, relevant, *relevance, aggregate=aggregate) == expected, row


@pytest.mark.parametrize(
    ("gap", "attempt", "relevant", "relevance", "expected"),
    [
        ("high relevance, too few documents", 1, 1, (0.75,), CONTINUE),
        ("high relevance, too few documents, no attempts left", 3, 1, (0.75,), FORCED),
        ("very low, but for the first time", 1, 0, (0.0, 0.0, 0.0), CONTINUE),
        ("nothing found", 1, 0, (), REWRITE),
        ("nothing found again", 2, 0, (), REWRITE),
        ("nothing found, no attempts left", 3, 0, (), FORCED),
        ("not one rating", 2, 0, (None, None), CONTINUE),
        ("not one rating, no attempts left", 3, 0, (None, None), FORCED),
        ("one rating, very low", 2, 0, (None, 0.0), REWRITE),
        ("one rating, not so low", 2, 0, (None, 0.5), CONTINUE),
    ],
)
def test_what_the_table_leaves_open_is_decided(
    gap: str, attempt: int, relevant: int, relevance: Sequence[float | None], expected: RoundDecision
) -> None:
    assert after(attempt, relevant, *relevance) == expected, gap


def test_a_bad_document_does_not_block_good_ones() -> None:
    assert after(1, 2, 0.75, 0.75, 0.0) == GENERATE
    assert after(1, 2, 0.75, 0.75, 0.0, aggregate="mean") == CONTINUE


def test_a_very_low_page_does_not_undo_what_was_enough() -> None:
    assert after(2, 2, 0.0, 0.0, 0.0) == GENERATE
    assert after(2, 2, 0.0, 0.0, 0.0, aggregate="mean") == REWRITE


def test_thresholds_are_reached_by_equality() -> None:
    assert after(1, 2, 0.6, 0.6, aggregate="mean") == GENERATE
    assert after(1, 2, 0.6, 0.59, aggregate="mean") == CONTINUE
    assert after(2, 0, 0.3, 0.3) == CONTINUE
    assert after(2, 0, 0.29, 0.3) == REWRITE


@pytest.mark.parametrize(("attempt", "expected"), [(1, CONTINUE), (2, CONTINUE), (3, REWRITE)])
def test_a_query_may_be_rewritten_from_an_attempt_on(attempt: int, expected: RoundDecision) -> None:
    assert after(attempt, 0, 0.0, rewrite_from=3, attempts=5) == expected


@given(
    st.integers(1, 6), st.integers(0, 6), st.lists(st.none() | st.sampled_from([0, 0.25, 0.5, 0.75, 1.0]), max_size=4),
    st.builds(CriticParams, attempts=st.integers(1, 5), min_documents=st.integers(1, 4),
              aggregate=st.sampled_from(["count", "mean"]), rewrite_from=st.integers(1, 4)),
)  # fmt: skip
def test_generate_comes_before_rewrite_and_rewrite_before_continue(
    attempt: int, relevant: int, relevance: list[float | None], params: CriticParams
) -> None:
    round_ = Round(attempt, "q", page(*relevance), relevant)
    verdict = decide(round_, params)
    known = [each for each in relevance if each is not None]
    mean = sum(known) / len(known) if known else None
    high = params.aggregate == "count" or (mean is not None and mean >= params.generate)
    if relevant >= params.min_documents and high:
        assert verdict == GENERATE
    elif attempt >= params.attempts:
        assert verdict == FORCED
    elif not relevance or (mean is not None and mean < params.rewrite and attempt >= params.rewrite_from):
        assert verdict == REWRITE
    else:
        assert verdict == CONTINUE


@pytest.mark.parametrize(
    ("aggregate", "score"), [("mean", 0.5), ("minimum", 0.25), ("maximum", 0.75), ("weighted", 13 / 22)]
)
def test_a_page_is_one_figure_by_its_aggregate(aggregate: str, score: float) -> None:
    assert Round(1, "q", page(0.75, 0.5, 0.25), 0).score(aggregate) == pytest.approx(score)
    assert Round(1, "q", page(None, None), 0).score(aggregate) is None


def test_a_failed_rating_counts_in_no_aggregate() -> None:
    found = Round(1, "q", page(None, 0.5, 1.0), 0)
    assert (found.score("minimum"), found.score("maximum")) == (0.5, 1.0)
    assert found.score("weighted") == pytest.approx((0.5 / 2 + 1 / 3) / (1 / 2 + 1 / 3))


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("count", GENERATE), ("mean", CONTINUE), ("minimum", REWRITE), ("maximum", GENERATE), ("weighted", GENERATE)],
)
def test_the_aggregate_decides(aggregate: str, expected: RoundDecision) -> None:
    assert after(2, 2, 0.75, 0.75, 0.0, aggregate=aggregate) == expected


@pytest.mark.parametrize("aggregate", ["minimum", "maximum", "weighted"])
def test_the_trace_has_the_figure_that_decided(aggregate: Any) -> None:
    params = CriticParams(aggregate=aggregate)
    found = Round(1, "q", page(0.75, 0.5), 0)
    assert found.decision(GENERATE, params).detail[aggregate] == found.score(aggregate)


def test_a_critic_may_reply_in_json() -> None:
    said = {
        "a": '{"relevance_score": 0.9, "reasoning": "It has the answer."}',
        "b": "I cannot say.",
        "c": '{"relevance_score": 0.65, "reasoning": "It helps."}',
    }
    corpus = Corpus({QUESTION: ["a", "b", "c"]}, {})

    def answer(call: Call) -> Reply:
        if isinstance(call, Write) and call.template == "critic":
            return Generated(text=said[call.documents[0]])
        return corpus(call)

    outcome, asked = run(answer, reply="json")
    critiques = [call for step in asked for call in step if isinstance(call, Write)]
    decoding = Decoding(temperature=0.0, max_tokens=100)
    assert critiques[0] == Write(
        template="critic", decoding=decoding, slots={"question": QUESTION}, documents=("a",)
    )  # fmt: skip
    assert not any(isinstance(call, Judge) for step in asked for call in step)
    assert outcome.context == ("a", "c")
    decision = outcome.trace.decisions[0]
    assert (decision.action, decision.detail["ratings"]) == ("generate", ["0.9", "unparsed", "0.65"])
    assert decision.detail["reasons"] == ["It has the answer.", "", "It helps."]
    assert [each.failure for each in outcome.trace.candidates] == [None, None, "unparsed"]


def test_a_critic_whose_json_nobody_can_read_is_a_fallback() -> None:
    corpus = Corpus({QUESTION: ["a", "b", "c"]}, {})

    def answer(call: Call) -> Reply:
        return Generated(text="I cannot say.") if isinstance(call, Write) else corpus(call)

    outcome, _ = run(answer, reply="json")
    assert outcome.trace.unscored
    assert outcome.trace.decisions[0].fallback == "unparsed"


Ratings = Mapping[str, int | Failure]


class Corpus:
    def __init__(
        self,
        found: Mapping[str, Sequence[str]],
        ratings: Ratings,
        rewrites: Sequence[Reply] = (),
        drops: Sequence[str] = (),
    ) -> None:
        self.found = found
        self.ratings = ratings
        self.rewrites = list(rewrites)
        self.drops = drops
        """What is a near-duplicate of the question."""

    def __call__(self, call: Call) -> Reply:
        match call:
            case Retrieve():
                return self.search(call)
            case Judge():
                given = self.ratings.get(call.document, 1)
                return given if isinstance(given, Failure) else Rated(rating=given, text=f"[[{given}]]")
            case Write():
                return self.rewrites.pop(0)
            case _:
                return Generated(text=r"So \boxed{14}.")

    def search(self, call: Retrieve) -> Retrieved:
        documents = [
            each for each in self.found.get(call.question, ()) if each not in self.drops or call.question != QUESTION
        ]
        listed = list(enumerate(documents, start=1))[call.skip : call.skip + call.k]
        hits = tuple(Hit(document=document, rank=rank, score=1 / rank) for rank, document in listed)
        return Retrieved(hits=hits, duplicates=tuple(self.drops) if call.question == QUESTION else ())


def run(answer: Callable[[Call], Reply], size: int = 5, **critic: Any) -> tuple[Outcome, list[list[Call]]]:
    params = Params(context_size=size, duplicates="same-words", critic=msgspec.convert(critic, CriticParams))
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    result: tuple[Outcome, list[list[Call]]] = drive(registry.get("critic-loop").run(sample, params, LIBRARY), answer)
    return result


def kinds(asked: list[list[Call]]) -> list[str]:
    return [type(step[0]).__name__.lower() for step in asked]


def of(kind: type, asked: list[list[Call]]) -> list[Any]:
    return [call for step in asked for call in step if isinstance(call, kind)]


def verdicts(outcome: Outcome) -> list[tuple[int, str, float | None]]:
    return [
        (each.round, each.action, each.detail["mean"])  # type: ignore[misc]
        for each in outcome.trace.decisions
        if each.stage == "critic"
    ]


def written(text: str) -> Generated:
    return Generated(text=text)


def test_enough_on_the_first_page_generates_at_once() -> None:
    outcome, asked = run(Corpus({QUESTION: "abc"}, {"a": 4, "b": 2, "c": 5}))
    assert kinds(asked) == ["retrieve", "judge", "generate"]
    assert verdicts(outcome) == [(1, "generate", pytest.approx((0.75 + 0.25 + 1) / 3))]
    assert outcome.context == ("c", "a") == of(Generate, asked)[0].context
    assert [(each.document, each.rank, each.relevance) for each in outcome.trace.candidates] == [
        ("c", 1, 1.0), ("a", 2, 0.75), ("b", 3, 0.25),
    ]  # fmt: skip
    assert outcome.answer == "14"


def test_both_indexes_are_asked_for_a_page() -> None:
    _, asked = run(Corpus({QUESTION: "abcdef"}, {"a": 5, "b": 5}))
    assert asked[0] == [Retrieve(question=QUESTION, index=index, k=3) for index in ("dense", "sparse")]
    assert [call.document for call in asked[1] if isinstance(call, Judge)] == ["a", "b", "c"]


def test_what_a_page_had_no_room_for_comes_first_on_the_next() -> None:
    dense, sparse = Corpus({QUESTION: "abcdef"}, {}), Corpus({QUESTION: "auvwxy"}, {})
    outcome, asked = run(
        lambda call: sparse(call) if isinstance(call, Retrieve) and call.index == "sparse" else dense(call), attempts=2
    )
    judged = [[call.document for call in step if isinstance(call, Judge)] for step in asked[1::2]][:2]
    assert judged == [["a", "b", "u"], ["c", "v", "d"]]
    second = outcome.trace.candidates[1]
    assert (second.document, second.dense_rank, second.sparse_rank) == ("b", 2, None)


def test_going_on_goes_deeper() -> None:
    outcome, asked = run(Corpus({QUESTION: "abcdefghi"}, {"a": 3, "b": 3, "c": 3, "d": 5, "f": 4}))
    assert [call.skip for call in of(Retrieve, asked)] == [0, 0, 3, 3]
    assert [call.document for call in of(Judge, asked)] == list("abcdef")
    assert [action for _, action, _ in verdicts(outcome)] == ["continue", "generate"]
    assert outcome.context == ("d", "f")


def test_relevant_documents_of_all_rounds_are_counted() -> None:
    outcome, _ = run(Corpus({QUESTION: "abcdef"}, {"b": 4, "a": 3, "c": 3, "e": 5}))
    assert [each.detail["relevant"] for each in outcome.trace.decisions] == [1, 2]
    assert outcome.context == ("e", "b")


def test_a_query_that_finds_nothing_useful_is_rewritten() -> None:
    corpus = Corpus({QUESTION: "abcdef", BETTER: "xyz"}, {"x": 5, "y": 4}, [written(f"  Query: {BETTER} \nand more")])
    outcome, asked = run(corpus)
    assert kinds(asked) == ["retrieve", "judge", "retrieve", "judge", "write", "retrieve", "judge", "generate"]
    assert [(call.question, call.skip) for call in of(Retrieve, asked)[::2]] == [
        (QUESTION, 0),
        (QUESTION, 3),
        (BETTER, 0),
    ]
    assert {call.question for call in of(Judge, asked)} == {QUESTION}
    assert [action for _, action, _ in verdicts(outcome)] == ["continue", "rewrite", "generate"]
    rewriting = next(each for each in outcome.trace.decisions if each.stage == "rewrite")
    assert rewriting == Decision(stage="rewrite", action="written", round=2, detail={"queries": [BETTER]})
    assert outcome.context == ("x", "y")


def test_the_rewriter_sees_the_question_and_the_best_of_what_was_found() -> None:
    ratings = {"a": 2, "b": 1, "c": 3, "d": 1, "e": 1, "f": 1}
    _, asked = run(Corpus({QUESTION: "abcdef"}, ratings, [written(BETTER)]))
    decoding = Decoding(temperature=0.0, max_tokens=100)
    slots = {"question": QUESTION}
    assert of(Write, asked) == [Write(template="rewrite-again", decoding=decoding, slots=slots, documents=("c",))]


def test_a_critic_that_accumulates_is_shown_what_earlier_rounds_found_relevant() -> None:
    ratings = {"a": 4, "b": 5, "d": 5}
    _, plain = run(Corpus({QUESTION: "abcdef"}, ratings), min_documents=3)
    outcome, asked = run(Corpus({QUESTION: "abcdef"}, ratings), min_documents=3, accumulate=True)
    assert of(Judge, asked)[:3] == of(Judge, plain)[:3]
    assert of(Judge, asked)[3:] == [
        Judge(rubric="relevance-added", document=each, documents=("b", "a"), question=QUESTION) for each in "def"
    ]
    assert outcome.context == ("b", "d", "a")


def test_a_critic_in_json_that_accumulates_judges_the_last_document() -> None:
    def answer(call: Call) -> Reply:
        if isinstance(call, Write):
            return Generated(text=f'{{"relevance_score": {0.9 if call.documents[-1] in "ad" else 0.5}}}')
        return Corpus({QUESTION: "abcdef"}, {})(call)

    _, asked = run(answer, reply="json", accumulate=True)
    critiques = [(call.template, call.documents) for call in of(Write, asked)]
    assert critiques[:3] == [("critic", ("a",)), ("critic", ("b",)), ("critic", ("c",))]
    assert critiques[3:] == [("critic-added", ("a", "d")), ("critic-added", ("a", "e")), ("critic-added", ("a", "f"))]


def test_no_more_than_a_page_of_relevant_documents_is_shown_again() -> None:
    corpus = Corpus({QUESTION: "abcdefghi"}, dict.fromkeys("abcdef", 5))
    _, asked = run(corpus, min_documents=9, accumulate=True)
    assert [call.documents for call in of(Judge, asked)[6:]] == [("a", "b", "c")] * 3


def test_a_loop_that_may_stop_does_so_where_a_rewritten_query_finds_nothing_new() -> None:
    def make_corpus() -> Corpus:
        return Corpus(
            {QUESTION: "abc", BETTER: "cab", "x again": "xyz"}, {"x": 5}, [written(BETTER), written("x again")]
        )

    outcome, asked = run(make_corpus(), rewrite_from=1, attempts=4, stop=True)
    assert kinds(asked) == ["retrieve", "judge", "write", "retrieve", "generate"]
    last = outcome.trace.decisions[-1]
    assert (last.action, last.detail["forced"]) == ("generate", True)
    assert last.detail["reason"] == "the rewritten query found no new document"
    outcome, asked = run(make_corpus(), rewrite_from=1, attempts=4)
    assert kinds(asked)[:5] == ["retrieve", "judge", "write", "retrieve", "write"]
    assert all("reason" not in each.detail for each in outcome.trace.decisions)


def test_a_rewritten_query_that_found_something_is_not_useless_on_its_next_page() -> None:
    corpus = Corpus(
        {QUESTION: "abc", BETTER: "xyz", "x again": "w"},
        {"x": 3, "y": 3, "z": 3, "w": 5},
        [written(BETTER), written("x again")],
    )
    outcome, _ = run(corpus, rewrite_from=1, attempts=4, stop=True)
    assert [action for _, action, _ in verdicts(outcome)] == ["rewrite", "continue", "rewrite", "generate"]


def test_a_rewriter_is_not_shown_more_than_a_page_of_many_pages() -> None:
    ratings = {"a": 3, "b": 3, "c": 3, "d": 3, "e": 1, "f": 1}
    _, asked = run(Corpus({QUESTION: "abcdef"}, ratings, [written(BETTER)]))
    assert of(Write, asked)[0].documents == ("a", "b", "c")


def test_no_rewrite_is_paid_for_after_the_last_attempt() -> None:
    outcome, asked = run(Corpus({QUESTION: "abcdef"}, {}), attempts=2)
    assert not of(Write, asked)
    assert [action for _, action, _ in verdicts(outcome)] == ["continue", "generate"]
    assert outcome.trace.decisions[-1].detail["forced"] is True


def test_a_new_query_that_finds_known_documents_shows_the_critic_only_new_ones() -> None:
    corpus = Corpus({QUESTION: "abcdef", BETTER: "abxcy"}, {"a": 4, "x": 5}, [written(BETTER)])
    outcome, asked = run(corpus, rewrite_from=1, rewrite=0.5)
    judged = [call.document for call in of(Judge, asked)]
    assert judged == ["a", "b", "c", "x"]
    assert len(set(judged)) == len(judged)
    assert outcome.context == ("x", "a")


def test_the_same_query_written_again_goes_deeper() -> None:
    _, asked = run(Corpus({QUESTION: "abcdefghi"}, {}, [written(QUESTION)]))
    assert [call.skip for call in of(Retrieve, asked)[::2]] == [0, 3, 6]


@pytest.mark.parametrize(
    ("reply", "kind"), [(Failure(kind=FailureKind.TIMEOUT), "timeout"), (written(" \n "), "unparsed")]
)
def test_where_no_query_is_written_the_old_one_goes_deeper(reply: Reply, kind: str) -> None:
    outcome, asked = run(Corpus({QUESTION: "abcdefghi"}, {}, [reply]))
    assert [(call.question, call.skip) for call in of(Retrieve, asked)[::2]] == [
        (QUESTION, 0),
        (QUESTION, 3),
        (QUESTION, 6),
    ]
    kept = next(each for each in outcome.trace.decisions if each.stage == "rewrite")
    assert (kept.action, kept.round, kept.fallback) == ("original", 2, kind)


def test_a_query_that_finds_nothing_is_rewritten_at_once() -> None:
    outcome, asked = run(Corpus({BETTER: "xyz"}, {"x": 5, "y": 5}, [written(BETTER)]))
    assert kinds(asked) == ["retrieve", "write", "retrieve", "judge", "generate"]
    assert verdicts(outcome)[0] == (1, "rewrite", None)
    assert outcome.context == ("x", "y")


def test_an_empty_corpus_is_answered_without_documents() -> None:
    outcome, asked = run(Corpus({}, {}, [written("x b"), written("x c")]))
    assert kinds(asked) == ["retrieve", "write", "retrieve", "write", "retrieve", "generate"]
    assert (outcome.context, outcome.answer, outcome.trace.unscored) == ((), "14", False)
    assert outcome.trace.decisions[-1].detail["forced"] is True


def test_forced_to_generate_it_takes_the_relevant_documents() -> None:
    outcome, _ = run(Corpus({QUESTION: "abc"}, {"a": 3, "b": 4, "c": 3}), attempts=1)
    assert outcome.context == ("b",)
    assert outcome.trace.decisions[-1].detail["forced"] is True


def test_forced_without_a_relevant_document_it_takes_the_best_ones() -> None:
    outcome, _ = run(Corpus({QUESTION: "abc"}, {"a": 1, "b": 3, "c": 1}), size=2, attempts=1)
    assert outcome.context == ("b", "a")


def test_a_document_without_a_rating_comes_after_the_worst_rated() -> None:
    outcome, _ = run(Corpus({QUESTION: "abc"}, {"a": NEVER, "b": 1, "c": 1}), attempts=1)
    assert outcome.context == ("b", "c", "a")


def test_a_document_is_relevant_from_the_threshold_on() -> None:
    outcome, asked = run(Corpus({QUESTION: "abc"}, {"a": 4, "b": 4, "c": 3}), generate=0.75)
    assert (kinds(asked), outcome.context) == (["retrieve", "judge", "generate"], ("a", "b"))


def test_a_failed_rating_is_no_low_one() -> None:
    outcome, _ = run(Corpus({QUESTION: "abc"}, {"a": NEVER, "b": 5, "c": 4}))
    assert verdicts(outcome) == [(1, "generate", pytest.approx(0.875))]
    [decision] = outcome.trace.decisions
    assert (decision.detail["ratings"], decision.fallback) == (["unparsed", "1.0", "0.75"], None)
    last = outcome.trace.candidates[-1]
    assert (last.document, last.relevance, last.score, last.failure) == ("a", None, None, "unparsed")


def test_a_critic_that_never_rates_takes_what_was_found_in_its_order() -> None:
    outcome, asked = run(Corpus({QUESTION: "abcdefghi"}, dict.fromkeys("abcdefghi", NEVER)), size=2)
    assert kinds(asked) == [*["retrieve", "judge"] * 3, "generate"]
    assert [each.fallback for each in outcome.trace.decisions] == ["unparsed"] * 3
    assert outcome.trace.unscored
    assert outcome.context == ("a", "b")


def test_in_a_job_of_release_0_1_a_twin_that_only_another_query_finds_is_dropped() -> None:
    corpus = Corpus({QUESTION: "b", BETTER: [TWIN, "x", "y"]}, {TWIN: 5, "x": 5, "y": 5}, [written(BETTER)])
    outcome, asked = run(corpus, rewrite_from=1)
    assert TWIN not in [call.document for call in of(Judge, asked)]
    assert (outcome.context, outcome.trace.duplicates) == (("x", "y"), (TWIN,))


def test_what_the_questions_own_search_drops_stays_out() -> None:
    corpus = Corpus({QUESTION: "ab", BETTER: "axy"}, {"a": 5, "x": 5, "y": 5}, [written(BETTER)], drops="a")
    outcome, asked = run(corpus, rewrite_from=1)
    assert "a" not in [call.document for call in of(Judge, asked)]
    assert (outcome.context, outcome.trace.duplicates) == (("x", "y"), ("a",))


@pytest.mark.parametrize(("lost", "left"), [("sparse", "dense"), ("dense", "sparse")])
def test_one_index_is_enough(lost: str, left: str) -> None:
    corpus = Corpus({QUESTION: "abc"}, {"a": 5, "b": 5})
    failure = Failure(kind=FailureKind.CONNECTION)
    outcome, _ = run(lambda call: failure if isinstance(call, Retrieve) and call.index == lost else corpus(call))
    alone = outcome.trace.decisions[0]
    assert (alone.stage, alone.action, alone.round, alone.fallback) == ("retrieve", f"{left} alone", 1, "connection")
    first = outcome.trace.candidates[0]
    assert outcome.context == ("a", "b")
    assert (getattr(first, f"{left}_rank"), getattr(first, f"{lost}_rank")) == (1, None)


@pytest.mark.parametrize("kind", [Retrieve, Generate])
def test_without_any_search_or_an_answer_the_sample_fails(kind: type) -> None:
    corpus = Corpus({QUESTION: "abc"}, {"a": 5, "b": 5})
    lost = Failure(kind=FailureKind.TIMEOUT)
    with pytest.raises(CallFailed, match="timeout"):
        run(lambda call: lost if isinstance(call, kind) else corpus(call))


def test_a_chinese_question_is_judged_and_rewritten_in_chinese() -> None:
    sample = Sample(item=Item(ordinal=0, question="求 $x$ 的值是多少？"))
    _, asked = drive(
        registry.get("critic-loop").run(sample, Params(), LIBRARY),
        Corpus({"x 的值": "xyz"}, {}, [written("x 的值")] * 2),
    )
    assert {call.template for call in of(Write, asked)} == {"rewrite-again-zh"}
    assert {call.rubric for call in of(Judge, asked)} == {"relevance-zh"}


DOCUMENTS = [f"d{n}" for n in range(12)]
RATINGS = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(1, 5) | st.just(NEVER))
LISTS = st.dictionaries(
    st.sampled_from([QUESTION, "x b", "x c"]), st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=12)
)
WRITTEN = st.sampled_from(["x b", "x c", QUESTION, " "]).map(written) | st.just(Failure(kind=FailureKind.TIMEOUT))


@given(
    LISTS, RATINGS, st.lists(WRITTEN, min_size=20, max_size=20),
    st.fixed_dictionaries({
        "attempts": st.integers(1, 6), "min_documents": st.integers(1, 4), "k": st.integers(1, 4),
        "rewrite_from": st.integers(1, 3), "aggregate": st.sampled_from(["count", "mean"]),
        "generate": st.sampled_from([0.0, 0.3, 0.6, 1.0]), "rewrite": st.sampled_from([0.0, 0.3, 1.0]),
    }),
)  # fmt: skip
def test_the_budget_holds_whatever_the_critic_says(
    found: dict[str, list[str]], ratings: Ratings, rewrites: list[Reply], critic: dict[str, Any]
) -> None:
    outcome, asked = run(Corpus(found, ratings, rewrites), **critic)
    searches, judged = of(Retrieve, asked), of(Judge, asked)
    attempts = len(searches) // 2
    assert 1 <= attempts <= critic["attempts"]
    assert len(of(Write, asked)) <= critic["attempts"] - 1
    assert len({(call.question, call.skip) for call in searches}) == attempts
    assert len({call.document for call in judged}) == len(judged) <= attempts * critic["k"]
    assert {call.question for call in judged} <= {QUESTION}
    assert kinds(asked)[-1] == "generate"
    rounds = [each for each in outcome.trace.decisions if each.stage == "critic"]
    assert [each.round for each in rounds] == list(range(1, attempts + 1))
    assert [each.action for each in rounds].index("generate") == attempts - 1
    assert set(outcome.context) <= {call.document for call in judged}
    assert [each.rank for each in outcome.trace.candidates] == list(range(1, len(judged) + 1))
    again = run(Corpus(found, ratings, list(rewrites)), **critic)
    assert canonical.encode(again) == canonical.encode((outcome, asked))
