"""The enhanced pipeline: wordings, paths, fallbacks, and what the trace tells of them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Generate, Judge, Rerank, Retrieve, Verify, Write
from shared.params import CriticParams, Params
from shared.pipelines import registry
from shared.rag.fusion import rrf
from shared.rag.gate import compare_with_truth
from shared.replies import (
    CallFailed,
    Document,
    Failure,
    FailureKind,
    Generated,
    Hit,
    Rated,
    Reply,
    Retrieved,
    Scored,
    Verified,
)
from shared.runtime.advance import Replay
from shared.samples import Decision, Extraction, GateDecision, Item, Outcome, Sample, Strategy
from tests.unit.shared.pipelines.test_crag_pipeline import (
    GONE,
    JUDGED,
    LIBRARY,
    NAMES,
    QUESTION,
    TEXTS,
    context,
    decided,
    failing,
    shape,
)
from tests.unit.shared.pipelines.test_crag_pipeline import HASHES as CRAG_PIPELINE_HASHES
from tests.unit.shared.pipelines.test_crag_pipeline import Answer as CragAnswer
from tests.unit.shared.pipelines.test_crag_pipeline import world as crag_world
from tests.unit.shared.pipelines.test_pipelines import BROKEN, drive, found, neighbours
from tests.unit.shared.pipelines.test_pipelines import HASHES as PIPELINES_HASHES
from tests.unit.shared.pipelines.test_pipelines import LIBRARY as PIPELINES_LIBRARY
from tests.unit.shared.pipelines.test_pipelines import world as pipelines_world

ENHANCED_QUESTION = "What is the gcd of 12 and 18?"
WIDENED = f"{ENHANCED_QUESTION} greatest common divisor greatest common factor highest common factor"
TWIN = Document(problem="what is the GCD of 12 and 18?", text="It is 6.")
COPIES = [Document(problem="p", text=text) for text in ("The same.", "the  same.")]
PLAIN = [Document(problem=f"p{i}", text=f"Number {i} is here. So it is {i}.") for i in range(6)]
ENHANCED_LIBRARY = {document.hash: document for document in [TWIN, *COPIES, *PLAIN]}
A, B, C, D, E, F = (document.hash for document in PLAIN)
FIRST, SECOND = (document.hash for document in COPIES)
NO_RERANKER = Failure(kind=FailureKind.NOT_CONFIGURED)

Answer = Callable[[Call], Reply]


def params_enhanced(**groups: Any) -> Params:
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
    by_wording = {
        ENHANCED_QUESTION: ([A, B], [B, C]),
        WIDENED: ([B], [D]),
        "common factors of 12 and 18": ([E, A], [B]),
    }
    dense, sparse = by_wording.get(call.question, ([C], [C]))
    return found(*(dense if call.index == "dense" else sparse), duplicates=("dup",))


def run_enhanced(
    answer: Answer = world, given: Params | None = None, question: str = ENHANCED_QUESTION
) -> tuple[Outcome, list[list[Call]]]:
    sample = Sample(item=Item(ordinal=0, question=question))
    return drive(registry.get("enhanced").run(sample, given or params_enhanced(), ENHANCED_LIBRARY), answer)


def where(condition: Callable[[Call], bool], reply: Reply) -> Answer:
    return lambda call: reply if condition(call) else world(call)


def decisions(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


def queries(steps: Sequence[Sequence[Call]]) -> list[tuple[str, str]]:
    return [(call.question, call.index) for step in steps for call in step if isinstance(call, Retrieve)]


def test_all_that_needs_no_reply_is_asked_at_once_and_the_generator_comes_last() -> None:
    _, steps = run_enhanced()
    kinds = [[type(call) for call in step] for step in steps]
    assert kinds == [[Retrieve] * 4 + [Write] * 2, [Retrieve] * 6, [Rerank], [Generate]]
    assert queries(steps)[::2] == [
        (ENHANCED_QUESTION, "dense"),
        (WIDENED, "dense"),
        ("common factors of 12 and 18", "dense"),
        ("factors of 12", "dense"),
        ("factors of 18", "dense"),
    ]


@pytest.mark.parametrize("question", ["What is\n  5 plus 7?", "５ plus 7 is $what  it$ is？"])
def test_other_blanks_and_characters_are_no_other_wording(question: str) -> None:
    outcome, steps = run_enhanced(question=question)
    assert [query for query, _ in queries(steps)[:2]] == [question] * 2
    assert len(steps[0]) == 2 + 2
    assert not decisions(outcome, "clean")


def test_the_original_searches_are_those_of_every_pipeline() -> None:
    hybrid = drive(
        registry.get("hybrid").run(
            Sample(item=Item(ordinal=0, question=ENHANCED_QUESTION)), Params(), ENHANCED_LIBRARY
        ),
        world,
    )
    assert run_enhanced()[1][0][:2] == hybrid[1][0]


def test_all_lists_are_fused_and_sub_queries_share_one_wordings_weight() -> None:
    outcome, _ = run_enhanced()
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
    outcome, _ = run_enhanced()
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
    outcome, steps = run_enhanced(where(lambda call: isinstance(call, Write), reply))
    assert {query for query, _ in queries(steps)} == {ENHANCED_QUESTION, WIDENED}
    kinds = {decision.fallback for stage in ("rewrite", "decompose") for decision in decisions(outcome, stage)}
    assert kinds == {"connection" if reply == BROKEN else "truncated" if "ban" in str(reply) else "unparsed"}
    assert outcome.answer == "6"


@pytest.mark.parametrize(("index", "left"), [("sparse", "dense"), ("dense", "sparse")])
def test_a_failed_index_leaves_the_other(index: str, left: str) -> None:
    outcome, _ = run_enhanced(where(lambda call: isinstance(call, Retrieve) and call.index == index, BROKEN))
    lost = decisions(outcome, "retrieve")
    assert {(decision.action, decision.fallback) for decision in lost} == {(f"{left} alone", "connection")}
    assert len(lost) == 5
    assert all(left in path for entry in outcome.trace.candidates for path in entry.paths or {})
    assert outcome.answer == "6"


def test_one_lost_path_is_fewer_paths() -> None:
    outcome, _ = run_enhanced(where(lambda call: isinstance(call, Retrieve) and call.question == WIDENED, BROKEN))
    assert [decision.action for decision in decisions(outcome, "retrieve")] == ["fewer paths"] * 2


def test_without_any_list_the_sample_fails() -> None:
    with pytest.raises(CallFailed, match="connection: retriever is gone"):
        run_enhanced(where(lambda call: isinstance(call, Retrieve), BROKEN))


def test_an_empty_index_still_gets_an_answer() -> None:
    outcome, steps = run_enhanced(
        where(lambda call: isinstance(call, Retrieve), Retrieved(hits=())), params_enhanced(compress={})
    )
    assert not any(isinstance(call, Rerank) for step in steps for call in step)
    assert (outcome.context, outcome.answer) == ((), "6")


def test_a_reranker_orders_and_drops() -> None:
    def answer(call: Call) -> Reply:
        if isinstance(call, Rerank):
            assert call.question == ENHANCED_QUESTION
            return Scored(scores=tuple(0.9 if document == D else 0.1 for document in call.documents))
        return world(call)

    outcome, steps = run_enhanced(answer, params_enhanced(context_size=5))
    assert outcome.context == (D,)
    assert steps[-1] == [Generate(template="cot", question=ENHANCED_QUESTION, context=(D,))]
    assert (outcome.trace.candidates[0].document, outcome.trace.candidates[0].relevance) == (D, 0.9)
    assert len(outcome.trace.candidates) == 5


def test_a_failed_reranking_leaves_the_fused_order() -> None:
    outcome, _ = run_enhanced(where(lambda call: isinstance(call, Rerank), BROKEN))
    assert decisions(outcome, "rerank") == [Decision(stage="rerank", action="original order", fallback="connection")]
    assert outcome.context == (B,)


def test_reranking_can_be_left_out() -> None:
    outcome, steps = run_enhanced(given=params_enhanced(rerank={"enabled": False}))
    assert not any(isinstance(call, Rerank) for step in steps for call in step)
    assert not decisions(outcome, "rerank")


def _unrelated(call: Call) -> Reply:
    return Scored(scores=tuple(0.05 for _ in call.documents)) if isinstance(call, Rerank) else world(call)


def test_a_question_that_nothing_helps_with_is_refused_if_the_job_says_so() -> None:
    outcome, steps = run_enhanced(_unrelated, params_enhanced(rerank={"refuse": True}))
    assert not any(isinstance(call, Generate) for step in steps for call in step)
    assert (outcome.answer, outcome.extraction, outcome.context) == (None, Extraction.REFUSED, ())
    assert outcome.refusal is not None
    assert len(outcome.trace.candidates) == 5


def test_a_vague_question_gets_no_unrelated_document() -> None:
    outcome, steps = run_enhanced(_unrelated, question="Hello")
    assert {index for _, index in queries(steps)} == {"dense"}
    assert [decision.action for decision in decisions(outcome, "vague")] == ["generic"]
    assert (outcome.context, outcome.answer) == ((), "6")
    assert run_enhanced(question="Hello")[0].context == (C,)
    assert run_enhanced(_unrelated)[0].context == (B,)


def test_hypothetical_documents_are_a_further_path() -> None:
    outcome, steps = run_enhanced(given=params_enhanced(enhance={"hyde": True}, hyde={"documents": 2}))
    (call,) = [call for call in steps[1] if isinstance(call, Retrieve) and call.hypothetical]
    assert (call.question, call.index, call.hypothetical) == (
        ENHANCED_QUESTION,
        "dense",
        ("Draft 0 of 12", "Draft 1 of 12"),
    )
    (entry,) = [entry for entry in outcome.trace.candidates if entry.document == F]
    assert entry.paths == {"hypothetical dense": 1}
    assert (entry.dense_rank, entry.dense_score) == (None, None)


def test_everything_can_be_turned_off() -> None:
    off = {"synonyms": False, "correct": False, "rewrite": False, "decompose": False}
    outcome, steps = run_enhanced(given=params_enhanced(enhance=off, rerank={"enabled": False}))
    assert [len(step) for step in steps] == [2, 1]
    assert [(entry.document, entry.fused) for entry in outcome.trace.candidates] == rrf([[A, B], [B, C]])


def test_in_a_job_of_release_0_1_a_twin_that_another_wording_found_is_dropped() -> None:
    def answer(call: Call) -> Reply:
        rewritten = isinstance(call, Retrieve) and call.question.startswith("common")
        return found(TWIN.hash, E) if rewritten else world(call)

    outcome, _ = run_enhanced(answer, params_enhanced(duplicates="same-words"))
    assert TWIN.hash in outcome.trace.duplicates
    assert TWIN.hash not in {entry.document for entry in outcome.trace.candidates}


def test_documents_of_equal_content_are_one() -> None:
    def answer(call: Call) -> Reply:
        return found(SECOND, FIRST, A) if isinstance(call, Retrieve) else world(call)

    outcome, _ = run_enhanced(answer)
    assert [entry.document for entry in outcome.trace.candidates] == [SECOND, A]
    assert [entry.rank for entry in outcome.trace.candidates] == [1, 2]
    assert decisions(outcome, "dedupe") == [Decision(stage="dedupe", action="dropped", detail={"documents": [FIRST]})]


def test_candidates_are_as_many_as_the_job_says_after_duplicates() -> None:
    def answer(call: Call) -> Reply:
        return found(SECOND, FIRST, A, B) if isinstance(call, Retrieve) else world(call)

    outcome, _ = run_enhanced(answer, params_enhanced(candidates=2))
    assert [entry.document for entry in outcome.trace.candidates] == [SECOND, A]


def test_weights_follow_the_intent() -> None:
    by_intent = run_enhanced(given=params_enhanced(fusion={"by_intent": True}))[0]
    (decision,) = decisions(by_intent, "intent")
    assert decision.detail == {"dense": 0.3, "sparse": 0.7}
    weights = [0.3, 0.7] * 3 + [0.15, 0.35] * 2
    lists = [[A, B], [B, C], [B], [D], [E, A], [B], [C], [C], [C], [C]]
    assert [entry.document for entry in by_intent.trace.candidates] == [
        hash_ for hash_, _ in rrf(lists, weights=weights)
    ]


def test_an_index_without_weight_is_not_searched() -> None:
    assert {index for _, index in queries(run_enhanced(given=params_enhanced(fusion={"dense": 0}))[1])} == {"sparse"}


def test_compression_puts_a_passage_in_the_documents_place() -> None:
    outcome, steps = run_enhanced(given=params_enhanced(context_size=2, compress={"ratio": 0.5}))
    (call,) = steps[-1]
    assert isinstance(call, Generate)
    assert "here" in call.passage
    assert outcome.context == call.context != ()
    assert decisions(outcome, "compress")[0].action == "compressed"


def test_a_chinese_question_is_rewritten_in_chinese() -> None:
    _, steps = run_enhanced(question="求12和18的最大公约数")
    templates = [call.template for step in steps for call in step if isinstance(call, Write | Generate)]
    assert templates == ["rewrite-zh", "decompose-zh", "cot-zh"]
    assert any("greatest common divisor" in query for query, _ in queries(steps))


HASHES = sorted(ENHANCED_LIBRARY)
LISTED = st.lists(st.sampled_from(HASHES), max_size=8).map(lambda documents: found(*documents))
FAILED = st.sampled_from(FailureKind).map(lambda kind: Failure(kind=kind))
WRITTEN = st.builds(
    Generated, text=st.sampled_from(["gcd of 12", "", "[[3]]", "a\nb of 12\n18"]), truncated=st.booleans()
)


@given(
    st.lists(LISTED | FAILED, min_size=20, max_size=20), st.lists(WRITTEN | FAILED, min_size=3, max_size=3), st.data()
)
def test_replay_repeats_calls_and_outcome_in_enhanced(
    lists: list[Reply], texts: list[Reply], data: st.DataObject
) -> None:
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
        first = run_enhanced(answer, given_params)
    except CallFailed:
        return
    assert canonical.encode(run_enhanced(answer, given_params)[0]) == canonical.encode(first[0])
    documents = [entry.document for entry in first[0].trace.candidates]
    assert len(set(documents)) == len(documents)
    assert TWIN.hash not in documents


# Seed document 001's flow as one pipeline: every part does what it does alone, in the document's order.


def rewording(answer: CragAnswer) -> CragAnswer:
    def reply(call: Call) -> Reply:
        if isinstance(call, Write) and call.template == "decompose":
            return Generated(text="NONE")
        return answer(call)

    return reply


def run_enhanced_crag(answer: CragAnswer, *, size: int = 3, **groups: Any) -> tuple[Outcome, list[list[Call]]]:
    crag = {"fallback": "other", "rounds": 0, **groups.pop("crag", {})}
    asked = {"context_size": size, "duplicates": "same-words", "compress": {"enabled": False}, "crag": crag, **groups}
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    return drive(registry.get("enhanced-crag").run(sample, msgspec.convert(asked, Params), LIBRARY), rewording(answer))


def test_the_parts_come_in_the_documents_order() -> None:
    outcome, asked = run_enhanced_crag(crag_world({"base": 5, "new": 4}))
    kinds = [[type(call) for call in step] for step in asked]
    assert {Retrieve, Write} == set(kinds[0])
    assert [set(step) for step in kinds[1:]] == [{Retrieve}, {Judge}, {Rerank}, {Generate}]
    assert [each.stage for each in outcome.trace.decisions if each.stage in ("rewrite", "crag", "rerank")] == [
        "rewrite", "crag", "rerank",
    ]  # fmt: skip
    assert context(outcome) == ["base", "new"]


def test_every_wordings_documents_are_evaluated_once() -> None:
    outcome, asked = run_enhanced_crag(crag_world({"base": 5}))
    judged = [call for step in asked for call in step if isinstance(call, Judge)]
    assert sorted(NAMES[call.document] for call in judged) == ["base", "music", "new", "same"]
    assert {call.question for call in judged} == {QUESTION}
    assert CRAG_PIPELINE_HASHES["twin"] in outcome.trace.duplicates


def test_what_is_irrelevant_is_not_reranked_and_stays_in_the_trace() -> None:
    outcome, asked = run_enhanced_crag(crag_world({"base": 5, "new": 3}))
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert [NAMES[each] for each in reranked.documents] == ["base", "new"]
    names = [NAMES[each.document] for each in outcome.trace.candidates]
    assert (names[:2], set(names[2:])) == (["base", "new"], {"music", "same"})
    assert [each.rank for each in outcome.trace.candidates] == [1, 2, 3, 4]


def test_an_ambiguous_list_is_completed_from_the_fallback_corpus() -> None:
    outcome, asked = run_enhanced_crag(crag_world({"base": 3, "far": 5}), crag={"diversity": 0.0})
    assert decided(outcome, "crag")[0].action == "ambiguous"
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert {NAMES[each] for each in reranked.documents} == {"base", "far"}
    assert context(outcome) == ["far", "base"]


def test_an_incorrect_list_is_refined_from_another_angle() -> None:
    _, asked = run_enhanced_crag(crag_world({}), crag={"rounds": 1})
    written = [call.template for step in asked for call in step if isinstance(call, Write)]
    assert written == ["rewrite", "decompose", "rewrite-again", "keywords"]


def test_documents_are_compressed_at_last() -> None:
    outcome, asked = run_enhanced_crag(crag_world({"base": 5, "new": 4}), compress={"enabled": True, "ratio": 0.5})
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].passage
    assert [each.stage for each in outcome.trace.decisions][-1] == "compress"


def test_judge_calls_come_before_the_one_generation() -> None:
    for ratings in ({"base": 5}, {"base": 3, "far": 5}, {}):
        _, asked = run_enhanced_crag(crag_world(ratings), crag={"rounds": 2, "diversity": 1.0})
        kinds = [type(call) for step in asked for call in step]
        assert kinds.count(Generate) == 1
        assert kinds[-1] is Generate


@pytest.mark.parametrize("kind", [Write, Judge, Rerank])
def test_a_part_that_fails_is_left_out(kind: type) -> None:
    outcome, _ = run_enhanced_crag(failing(kind, crag_world({"base": 5})))
    assert outcome.answer == "6"
    assert outcome.context
    assert any(each.fallback == "connection" for each in outcome.trace.decisions)


def test_a_question_may_be_refused() -> None:
    outcome, asked = run_enhanced_crag(
        lambda call: (
            Scored(scores=(0.1,) * len(call.documents)) if isinstance(call, Rerank) else crag_world({"base": 5})(call)
        ),
        rerank={"refuse": True},
    )
    assert outcome.refusal
    assert "Generate 1" not in shape(asked)


OPTIONS = st.fixed_dictionaries(
    {
        "evaluator": st.sampled_from(["judge", "reranker", "similarity"]),
        "diversity": st.sampled_from([0.0, 1.0]),
        "rounds": st.integers(0, 2),
        "fallback": st.sampled_from(["", "other"]),
    }
)


@given(JUDGED, OPTIONS, st.sets(st.sampled_from([Write, Rerank])))
def test_replay_repeats_calls_and_outcome_in_enhanced_crag(
    judged: dict[str, Reply], options: dict[str, Any], broken: set[type]
) -> None:
    def answer(call: Call) -> Reply:
        if type(call) in broken:
            return GONE
        return judged[NAMES[call.document]] if isinstance(call, Judge) else crag_world({"base": 3})(call)

    first, again = (run_enhanced_crag(answer, crag=options) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
    assert all(step for step in first[1])
    assert set(TEXTS) >= {NAMES[each.document] for each in first[0].trace.candidates}


# A question without a vector: what is found by words is taken, and the trace says why there is nothing else.

WORDS = Document(problem="๑ บวก ๑ คืออะไร", text="so \\boxed{2}")
UNSEARCHED_LIBRARY = {WORDS.hash: WORDS}
UNSEARCHED_QUESTION = "หนึ่งบวกหนึ่งเท่ากับเท่าไร"
REASON = "the embedder knows no token"


def ended(pipeline: str, **params: Any) -> Outcome:
    sample = Sample(item=Item(ordinal=0, question=UNSEARCHED_QUESTION))
    replay = Replay(registry.get(pipeline).run(sample, Params(**params), UNSEARCHED_LIBRARY))
    while replay.calls:
        replay.answer([reply(call) for call in replay.calls])
    assert replay.result is not None, replay.failure
    return replay.result


def reply(call: Call) -> Reply:
    match call:
        case Retrieve(index="dense"):
            return Retrieved(hits=(), reason=REASON)
        case Retrieve():
            return Retrieved(hits=(Hit(document=WORDS.hash, rank=1, score=2.5),))
        case Judge():
            return Rated(rating=5, text="[[5]]")
        case Rerank():
            return Failure(kind=FailureKind.NOT_CONFIGURED)
        case _:
            return Generated(text="\\boxed{2}")


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        ("dense", ()),
        ("hyde", ()),
        ("hybrid", (WORDS.hash,)),
        ("crag", (WORDS.hash,)),
        ("critic-loop", (WORDS.hash,)),
    ],
)
def test_a_question_without_a_vector_is_answered_from_its_words(pipeline: str, found: tuple[str, ...]) -> None:
    outcome = ended(pipeline, critic=CriticParams(attempts=1))
    assert outcome.context == found
    [without] = [each for each in outcome.trace.decisions if each.fallback == "no_vector"]
    assert (without.stage, without.detail) == ("retrieve", {"said": REASON})
    assert without.action in ("without dense", "without original dense")


def test_every_wording_without_a_vector_is_named() -> None:
    outcome = ended("enhanced")
    assert [each.action for each in outcome.trace.decisions if each.fallback == "no_vector"][:1] == [
        "without original dense"
    ]
    assert outcome.context == (WORDS.hash,)


# mathrag-gate with a verifier: as the one who scores, and as the truth that rules and judge are held against.

LOST = Failure(kind=FailureKind.VERIFIER_TIMEOUT)
ITEMS = [Item(ordinal=i, question=f"q{i}") for i in range(40)]


def params_verifier_quality(**given: Any) -> Params:
    return msgspec.convert(given, Params)


def verified(call: Verify) -> Verified | Failure:
    n = PIPELINES_HASHES.index(call.document)
    if n == 1:
        return LOST
    return Verified(verified=n, refuted=int(n > 0), unknown=2)


def checked(call: Call) -> Reply:
    return verified(call) if isinstance(call, Verify) else neighbours(call)


def prepared(chosen: Params, answer: Any = checked) -> tuple[GateDecision, list[list[Call]]]:
    prepare = registry.get("mathrag-gate").prepare
    assert prepare is not None
    return drive(prepare(ITEMS, chosen, PIPELINES_LIBRARY), answer)


@pytest.mark.parametrize("strategy", Strategy)
def test_who_scores_may_be_said_and_then_nothing_is_calibrated(strategy: Strategy) -> None:
    decided, asked = prepared(params_verifier_quality(quality=strategy.value))
    assert (decided.strategy, decided.rho, decided.documents, asked) == (strategy, None, (), [])
    assert strategy.value in decided.reason


def test_by_default_the_gate_decides_and_nothing_is_verified() -> None:
    decided, asked = prepared(Params())
    assert not [call for step in asked for call in step if isinstance(call, Verify)]
    assert decided.truth is None
    assert b"truth" not in canonical.encode(decided)


def test_a_decision_that_was_stored_without_a_truth_is_read() -> None:
    decided, _ = prepared(Params())
    assert msgspec.json.decode(canonical.encode(decided), type=GateDecision) == decided


def test_a_verifier_scores_by_what_it_could_decide() -> None:
    chosen = params_verifier_quality(quality="verifier")
    sample = Sample(item=Item(ordinal=0, question="q0"), prepared=prepared(chosen)[0])

    def answer(call: Call) -> Reply:
        return verified(call) if isinstance(call, Verify) else pipelines_world(call)

    outcome, asked = drive(registry.get("mathrag-gate").run(sample, chosen, PIPELINES_LIBRARY), answer)
    checks = [call for step in asked for call in step if isinstance(call, Verify)]
    assert checks
    assert not [call for step in asked for call in step if isinstance(call, Judge)]
    for candidate in outcome.trace.candidates:
        reply = verified(Verify(document=candidate.document))
        if isinstance(reply, Failure):
            assert (candidate.quality, candidate.failure) == (None, "verifier_timeout")
        else:
            assert (candidate.quality, candidate.features) == (
                reply.quality,
                {"verified": reply.verified, "refuted": reply.refuted, "unknown": 2},
            )
    ranked = [candidate.quality is not None for candidate in outcome.trace.candidates]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize(
    ("right", "wrong", "quality"), [(0, 0, None), (1, 0, 0.75), (0, 1, 0.25), (9, 0, 0.95), (3, 1, 0.7), (1, 1, 0.5)]
)
def test_quality_is_the_share_of_right_equations_as_far_as_so_few_can_say(
    right: int, wrong: int, quality: float | None
) -> None:
    assert Verified(verified=right, refuted=wrong, unknown=7).quality == (quality and pytest.approx(quality))


def test_calibration_documents_are_judged_and_checked_at_once() -> None:
    decided, asked = prepared(params_verifier_quality(gate={"truth": "verifier"}))
    assert [len(step) for step in asked] == [80, 82]
    assert [call.document for call in asked[1][41:] if isinstance(call, Verify)] == list(PIPELINES_HASHES[:41])
    assert msgspec.structs.replace(decided, truth=None) == prepared(Params())[0]


def test_a_decision_records_how_rules_and_judge_agree_with_the_truth() -> None:
    truth = prepared(params_verifier_quality(gate={"truth": "verifier"}))[0].truth
    assert truth is not None
    assert (truth.scores[:3], truth.refuted[:3], truth.failures) == ((None, None, 2.5 / 4), (0, None, 1), 1)
    assert (truth.rules.pairs, truth.judge.pairs) == (39, 39)
    assert truth.judge.rho is not None
    assert truth.judge.low is not None
    assert truth.judge.high is not None
    assert truth.judge.low < truth.judge.rho < truth.judge.high


def test_documents_without_a_rating_are_in_no_vector() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and PIPELINES_HASHES.index(call.document) < 4
        return Failure(kind=FailureKind.UNPARSED) if failed else checked(call)

    decided, _ = prepared(params_verifier_quality(gate={"truth": "verifier"}), answer)
    assert decided.truth is not None
    assert len(decided.truth.scores) == len(decided.truth.refuted) == len(decided.documents) == 37


def test_the_truth_is_recomputed_to_the_same_bytes() -> None:
    decided, _ = prepared(params_verifier_quality(gate={"truth": "verifier"}))
    stored = msgspec.json.decode(canonical.encode(decided), type=GateDecision)
    assert canonical.encode(stored) == canonical.encode(
        prepared(params_verifier_quality(gate={"truth": "verifier"}))[0]
    )


def test_a_judge_that_knows_right_from_wrong_agrees_with_the_truth_and_constant_rules_do_not() -> None:
    found = [Verified(verified=n, refuted=3 - n, unknown=0) for n in (0, 1, 2, 3)]
    truth = compare_with_truth([0.5] * 4, [0.1, 0.2, 0.3, 0.4], found)
    assert truth.judge.rho == pytest.approx(1.0)
    assert (truth.rules.rho, truth.rules.undefined) == (None, "the rules gave every document 0.5")


def test_vectors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rule, 1 judge scores, 1 checked"):
        compare_with_truth([0.1, 0.2], [0.3], [LOST])
