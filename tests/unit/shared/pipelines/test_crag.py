"""The crag pipeline, alone and within the enhanced one: what it asks, what it makes of replies, every way to fail."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Generate, Judge, Rerank, Retrieve, Write
from shared.params import CragParams, Params
from shared.pipelines import registry
from shared.replies import CallFailed, Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved, Scored
from shared.samples import Decision, Item, Outcome, Sample
from tests.unit.shared.pipelines.test_pipelines import drive

# The crag pipeline with scripted replies: what it asks, what it makes of the replies, and every way to fail.

QUESTION = "What is the area of the triangle?"
GONE = Failure(kind=FailureKind.CONNECTION, detail="gone")
TEXTS = {
    "area": "The area of the triangle is half of its base times its height.",
    "base": "The base of a triangle is one of its three sides.",
    "music": "Some people like to listen to loud music.",
    "same": "Some people like to listen to loud music!",
    "new": "A triangle with a right angle has an area of half the product of its legs.",
    "twin": "It is six.",
    "far": "Heron found the area of a triangle from its three sides.",
    "poem": "A poem has verses and every verse has feet.",
}
DOCUMENTS = {name: Document(problem=QUESTION if name == "twin" else "", text=text) for name, text in TEXTS.items()}
HASHES = {name: document.hash for name, document in DOCUMENTS.items()}
NAMES = {hash_: name for name, hash_ in HASHES.items()}
LIBRARY = {document.hash: document for document in DOCUMENTS.values()}
Answer = Callable[[Call], Reply]


def listed(*names: str) -> Retrieved:
    hits = (Hit(document=HASHES[name], rank=rank, score=1 - rank / 10) for rank, name in enumerate(names, start=1))
    return Retrieved(hits=tuple(hits), duplicates=("dup",))


def world(ratings: dict[str, int], **lists: tuple[str, ...]) -> Answer:
    """Both indexes have music and base for the question, new and twin for another query; the fallback far and poem.

    Documents without a rating are rated 1.
    """

    def answer(call: Call) -> Reply:
        match call:
            case Retrieve():
                rewritten = "" if call.question == QUESTION else "_again"
                return listed(*{**LISTS, **lists}.get(f"{call.index}{rewritten}", ()))
            case Judge():
                return Rated(rating=ratings.get(NAMES[call.document], 1), text="")
            case Rerank():
                return Scored(scores=tuple((ratings.get(NAMES[each], 1) - 1) / 4 for each in call.documents))
            case Write():
                return Generated(text="area, triangle" if call.template == "keywords" else "area by base and height")
            case _:
                return Generated(text=r"It is \boxed{6}.")

    return answer


LISTS: dict[str, tuple[str, ...]] = {
    "dense": ("music", "base"),
    "sparse": ("base", "same"),
    "dense_again": ("twin", "new", "base"),
    "sparse_again": ("new",),
    "fallback_again": ("far", "poem"),
    "fallback": ("poem", "far"),
}


def failing(kind: type, answer: Answer, *, index: str = "") -> Answer:
    return lambda call: GONE if isinstance(call, kind) and getattr(call, "index", "") in (index, "") else answer(call)


def run(answer: Answer, *, size: int = 2, **crag: Any) -> tuple[Outcome, list[list[Call]]]:
    params = Params(
        context_size=size, duplicates="same-words", crag=msgspec.convert({"fallback": "other", **crag}, CragParams)
    )
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    return drive(registry.get("crag").run(sample, params, LIBRARY), answer)


def shape(asked: list[list[Call]]) -> list[str]:
    return [f"{type(step[0]).__name__} {len(step)}" for step in asked]


def decided(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


def context(outcome: Outcome) -> list[str]:
    return [NAMES[document] for document in outcome.context]


CORRECT = {"base": 4, "music": 2}
AMBIGUOUS = {"base": 2, "far": 5}
INCORRECT = {"far": 4}


def test_a_correct_list_is_refined_and_nothing_else_is_searched() -> None:
    outcome, asked = run(world(CORRECT))
    assert shape(asked) == ["Retrieve 2", "Judge 3", "Generate 1"]
    assert asked[1] == [
        Judge(rubric="relevance", document=HASHES[name], question=QUESTION) for name in ("base", "music", "same")
    ]
    assert decided(outcome, "crag")[0].action == "correct"
    assert context(outcome) == ["base", "music"]
    assert [NAMES[each.document] for each in outcome.trace.candidates] == ["base", "music", "same"]
    assert [each.relevance for each in outcome.trace.candidates] == [0.75, 0.25, 0.0]
    assert outcome.answer == "6"


def test_an_ambiguous_list_is_completed_from_the_fallback_corpus() -> None:
    outcome, asked = run(world(AMBIGUOUS))
    assert shape(asked) == ["Retrieve 2", "Judge 3", "Write 1", "Retrieve 1", "Judge 2", "Generate 1"]
    assert isinstance(asked[2][0], Write)
    assert (asked[2][0].template, asked[2][0].slots) == ("keywords", {"question": QUESTION})
    assert asked[3] == [Retrieve(question="area, triangle", index="fallback", k=10)]
    assert context(outcome) == ["base", "far"]
    assert decided(outcome, "external") == [
        Decision(stage="external", action="searched", detail={"new": 2.0})
    ]  # fmt: skip
    assert decided(outcome, "keywords")[0].detail == {"queries": ["area, triangle"]}
    assert [NAMES[each.document] for each in outcome.trace.candidates] == ["base", "music", "same", "far", "poem"]
    assert outcome.trace.candidates[3].paths == {"fallback": 1}


def test_an_incorrect_list_is_replaced() -> None:
    outcome, asked = run(world(INCORRECT), rounds=0)
    assert decided(outcome, "crag")[-1].action == "incorrect"
    assert context(outcome) == ["far"]
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].context == (HASHES["far"],)
    assert [NAMES[each.document] for each in outcome.trace.candidates] == ["far", "poem", "base", "music", "same"]
    assert [each.rank for each in outcome.trace.candidates] == [1, 2, 3, 4, 5]


def test_where_nothing_is_relevant_anywhere_the_question_goes_without_documents() -> None:
    outcome, asked = run(world({}))
    assert (outcome.context, outcome.answer) == ((), "6")
    assert asked[-1] == [Generate(template="cot", question=QUESTION)]
    assert decided(outcome, "strips")[0].action == "none"


def test_without_a_fallback_corpus_nothing_else_is_searched() -> None:
    ambiguous, asked = run(world(AMBIGUOUS), fallback="")
    assert shape(asked) == ["Retrieve 2", "Judge 3", "Generate 1"]
    assert context(ambiguous) == ["base"]
    incorrect, _ = run(world(INCORRECT), fallback="", size=1)
    assert context(incorrect) == ["base"]
    assert decided(incorrect, "crag")[-1].action == "incorrect"
    assert decided(incorrect, "strips")[0].action == "best"
    for outcome in (ambiguous, incorrect):
        assert decided(outcome, "external") == [
            Decision(stage="external", action="none", fallback="not_configured")
        ]  # fmt: skip


def test_an_incorrect_list_is_refined() -> None:
    outcome, asked = run(world({"new": 5}), fallback="", diversity=0.0)
    assert shape(asked) == ["Retrieve 2", "Judge 3", "Write 1", "Retrieve 2", "Judge 1", "Generate 1"]
    assert [(each.action, each.round) for each in decided(outcome, "crag")] == [("incorrect", 0), ("correct", 1)]
    assert context(outcome) == ["new"]


def test_an_incorrect_list_is_refined_so_often_at_most() -> None:
    outcome, _ = run(world(INCORRECT), rounds=2)
    assert [each.round for each in decided(outcome, "crag")] == [0, 1, 2]
    assert context(outcome) == ["far"]


def test_judge_calls_come_before_the_one_generation() -> None:
    for ratings in (CORRECT, AMBIGUOUS, INCORRECT, {}):
        _, asked = run(world(ratings), diversity=1.0)
        kinds = [type(call) for step in asked for call in step]
        assert kinds.count(Generate) == 1
        assert kinds[-1] is Generate


def test_a_list_that_says_the_same_again_is_refined_by_a_rewritten_query() -> None:
    outcome, asked = run(world({"base": 2, "new": 5}), diversity=1.0)
    assert shape(asked) == ["Retrieve 2", "Judge 3", "Write 1", "Retrieve 2", "Judge 1", "Generate 1"]
    assert isinstance(asked[2][0], Write)
    assert (asked[2][0].template, asked[2][0].documents) == ("rewrite", ())
    assert [(call.question, call.skip) for call in asked[3] if isinstance(call, Retrieve)] == [
        ("area by base and height", 0)
    ] * 2
    assert asked[4] == [Judge(rubric="relevance", document=HASHES["new"], question=QUESTION)]
    assert [(each.action, each.round) for each in decided(outcome, "crag")] == [("ambiguous", 0), ("correct", 1)]
    assert decided(outcome, "refine") == [
        Decision(stage="refine", action="rewritten", round=1, detail={"new": 1.0})
    ]  # fmt: skip
    assert context(outcome) == ["base", "new"]
    assert outcome.trace.duplicates == ("dup", HASHES["twin"])
    assert outcome.trace.candidates[0].paths == {"dense 2": 2, "sparse 2": 1}


def test_a_second_round_asks_for_another_angle() -> None:
    outcome, asked = run(world(AMBIGUOUS), diversity=1.0, rounds=2)
    writes = [call for step in asked for call in step if isinstance(call, Write)]
    assert [call.template for call in writes] == ["rewrite", "rewrite-again", "keywords"]
    assert [NAMES[each] for each in writes[1].documents] == ["base", "music"]
    assert [each.round for each in decided(outcome, "crag")] == [0, 1, 2]
    assert context(outcome) == ["base", "far"]


def test_a_correct_list_is_not_searched_for_again() -> None:
    assert not decided(run(world(CORRECT), diversity=1.0)[0], "refine")


def test_a_diverse_list_is_not_refined() -> None:
    assert not decided(run(world(AMBIGUOUS), diversity=0.0)[0], "refine")
    assert not decided(run(world(AMBIGUOUS), diversity=1.0, rounds=0)[0], "refine")


def test_without_a_rewritten_query_the_search_goes_deeper() -> None:
    outcome, asked = run(failing(Write, world(AMBIGUOUS)), diversity=1.0, rounds=2)
    pages = [call for step in asked for call in step if isinstance(call, Retrieve) and call.index == "dense"]
    assert [(call.question, call.skip) for call in pages] == [(QUESTION, 0), (QUESTION, 10), (QUESTION, 20)]
    assert [(each.action, each.round) for each in decided(outcome, "refine")] == [("deeper", 1), ("deeper", 2)]
    assert [(each.fallback, each.round) for each in decided(outcome, "rewrite")] == [
        ("connection", 1),
        ("connection", 2),
    ]


def test_without_keywords_the_question_is_searched_for() -> None:
    outcome, asked = run(failing(Write, world(AMBIGUOUS)))
    assert asked[3] == [Retrieve(question=QUESTION, index="fallback", k=10)]
    assert decided(outcome, "keywords")[0].fallback == "connection"


def test_without_bm25_vectors_are_enough() -> None:
    outcome, _ = run(failing(Retrieve, world({"base": 5}), index="sparse"))
    assert context(outcome) == ["base"]
    assert decided(outcome, "retrieve") == [
        Decision(stage="retrieve", action="without sparse", fallback="connection")
    ]  # fmt: skip


def test_without_vectors_there_is_no_answer() -> None:
    with pytest.raises(CallFailed, match="connection: gone"):
        run(failing(Retrieve, world(CORRECT), index="dense"))


def test_a_failed_fallback_corpus_leaves_what_there_is() -> None:
    outcome, _ = run(failing(Retrieve, world(AMBIGUOUS), index="fallback"))
    assert context(outcome) == ["base"]
    assert decided(outcome, "retrieve")[0].action == "without fallback"


def test_a_failed_search_in_a_round_leaves_what_there_is() -> None:
    answer = world(AMBIGUOUS)
    outcome, _ = run(
        lambda call: (
            GONE if isinstance(call, Retrieve) and call.question == "area by base and height" else answer(call)
        ),
        diversity=1.0,
        rounds=1,
    )
    assert context(outcome) == ["base", "far"]
    assert [each.action for each in decided(outcome, "retrieve")] == ["without dense 2", "without sparse 2"]


@pytest.mark.parametrize(("evaluator", "kind"), [("judge", Judge), ("reranker", Rerank)])
def test_a_failed_evaluation_is_replaced_by_similarity_with_its_default_thresholds(evaluator: str, kind: type) -> None:
    shipped = {"upper": 0.66, "lower": 0.54}
    outcome, _ = run(failing(kind, world({})), evaluator=evaluator, upper=0.0, lower=0.0, similarity=shipped)
    first = decided(outcome, "crag")[0]
    assert (first.fallback, first.detail["evaluator"], first.action) == ("connection", "similarity", "correct")
    assert first.detail["upper"] != 0.0
    assert context(outcome) == ["base", "music"]


def test_without_thresholds_of_its_own_an_embedders_lists_are_ambiguous() -> None:
    outcome, _ = run(failing(Judge, world({})), rounds=0)
    first = decided(outcome, "crag")[0]
    assert (first.detail["evaluator"], first.action, first.detail["upper"]) == ("similarity", "ambiguous", None)
    assert context(outcome)[:2] == ["base", "music"]


def test_a_document_that_could_not_be_judged_is_not_called_irrelevant() -> None:
    answer = world({})
    outcome, _ = run(
        lambda call: GONE if isinstance(call, Judge) and call.document == HASHES["music"] else answer(call), fallback=""
    )
    assert decided(outcome, "crag")[-1].action == "ambiguous"
    assert context(outcome) == ["music"]
    assert outcome.trace.candidates[-1].failure == "connection"


def test_the_reranker_is_asked_once_for_a_list() -> None:
    outcome, asked = run(world({"base": 5}), evaluator="reranker")
    assert asked[1] == [Rerank(question=QUESTION, documents=tuple(HASHES[each] for each in ("base", "music", "same")))]
    assert decided(outcome, "crag")[0].detail["upper"] == 0.8
    assert context(outcome) == ["base"]


def test_similarity_asks_nobody() -> None:
    outcome, asked = run(world({}), evaluator="similarity", upper=2.0, lower=1.5, rounds=0)
    assert shape(asked) == ["Retrieve 2", "Write 1", "Retrieve 1", "Generate 1"]
    assert context(outcome) == ["far", "poem"]


def test_strips_are_what_the_generator_sees_where_documents_are_cut() -> None:
    outcome, asked = run(world({**AMBIGUOUS, "music": 2}), strips="fixed")
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].passage == f"Knowledge1: {TEXTS['base']} [sep] Knowledge2: {TEXTS['far']}\n\n"
    assert context(outcome) == ["base", "far"]
    assert decided(outcome, "strips") == [
        Decision(
            stage="strips", action="fixed",
            detail={"internal": 1.0, "internal of": 2.0, "external": 1.0, "external of": 1.0},
        )
    ]  # fmt: skip


def test_the_best_strips_stay_in_the_order_of_the_list() -> None:
    ratings = {"base": 2, "music": 4, "same": 5}
    assert context(run(world(ratings), top=2)[0]) == ["music", "same"]
    assert context(run(world(ratings), top=2, order="original")[0]) == ["music", "same"]
    assert context(run(world(ratings), top=2, order="score")[0]) == ["same", "music"]
    assert context(run(world(ratings), size=1)[0]) == ["music"]
    assert context(run(world(ratings), size=1, order="original")[0]) == ["same"]


def test_a_document_that_both_corpora_hold_is_used_once() -> None:
    outcome, asked = run(world(AMBIGUOUS, fallback_again=("base", "far")))
    assert [call.document for call in asked[4] if isinstance(call, Judge)] == [HASHES["far"]]
    assert context(outcome) == ["base", "far"]


def test_empty_indexes_are_incorrect() -> None:
    outcome, asked = run(world(INCORRECT, dense=(), sparse=()), rounds=0)
    assert shape(asked) == ["Retrieve 2", "Write 1", "Retrieve 1", "Judge 2", "Generate 1"]
    assert context(outcome) == ["far"]


TOO_LONG = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")


def cramped(answer: Answer, most: int) -> Answer:
    return lambda call: TOO_LONG if isinstance(call, Generate) and len(call.context) > most else answer(call)


def test_the_least_relevant_document_is_dropped_wherever_it_stands_in_the_prompt() -> None:
    ratings = {"base": 2, "music": 5, "same": 4}
    outcome, asked = run(cramped(world(ratings), 2), size=3)
    assert [len(call.context) for step in asked for call in step if isinstance(call, Generate)] == [3, 2]
    assert context(outcome) == ["music", "same"]
    dropped = decided(outcome, "context")
    assert [(NAMES[str(each.detail["document"])], each.fallback) for each in dropped] == [("base", "context_exceeded")]


def test_strips_of_a_document_that_does_not_fit_go_with_it() -> None:
    outcome, asked = run(cramped(world({**AMBIGUOUS, "music": 2}), 1), strips="fixed")
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].passage == f"{TEXTS['base']}\n\n"
    assert context(outcome) == ["base"]


RATED = st.integers(1, 5).map(lambda rating: Rated(rating=rating, text=""))
JUDGED = st.fixed_dictionaries({name: RATED | st.just(GONE) for name in TEXTS})
OPTIONS = st.fixed_dictionaries(
    {
        "evaluator": st.sampled_from(["judge", "reranker", "similarity"]),
        "strips": st.sampled_from(["selection", "fixed", "excerption"]),
        "order": st.sampled_from(["original", "score"]),
        "diversity": st.sampled_from([0.0, 0.5, 1.0]),
        "rounds": st.integers(0, 2),
        "fallback": st.sampled_from(["", "other"]),
    }
)


@given(JUDGED, OPTIONS, st.sets(st.sampled_from([Write, Rerank])))
def test_replay_repeats_calls_and_outcome(judged: dict[str, Reply], options: dict[str, Any], broken: set[type]) -> None:
    def answer(call: Call) -> Reply:
        if type(call) in broken:
            return GONE
        return judged[NAMES[call.document]] if isinstance(call, Judge) else world({"base": 3})(call)

    first, again = (run(answer, **options) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
    assert all(step for step in first[1])


# Seed document 001's flow as one pipeline: every part does what it does alone, in the document's order.


def rewording(answer: Answer) -> Answer:
    def reply(call: Call) -> Reply:
        if isinstance(call, Write) and call.template == "decompose":
            return Generated(text="NONE")
        return answer(call)

    return reply


def run_enhanced(answer: Answer, *, size: int = 3, **groups: Any) -> tuple[Outcome, list[list[Call]]]:
    crag = {"fallback": "other", "rounds": 0, **groups.pop("crag", {})}
    asked = {"context_size": size, "duplicates": "same-words", "compress": {"enabled": False}, "crag": crag, **groups}
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    return drive(registry.get("enhanced-crag").run(sample, msgspec.convert(asked, Params), LIBRARY), rewording(answer))


def test_the_parts_come_in_the_documents_order() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 4}))
    kinds = [[type(call) for call in step] for step in asked]
    assert {Retrieve, Write} == set(kinds[0])
    assert [set(step) for step in kinds[1:]] == [{Retrieve}, {Judge}, {Rerank}, {Generate}]
    assert [each.stage for each in outcome.trace.decisions if each.stage in ("rewrite", "crag", "rerank")] == [
        "rewrite", "crag", "rerank",
    ]  # fmt: skip
    assert context(outcome) == ["base", "new"]


def test_every_wordings_documents_are_evaluated_once() -> None:
    outcome, asked = run_enhanced(world({"base": 5}))
    judged = [call for step in asked for call in step if isinstance(call, Judge)]
    assert sorted(NAMES[call.document] for call in judged) == ["base", "music", "new", "same"]
    assert {call.question for call in judged} == {QUESTION}
    assert HASHES["twin"] in outcome.trace.duplicates


def test_what_is_irrelevant_is_not_reranked_and_stays_in_the_trace() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 3}))
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert [NAMES[each] for each in reranked.documents] == ["base", "new"]
    names = [NAMES[each.document] for each in outcome.trace.candidates]
    assert (names[:2], set(names[2:])) == (["base", "new"], {"music", "same"})
    assert [each.rank for each in outcome.trace.candidates] == [1, 2, 3, 4]


def test_enhanced_crag_completes_an_ambiguous_list_from_the_fallback_corpus() -> None:
    outcome, asked = run_enhanced(world({"base": 3, "far": 5}), crag={"diversity": 0.0, "upper": 0.75})
    assert decided(outcome, "crag")[0].action == "ambiguous"
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert {NAMES[each] for each in reranked.documents} == {"base", "far"}
    assert context(outcome) == ["far", "base"]


def test_an_incorrect_list_is_refined_from_another_angle() -> None:
    _, asked = run_enhanced(world({}), crag={"rounds": 1})
    written = [call.template for step in asked for call in step if isinstance(call, Write)]
    assert written == ["rewrite", "decompose", "rewrite-again", "keywords"]


def test_documents_are_compressed_at_last() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 4}), compress={"enabled": True, "ratio": 0.5})
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].passage
    assert [each.stage for each in outcome.trace.decisions][-1] == "compress"


def test_judge_calls_of_enhanced_crag_come_before_the_one_generation() -> None:
    for ratings in ({"base": 5}, {"base": 3, "far": 5}, {}):
        _, asked = run_enhanced(world(ratings), crag={"rounds": 2, "diversity": 1.0})
        kinds = [type(call) for step in asked for call in step]
        assert kinds.count(Generate) == 1
        assert kinds[-1] is Generate


@pytest.mark.parametrize("kind", [Write, Judge, Rerank])
def test_a_part_that_fails_is_left_out(kind: type) -> None:
    outcome, _ = run_enhanced(failing(kind, world({"base": 5})))
    assert outcome.answer == "6"
    assert outcome.context
    assert any(each.fallback == "connection" for each in outcome.trace.decisions)


def test_a_question_may_be_refused() -> None:
    outcome, asked = run_enhanced(
        lambda call: (
            Scored(scores=(0.1,) * len(call.documents)) if isinstance(call, Rerank) else world({"base": 5})(call)
        ),
        rerank={"refuse": True},
    )
    assert outcome.refusal
    assert "Generate 1" not in shape(asked)


ENHANCED_OPTIONS = st.fixed_dictionaries(
    {
        "evaluator": st.sampled_from(["judge", "reranker", "similarity"]),
        "diversity": st.sampled_from([0.0, 1.0]),
        "rounds": st.integers(0, 2),
        "fallback": st.sampled_from(["", "other"]),
    }
)


@given(JUDGED, ENHANCED_OPTIONS, st.sets(st.sampled_from([Write, Rerank])))
def test_replay_repeats_calls_and_outcome_of_enhanced_crag(
    judged: dict[str, Reply], options: dict[str, Any], broken: set[type]
) -> None:
    def answer(call: Call) -> Reply:
        if type(call) in broken:
            return GONE
        return judged[NAMES[call.document]] if isinstance(call, Judge) else world({"base": 3})(call)

    first, again = (run_enhanced(answer, crag=options) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
    assert all(step for step in first[1])
    assert set(TEXTS) >= {NAMES[each.document] for each in first[0].trace.candidates}
