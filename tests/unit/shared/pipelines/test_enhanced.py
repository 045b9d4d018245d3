"""The enhanced pipeline: wordings, paths, fallbacks, and what the trace tells of them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Generate, Rerank, Retrieve, Write
from shared.params import Params
from shared.pipelines import registry
from shared.rag.fusion import rrf
from shared.replies import CallFailed, Document, Failure, FailureKind, Generated, Reply, Retrieved, Scored
from shared.samples import Decision, Extraction, Item, Outcome, Sample
from tests.unit.shared.pipelines.test_pipelines import BROKEN, drive, found

QUESTION = "What is the gcd of 12 and 18?"
WIDENED = f"{QUESTION} greatest common divisor greatest common factor highest common factor"
TWIN = Document(problem="what is the GCD of 12 and 18?", text="It is 6.")
COPIES = [Document(problem="p", text=text) for text in ("The same.", "the  same.")]
PLAIN = [Document(problem=f"p{i}", text=f"Number {i} is here. So it is {i}.") for i in range(6)]
LIBRARY = {document.hash: document for document in [TWIN, *COPIES, *PLAIN]}
A, B, C, D, E, F = (document.hash for document in PLAIN)
FIRST, SECOND = (document.hash for document in COPIES)
NO_RERANKER = Failure(kind=FailureKind.NOT_CONFIGURED)

Answer = Callable[[Call], Reply]


def params(**groups: Any) -> Params:
    return msgspec.convert({"compress": {"enabled": False}, **groups}, Params)


def world(call: Call) -> Reply:
    match call:
        case Write(template="rewrite"):
            return Generated(text="common factors of 12 and 18")
        case Write(template="decompose"):
            return Generated(text="1. factors of 12\n2. factors of 18")
        case Write():
            return Generated(text=f"Draft {call.draw} of 12")
        case Retrieve():
            return _lists(call)
        case Rerank():
            return NO_RERANKER
        case _:
            return Generated(text=r"So \boxed{6}.")


def _lists(call: Retrieve) -> Retrieved:
    if call.hypothetical:
        return found(F)
    by_wording = {QUESTION: ([A, B], [B, C]), WIDENED: ([B], [D]), "common factors of 12 and 18": ([E, A], [B])}
    dense, sparse = by_wording.get(call.question, ([C], [C]))
    return found(*(dense if call.index == "dense" else sparse), duplicates=("dup",))


def run(
    answer: Answer = world, given: Params | None = None, question: str = QUESTION
) -> tuple[Outcome, list[list[Call]]]:
    sample = Sample(item=Item(ordinal=0, question=question))
    return drive(registry.get("enhanced").run(sample, given or params(), LIBRARY), answer)


def where(condition: Callable[[Call], bool], reply: Reply) -> Answer:
    return lambda call: reply if condition(call) else world(call)


def decisions(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


def queries(steps: Sequence[Sequence[Call]]) -> list[tuple[str, str]]:
    return [(call.question, call.index) for step in steps for call in step if isinstance(call, Retrieve)]


def test_all_that_needs_no_reply_is_asked_at_once_and_the_generator_comes_last() -> None:
    _, steps = run()
    kinds = [[type(call) for call in step] for step in steps]
    assert kinds == [[Retrieve] * 4 + [Write] * 2, [Retrieve] * 6, [Rerank], [Generate]]
    assert queries(steps)[::2] == [
        (QUESTION, "dense"),
        (WIDENED, "dense"),
        ("common factors of 12 and 18", "dense"),
        ("factors of 12", "dense"),
        ("factors of 18", "dense"),
    ]


def test_the_writer_is_shown_the_best_documents_of_the_first_searches_where_a_job_asks_for_it() -> None:
    """Of the lists [A, B], [B, C], [B], [D], B has 1/62 + 2/61, D and A 1/61, C 1/62; A's hash decides before D's."""
    _, steps = run(given=params(enhance={"shown": 3}))
    first, second, third, *_ = steps
    assert [type(call) for call in first] == [Retrieve] * 4
    best = (B, *sorted((A, D)))
    decoding, slots = params().enhance.decoding, {"question": QUESTION}
    assert second[0] == Write(template="rewrite-shown", decoding=decoding, slots=slots, documents=best)
    assert [type(call) for call in second] == [Write] * 2
    assert {type(call) for call in third} == {Retrieve}
    plain = run()[1]
    assert [*first, second[1]] == [*plain[0][:4], plain[0][5]]
    assert sum(map(len, steps)) == sum(map(len, plain))


def test_where_the_first_searches_failed_the_writer_sees_the_question_alone() -> None:
    failing = where(lambda call: isinstance(call, Retrieve) and call.question in (QUESTION, WIDENED), BROKEN)
    _, steps = run(failing, params(enhance={"shown": 3}))
    _, plain = run()
    assert steps[1] == plain[0][4:]


@pytest.mark.parametrize("question", ["What is\n  5 plus 7?", "５ plus 7 is $what  it$ is？"])
def test_other_blanks_and_characters_are_no_other_wording(question: str) -> None:
    outcome, steps = run(question=question)
    assert [query for query, _ in queries(steps)[:2]] == [question] * 2
    assert len(steps[0]) == 2 + 2
    assert not decisions(outcome, "clean")


def test_the_original_searches_are_those_of_every_pipeline() -> None:
    hybrid = drive(
        registry.get("hybrid").run(Sample(item=Item(ordinal=0, question=QUESTION)), Params(), LIBRARY), world
    )
    assert run()[1][0][:2] == hybrid[1][0]


def test_all_lists_are_fused_and_sub_queries_share_one_wordings_weight() -> None:
    outcome, _ = run()
    lists = [[A, B], [B, C], [B], [D], [E, A], [B], [C], [C], [C], [C]]
    expected = rrf(lists, weights=[1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5])
    assert [(entry.document, entry.fused) for entry in outcome.trace.candidates] == expected
    best = outcome.trace.candidates[0]
    assert best.document == B
    assert best.paths == {"original dense": 2, "original sparse": 1, "widened dense": 1, "rewritten sparse": 1}
    assert (best.dense_rank, best.sparse_rank, best.dense_score, best.sparse_score) == (2, 1, 8.0, 9.0)
    assert outcome.trace.duplicates == ("dup",)
    assert (outcome.context, outcome.answer) == ((B,), "6")


def test_decisions_tell_what_was_done_in_order() -> None:
    outcome, _ = run()
    done = [(decision.stage, decision.action, decision.fallback) for decision in outcome.trace.decisions]
    assert done == [
        ("intent", "calculate", None),
        ("synonyms", "widened", None),
        ("rewrite", "written", None),
        ("decompose", "written", None),
        ("rerank", "original order", "not_configured"),
    ]


@pytest.mark.parametrize("reply", [Generated(text="[[4]]"), BROKEN, Generated(text="banana", truncated=True)])
def test_failed_enhancement_leaves_the_original_question(reply: Reply) -> None:
    outcome, steps = run(where(lambda call: isinstance(call, Write), reply))
    assert {query for query, _ in queries(steps)} == {QUESTION, WIDENED}
    kinds = {decision.fallback for stage in ("rewrite", "decompose") for decision in decisions(outcome, stage)}
    assert kinds == {"connection" if reply == BROKEN else "truncated" if "ban" in str(reply) else "unparsed"}
    assert outcome.answer == "6"


@pytest.mark.parametrize(("index", "left"), [("sparse", "dense"), ("dense", "sparse")])
def test_a_failed_index_leaves_the_other(index: str, left: str) -> None:
    outcome, _ = run(where(lambda call: isinstance(call, Retrieve) and call.index == index, BROKEN))
    lost = decisions(outcome, "retrieve")
    assert {(decision.action, decision.fallback) for decision in lost} == {(f"{left} alone", "connection")}
    assert len(lost) == 5
    assert all(left in path for entry in outcome.trace.candidates for path in entry.paths or {})
    assert outcome.answer == "6"


def test_one_lost_path_is_fewer_paths() -> None:
    outcome, _ = run(where(lambda call: isinstance(call, Retrieve) and call.question == WIDENED, BROKEN))
    assert [decision.action for decision in decisions(outcome, "retrieve")] == ["fewer paths"] * 2


def test_without_any_list_the_sample_fails() -> None:
    with pytest.raises(CallFailed, match="connection: retriever is gone"):
        run(where(lambda call: isinstance(call, Retrieve), BROKEN))


def test_an_empty_index_still_gets_an_answer() -> None:
    outcome, steps = run(where(lambda call: isinstance(call, Retrieve), Retrieved(hits=())), params(compress={}))
    assert not any(isinstance(call, Rerank) for step in steps for call in step)
    assert (outcome.context, outcome.answer) == ((), "6")


def test_a_reranker_orders_and_drops() -> None:
    def answer(call: Call) -> Reply:
        if isinstance(call, Rerank):
            assert call.question == QUESTION
            return Scored(scores=tuple(0.9 if document == D else 0.1 for document in call.documents))
        return world(call)

    outcome, steps = run(answer, params(context_size=5))
    assert outcome.context == (D,)
    assert steps[-1] == [Generate(template="cot", question=QUESTION, context=(D,))]
    assert (outcome.trace.candidates[0].document, outcome.trace.candidates[0].relevance) == (D, 0.9)
    assert len(outcome.trace.candidates) == 5


def test_a_failed_reranking_leaves_the_fused_order() -> None:
    outcome, _ = run(where(lambda call: isinstance(call, Rerank), BROKEN))
    assert decisions(outcome, "rerank") == [Decision(stage="rerank", action="original order", fallback="connection")]
    assert outcome.context == (B,)


def test_reranking_can_be_left_out() -> None:
    outcome, steps = run(given=params(rerank={"enabled": False}))
    assert not any(isinstance(call, Rerank) for step in steps for call in step)
    assert not decisions(outcome, "rerank")


def _unrelated(call: Call) -> Reply:
    return Scored(scores=tuple(0.05 for _ in call.documents)) if isinstance(call, Rerank) else world(call)


def test_a_question_that_nothing_helps_with_is_refused_if_the_job_says_so() -> None:
    outcome, steps = run(_unrelated, params(rerank={"refuse": True}))
    assert not any(isinstance(call, Generate) for step in steps for call in step)
    assert (outcome.answer, outcome.extraction, outcome.context) == (None, Extraction.REFUSED, ())
    assert outcome.refusal is not None
    assert len(outcome.trace.candidates) == 5


def test_a_vague_question_gets_no_unrelated_document() -> None:
    outcome, steps = run(_unrelated, question="Hello")
    assert {index for _, index in queries(steps)} == {"dense"}
    assert [decision.action for decision in decisions(outcome, "vague")] == ["generic"]
    assert (outcome.context, outcome.answer) == ((), "6")
    assert run(question="Hello")[0].context == (C,)
    assert run(_unrelated)[0].context == (B,)


def test_hypothetical_documents_are_a_further_path() -> None:
    outcome, steps = run(given=params(enhance={"hyde": True}, hyde={"documents": 2}))
    (call,) = [call for call in steps[1] if isinstance(call, Retrieve) and call.hypothetical]
    assert (call.question, call.index, call.hypothetical) == (QUESTION, "dense", ("Draft 0 of 12", "Draft 1 of 12"))
    (entry,) = [entry for entry in outcome.trace.candidates if entry.document == F]
    assert entry.paths == {"hypothetical dense": 1}
    assert (entry.dense_rank, entry.dense_score) == (None, None)


def test_everything_can_be_turned_off() -> None:
    off = {"synonyms": False, "correct": False, "rewrite": False, "decompose": False}
    outcome, steps = run(given=params(enhance=off, rerank={"enabled": False}))
    assert [len(step) for step in steps] == [2, 1]
    assert [(entry.document, entry.fused) for entry in outcome.trace.candidates] == rrf([[A, B], [B, C]])


def test_in_a_job_of_release_0_1_a_twin_that_another_wording_found_is_dropped() -> None:
    def answer(call: Call) -> Reply:
        rewritten = isinstance(call, Retrieve) and call.question.startswith("common")
        return found(TWIN.hash, E) if rewritten else world(call)

    outcome, _ = run(answer, params(duplicates="same-words"))
    assert TWIN.hash in outcome.trace.duplicates
    assert TWIN.hash not in {entry.document for entry in outcome.trace.candidates}


def test_documents_of_equal_content_are_one() -> None:
    def answer(call: Call) -> Reply:
        return found(SECOND, FIRST, A) if isinstance(call, Retrieve) else world(call)

    outcome, _ = run(answer)
    assert [entry.document for entry in outcome.trace.candidates] == [SECOND, A]
    assert [entry.rank for entry in outcome.trace.candidates] == [1, 2]
    assert decisions(outcome, "dedupe") == [Decision(stage="dedupe", action="dropped", detail={"documents": [FIRST]})]


def test_candidates_are_as_many_as_the_job_says_after_duplicates() -> None:
    def answer(call: Call) -> Reply:
        return found(SECOND, FIRST, A, B) if isinstance(call, Retrieve) else world(call)

    outcome, _ = run(answer, params(candidates=2))
    assert [entry.document for entry in outcome.trace.candidates] == [SECOND, A]


def test_weights_follow_the_intent() -> None:
    by_intent = run(given=params(fusion={"by_intent": True}))[0]
    (decision,) = decisions(by_intent, "intent")
    assert decision.detail == {"dense": 0.3, "sparse": 0.7}
    weights = [0.3, 0.7] * 3 + [0.15, 0.35] * 2
    lists = [[A, B], [B, C], [B], [D], [E, A], [B], [C], [C], [C], [C]]
    assert [entry.document for entry in by_intent.trace.candidates] == [
        hash_ for hash_, _ in rrf(lists, weights=weights)
    ]


def test_an_index_without_weight_is_not_searched() -> None:
    assert {index for _, index in queries(run(given=params(fusion={"dense": 0}))[1])} == {"sparse"}


def test_compression_puts_a_passage_in_the_documents_place() -> None:
    outcome, steps = run(given=params(context_size=2, compress={"ratio": 0.5}))
    (call,) = steps[-1]
    assert isinstance(call, Generate)
    assert "here" in call.passage
    assert outcome.context == call.context != ()
    assert decisions(outcome, "compress")[0].action == "compressed"


def test_a_chinese_question_is_rewritten_in_chinese() -> None:
    _, steps = run(question="求12和18的最大公约数")
    templates = [call.template for step in steps for call in step if isinstance(call, Write | Generate)]
    assert templates == ["rewrite-zh", "decompose-zh", "cot-zh"]
    assert any("greatest common divisor" in query for query, _ in queries(steps))


HASHES = sorted(LIBRARY)
LISTED = st.lists(st.sampled_from(HASHES), max_size=8).map(lambda documents: found(*documents))
FAILED = st.sampled_from(FailureKind).map(lambda kind: Failure(kind=kind))
WRITTEN = st.builds(
    Generated, text=st.sampled_from(["gcd of 12", "", "[[3]]", "a\nb of 12\n18"]), truncated=st.booleans()
)


@given(
    st.lists(LISTED | FAILED, min_size=20, max_size=20), st.lists(WRITTEN | FAILED, min_size=3, max_size=3), st.data()
)
def test_replay_repeats_calls_and_outcome(lists: list[Reply], texts: list[Reply], data: st.DataObject) -> None:
    remembered: dict[bytes, Reply] = {}

    def answer(call: Call) -> Reply:
        key = canonical.digest(call)
        if key not in remembered:
            remembered[key] = _reply(call)
        return remembered[key]

    def _reply(call: Call) -> Reply:
        match call:
            case Retrieve():
                return data.draw(st.sampled_from(lists))
            case Write():
                return data.draw(st.sampled_from(texts))
            case Rerank():
                scored = st.builds(Scored, scores=st.tuples(*[st.floats(0, 1)] * len(call.documents)))
                return data.draw(scored | FAILED)
            case _:
                return Generated(text=r"\boxed{1}")

    given_params = msgspec.convert(
        {"enhance": {"hyde": True}, "hyde": {"documents": 1}, "duplicates": "same-words"}, Params
    )
    try:
        first = run(answer, given_params)
    except CallFailed:
        return
    assert canonical.encode(run(answer, given_params)[0]) == canonical.encode(first[0])
    documents = [entry.document for entry in first[0].trace.candidates]
    assert len(set(documents)) == len(documents)
    assert TWIN.hash not in documents
