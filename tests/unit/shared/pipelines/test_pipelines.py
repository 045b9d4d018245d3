"""The pipelines, driven by hand: what they yield, what they make of the replies, and that replay repeats it."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Generate, Judge, Rerank, Retrieve, Verify
from shared.pages.lines import describe_decision
from shared.params import CriticParams, GateParams, Params
from shared.pipelines import registry
from shared.rag.fusion import rrf
from shared.rag.gate import JudgeUnusable, compare_with_truth, score_text
from shared.replies import CallFailed, Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved, Verified
from shared.runtime.advance import Replay
from shared.samples import Extraction, GateDecision, Item, Outcome, Sample, Strategy, Trace

WORKED = r"Step 1. Since {} is given, x = {}. Step 2. Therefore 2 * x = 14 and the answer is \boxed{{14}}."
DOCUMENTS = [Document(problem=f"p{i}", text=("so " * i) + WORKED.format(i, i) * (i % 3)) for i in range(60)]
LIBRARY = {document.hash: document for document in DOCUMENTS}
HASHES = [document.hash for document in DOCUMENTS]
BROKEN = Failure(kind=FailureKind.CONNECTION, detail="retriever is gone")
NAMES = ("closed-book", "dense", "hybrid", "mathrag-gate", "sparse")

Answer = Callable[[Call], Reply]


def found(*documents: str, duplicates: tuple[str, ...] = ()) -> Retrieved:
    hits = tuple(Hit(document=document, rank=i, score=10.0 - i) for i, document in enumerate(documents, start=1))
    return Retrieved(hits=hits, duplicates=duplicates)


A, B, C, D = HASHES[:4]
DENSE = found(A, B, C, duplicates=("dup", "dup2"))
SPARSE = found(C, D, duplicates=("dup",))
RATINGS = {A: 1, B: 5, C: 3, D: 4}


def world(call: Call) -> Reply:
    match call:
        case Retrieve():
            return DENSE if call.index == "dense" else SPARSE
        case Judge():
            rating = RATINGS.get(call.document, 1 + HASHES.index(call.document) % 5)
            return Rated(rating=rating, text=f"[[{rating}]]")
        case _:
            return Generated(text=r"So \boxed{14}.", truncated=False)


def broken(kind: type) -> Answer:
    return lambda call: BROKEN if isinstance(call, kind) else world(call)


def decision(strategy: Strategy) -> GateDecision:
    return GateDecision(
        strategy=strategy, reason="", tau=0.45, rho=None, low=None, high=None, spearman=None,
        documents=(), rule_scores=(), judge_scores=(), asked=0, unparsed=0,
    )  # fmt: skip


def drive(steps: Generator[Any, Any, Any], answer: Answer = world) -> tuple[Any, list[list[Call]]]:
    asked: list[list[Call]] = []
    reply: Any = None
    while True:
        try:
            yielded = steps.send(reply)
        except StopIteration as stop:
            return stop.value, asked
        many = isinstance(yielded, Sequence)
        asked.append(list(yielded) if many else [yielded])
        reply = [answer(call) for call in yielded] if many else answer(yielded)


def run(
    name: str, answer: Answer = world, params: Params | None = None, strategy: Strategy = Strategy.JUDGE
) -> tuple[Outcome, list[list[Call]]]:
    sample = Sample(item=Item(ordinal=0, question="What is x?"), prepared=decision(strategy))
    return drive(registry.get(name).run(sample, params or Params(), LIBRARY), answer)


def calibrate(items: int = 40, answer: Answer | None = None, **gate: Any) -> tuple[GateDecision, list[list[Call]]]:
    prepare = registry.get("mathrag-gate").prepare
    assert prepare is not None
    asked = [Item(ordinal=i, question=f"q{i}") for i in range(items)]
    params = Params(gate=msgspec.convert(gate, GateParams))
    return drive(prepare(asked, params, LIBRARY), answer or neighbours)


def neighbours(call: Call) -> Reply:
    if isinstance(call, Retrieve):
        i = int(call.question[1:])
        return found(HASHES[i]) if call.index == "dense" else found(HASHES[i + 1], HASHES[i])
    return world(call)


def test_the_five_pipelines_are_known_by_name() -> None:
    assert set(NAMES) <= set(registry.names())
    assert [registry.get(name).name for name in NAMES] == list(NAMES)


def test_only_the_gate_is_prepared() -> None:
    assert [name for name in NAMES if registry.get(name).prepare] == ["mathrag-gate"]


def test_an_unknown_pipeline_lists_the_known_ones() -> None:
    with pytest.raises(registry.UnknownPipeline, match=r"no pipeline 'densse'; the pipelines are closed-book, .*dense"):
        registry.get("densse")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="two pipelines are called 'dense'"):
        registry.pipeline("dense")(registry.get("sparse").run)


def test_hashes_tell_pipelines_apart_and_stay_the_same() -> None:
    hashes = [registry.pipeline_hash(name) for name in NAMES]
    assert len(set(hashes)) == len(NAMES)
    assert hashes == [registry.pipeline_hash(name) for name in NAMES]


def test_closed_book_only_generates() -> None:
    outcome, asked = run("closed-book")
    assert asked == [[Generate(template="cot", question="What is x?")]]
    assert (outcome.answer, outcome.extraction, outcome.context) == ("14", Extraction.OK, ())
    assert outcome.trace == Trace()


@pytest.mark.parametrize(("name", "best", "duplicates"), [("dense", A, ("dup", "dup2")), ("sparse", C, ("dup",))])
def test_one_index_gives_its_list_as_it_is(name: str, best: str, duplicates: tuple[str, ...]) -> None:
    outcome, asked = run(name)
    assert asked == [
        [Retrieve(question="What is x?", index=name, k=10)],
        [Generate(template="cot", question="What is x?", context=(best,))],
    ]
    assert outcome.context == (best,)
    assert outcome.trace.duplicates == duplicates
    first = outcome.trace.candidates[0]
    assert (first.document, first.rank, first.score, first.fused) == (best, 1, 9.0, None)
    assert (first.dense_rank, first.sparse_rank) == ((1, None) if name == "dense" else (None, 1))


def test_hybrid_fuses_both_lists() -> None:
    outcome, asked = run("hybrid")
    assert [call.index for call in asked[0] if isinstance(call, Retrieve)] == ["dense", "sparse"]
    candidates = outcome.trace.candidates
    assert [(entry.document, entry.fused) for entry in candidates] == rrf([[A, B, C], [C, D]])
    assert candidates[0] == msgspec.structs.replace(
        candidates[0], document=C, rank=1, dense_rank=3, sparse_rank=1, dense_score=7.0, sparse_score=9.0, quality=None
    )
    assert candidates[0].score == candidates[0].fused
    assert outcome.trace.duplicates == ("dup", "dup2")
    assert not outcome.trace.unscored


@pytest.mark.parametrize("name", ["hybrid", "mathrag-gate"])
def test_fusion_follows_the_jobs_parameters(name: str) -> None:
    words = run(name, params=msgspec.convert({"fusion": {"dense": 0}}, Params), strategy=Strategy.RULES)[0]
    assert {entry.document for entry in words.trace.candidates} == {C, D}
    fusion = {"method": "weighted", "dense": 0.7, "sparse": 0.3}
    weighted = run(name, params=msgspec.convert({"fusion": fusion}, Params), strategy=Strategy.RULES)[0]
    fused = {entry.document: entry.fused for entry in weighted.trace.candidates}
    assert fused == pytest.approx({A: 0.7, B: 0.35, C: 0.3, D: 0.0})


def test_lists_of_no_weight_at_all_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"`fusion\.dense` and `fusion\.sparse` are both 0"):
        msgspec.convert({"fusion": {"dense": 0, "sparse": 0}}, Params)


def test_all_retrieving_pipelines_ask_alike() -> None:
    params = Params(candidates=7)
    searches = {
        name: {
            canonical.digest(call)
            for step in run(name, params=params)[1]
            for call in step
            if isinstance(call, Retrieve)
        }
        for name in ("dense", "sparse", "hybrid", "mathrag-gate")
    }
    dense = Retrieve(question="What is x?", index="dense", k=7)
    assert searches["dense"] == {canonical.digest(dense)}
    assert searches["hybrid"] == searches["mathrag-gate"] == searches["dense"] | searches["sparse"]


def test_candidates_and_context_size_are_limits() -> None:
    outcome, asked = run("hybrid", params=Params(candidates=2, context_size=5))
    assert len(outcome.trace.candidates) == 2
    assert outcome.context == (C, A) == asked[1][0].context  # type: ignore[union-attr]


def test_the_judges_rating_decides_the_order() -> None:
    outcome, asked = run("mathrag-gate")
    assert asked[1] == [Judge(rubric="reasoning-quality", document=d) for d, _ in rrf([[A, B, C], [C, D]])]
    assert [entry.document for entry in outcome.trace.candidates] == [B, D, C, A]
    assert [entry.quality for entry in outcome.trace.candidates] == [1.0, 0.75, 0.5, 0.0]
    assert outcome.context == (B,)
    assert outcome.trace.candidates[2].score == pytest.approx(0.1 * 1 + 0.9 * 0.5)
    assert all(entry.features is None for entry in outcome.trace.candidates)


def test_rules_score_without_a_call() -> None:
    outcome, asked = run("mathrag-gate", strategy=Strategy.RULES)
    assert [type(call) for step in asked for call in step] == [Retrieve, Retrieve, Generate]
    for entry in outcome.trace.candidates:
        scored = score_text(LIBRARY[entry.document].text)
        assert (entry.quality, entry.features) == (scored.score, scored.features)


def test_a_failed_judgement_is_no_score() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and call.document == B
        return Failure(kind=FailureKind.UNPARSED) if failed else world(call)

    last = run("mathrag-gate", answer)[0].trace.candidates[-1]
    assert (last.document, last.quality, last.score, last.failure) == (B, None, None, "unparsed")


def test_a_sample_whose_judgements_all_fail_is_unscored() -> None:
    outcome, _ = run("mathrag-gate", broken(Judge))
    assert outcome.trace.unscored
    assert [entry.document for entry in outcome.trace.candidates] == [d for d, _ in rrf([[A, B, C], [C, D]])]
    assert {entry.failure for entry in outcome.trace.candidates} == {"connection"}
    assert outcome.answer == "14"


def test_one_rating_is_enough_to_be_scored() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and call.document != A
        return Failure(kind=FailureKind.TRUNCATED) if failed else world(call)

    outcome, _ = run("mathrag-gate", answer)
    assert not outcome.trace.unscored
    assert outcome.context == (A,)


@pytest.mark.parametrize("name", ["dense", "sparse", "hybrid", "mathrag-gate"])
def test_an_empty_index_still_gets_an_answer(name: str) -> None:
    outcome, asked = run(name, lambda call: Retrieved(hits=()) if isinstance(call, Retrieve) else world(call))
    assert all(asked)
    assert not any(isinstance(call, Judge) for step in asked for call in step)
    assert (outcome.context, outcome.trace, outcome.answer) == ((), Trace(), "14")


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_generation_ends_the_sample(name: str) -> None:
    with pytest.raises(CallFailed) as caught:
        run(name, broken(Generate))
    assert caught.value.failure == BROKEN


@pytest.mark.parametrize("index", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["hybrid", "mathrag-gate"])
def test_a_failed_search_ends_the_sample(name: str, index: str) -> None:
    with pytest.raises(CallFailed, match="connection: retriever is gone"):
        run(name, lambda call: BROKEN if isinstance(call, Retrieve) and call.index == index else world(call))


def test_the_gate_pipeline_needs_a_decision() -> None:
    sample = Sample(item=Item(ordinal=0, question="q"))
    with pytest.raises(ValueError, match=r"needs the gate's decision in `sample\.prepared`"):
        drive(registry.get("mathrag-gate").run(sample, Params(), LIBRARY))


@pytest.mark.parametrize(
    ("text", "answer", "extraction"),
    [
        (r"\boxed{1} no, \boxed{2", "1", Extraction.OK),
        (r"\boxed{2", None, Extraction.UNBALANCED),
        ("so it is two", None, Extraction.MISSING),
    ],
)
def test_a_truncated_answer_is_read_as_far_as_it_goes(text: str, answer: str | None, extraction: Extraction) -> None:
    outcome, _ = run("closed-book", lambda _: Generated(text=text, truncated=True))
    assert (outcome.answer, outcome.extraction, outcome.truncated) == (answer, extraction, True)


RETRIEVALS = st.lists(st.sampled_from(HASHES[:8]), max_size=12).map(lambda documents: found(*documents))
RATED = st.integers(1, 5).map(lambda rating: Rated(rating=rating, text=f"[[{rating}]]"))
JUDGED = RATED | st.sampled_from(list(FailureKind)).map(lambda kind: Failure(kind=kind))
WRITTEN = st.builds(Generated, text=st.sampled_from([r"\boxed{1}", "no", r"\boxed{"]), truncated=st.booleans())


@given(st.sampled_from(NAMES), st.sampled_from(Strategy), RETRIEVALS, RETRIEVALS, st.lists(JUDGED, min_size=8, max_size=8), WRITTEN)  # fmt: skip  # noqa: E501
def test_replay_repeats_calls_and_outcome(
    name: str, strategy: Strategy, dense: Retrieved, sparse: Retrieved, judged: list[Reply], written: Generated
) -> None:
    def answer(call: Call) -> Reply:
        match call:
            case Retrieve():
                return dense if call.index == "dense" else sparse
            case Judge():
                return judged[HASHES.index(call.document)]
            case Verify():
                reply = judged[HASHES.index(call.document)]
                return Verified(verified=reply.rating, refuted=1, unknown=0) if isinstance(reply, Rated) else reply
            case _:
                return written

    first, again = (run(name, answer, strategy=strategy) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
    candidates = first[0].trace.candidates
    assert [entry.rank for entry in candidates] == list(range(1, len(candidates) + 1))
    assert len({entry.document for entry in candidates}) == len(candidates)


def test_calibration_searches_at_once_then_judges_distinct_documents_at_once() -> None:
    decided, asked = calibrate(40)
    assert [len(step) for step in asked] == [80, 41]
    assert all(isinstance(call, Retrieve) for call in asked[0])
    assert asked[0][:2] == [Retrieve(question="q0", index=i, k=10) for i in ("dense", "sparse")]
    assert len({call.document for call in asked[1] if isinstance(call, Judge)}) == 41
    assert (decided.asked, decided.unparsed, len(decided.documents)) == (41, 0, 41)


def test_calibration_scores_each_document_by_both() -> None:
    decided, _ = calibrate(40)
    for document, rule, judge in zip(decided.documents, decided.rule_scores, decided.judge_scores, strict=True):
        assert rule == score_text(LIBRARY[document].text).score
        assert judge == world(Judge(rubric="reasoning-quality", document=document)).quality  # type: ignore[union-attr]


def test_calibration_takes_the_best_documents_of_each_item_up_to_a_limit() -> None:
    assert calibrate(5, top=1)[0].documents == tuple(HASHES[:5])
    assert calibrate(40, max_documents=3)[0].documents == tuple(calibrate(40)[0].documents[:3])


def test_calibration_leaves_out_and_counts_replies_without_a_rating() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and HASHES.index(call.document) < 4
        return Failure(kind=FailureKind.UNPARSED) if failed else neighbours(call)

    decided, _ = calibrate(40, answer)
    assert (decided.asked, decided.unparsed, len(decided.documents)) == (41, 4, 37)
    assert not set(HASHES[:4]) & set(decided.documents)


def test_calibration_with_a_mute_judge_fails_in_words() -> None:
    def answer(call: Call) -> Reply:
        return Failure(kind=FailureKind.UNPARSED) if isinstance(call, Judge) else neighbours(call)

    with pytest.raises(JudgeUnusable, match="41 of 41 replies"):
        calibrate(40, answer)
    assert calibrate(40, answer, on_unusable="rules")[0].strategy is Strategy.RULES


def test_calibration_asks_again_where_it_is_told_to_and_decides_as_if_it_had_not() -> None:
    def answer(call: Call) -> Reply:
        return Rated(rating=1, text="[[1]]") if isinstance(call, Judge) and call.draw else neighbours(call)

    decided, asked = calibrate(40, answer, repeats=3)
    assert [len(step) for step in asked] == [80, 123]
    draws = Counter((call.document, call.draw) for call in asked[1] if isinstance(call, Judge))
    assert draws == Counter((document, draw) for document in HASHES[:41] for draw in range(3))
    assert decided == calibrate(40)[0]


def test_calibration_needs_its_searches() -> None:
    with pytest.raises(CallFailed, match="retriever is gone"):
        calibrate(3, broken(Retrieve))


def test_calibration_without_items_asks_nothing_and_means_judge() -> None:
    decided, asked = calibrate(0)
    assert (decided.strategy, decided.asked, asked) == (Strategy.JUDGE, 0, [])


def test_calibration_replays_to_the_same_bytes() -> None:
    assert canonical.encode(calibrate(40)) == canonical.encode(calibrate(40))


# mathrag-gate with a verifier: as the one who scores, and as the truth that rules and judge are held against.

LOST = Failure(kind=FailureKind.VERIFIER_TIMEOUT)
ITEMS = [Item(ordinal=i, question=f"q{i}") for i in range(40)]


def params(**given: Any) -> Params:
    return msgspec.convert(given, Params)


def verified(call: Verify) -> Verified | Failure:
    n = HASHES.index(call.document)
    if n == 1:
        return LOST
    return Verified(verified=n, refuted=int(n > 0), unknown=2)


def checked(call: Call) -> Reply:
    return verified(call) if isinstance(call, Verify) else neighbours(call)


def prepared(chosen: Params, answer: Any = checked) -> tuple[GateDecision, list[list[Call]]]:
    prepare = registry.get("mathrag-gate").prepare
    assert prepare is not None
    return drive(prepare(ITEMS, chosen, LIBRARY), answer)


@pytest.mark.parametrize("strategy", Strategy)
def test_who_scores_may_be_said_and_then_nothing_is_calibrated(strategy: Strategy) -> None:
    decided, asked = prepared(params(quality=strategy.value))
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
    chosen = params(quality="verifier")
    sample = Sample(item=Item(ordinal=0, question="q0"), prepared=prepared(chosen)[0])

    def answer(call: Call) -> Reply:
        return verified(call) if isinstance(call, Verify) else world(call)

    outcome, asked = drive(registry.get("mathrag-gate").run(sample, chosen, LIBRARY), answer)
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
    decided, asked = prepared(params(gate={"truth": "verifier"}))
    assert [len(step) for step in asked] == [80, 82]
    assert [call.document for call in asked[1][41:] if isinstance(call, Verify)] == list(HASHES[:41])
    assert msgspec.structs.replace(decided, truth=None) == prepared(Params())[0]


def test_a_decision_records_how_rules_and_judge_agree_with_the_truth() -> None:
    truth = prepared(params(gate={"truth": "verifier"}))[0].truth
    assert truth is not None
    assert (truth.scores[:3], truth.refuted[:3], truth.failures) == ((None, None, 2.5 / 4), (0, None, 1), 1)
    assert (truth.rules.pairs, truth.judge.pairs) == (39, 39)
    assert truth.judge.rho is not None
    assert truth.judge.low is not None
    assert truth.judge.high is not None
    assert truth.judge.low < truth.judge.rho < truth.judge.high


def test_documents_without_a_rating_are_in_no_vector() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and HASHES.index(call.document) < 4
        return Failure(kind=FailureKind.UNPARSED) if failed else checked(call)

    decided, _ = prepared(params(gate={"truth": "verifier"}), answer)
    assert decided.truth is not None
    assert len(decided.truth.scores) == len(decided.truth.refuted) == len(decided.documents) == 37


def test_the_truth_is_recomputed_to_the_same_bytes() -> None:
    decided, _ = prepared(params(gate={"truth": "verifier"}))
    stored = msgspec.json.decode(canonical.encode(decided), type=GateDecision)
    assert canonical.encode(stored) == canonical.encode(prepared(params(gate={"truth": "verifier"}))[0])


def test_a_judge_that_knows_right_from_wrong_agrees_with_the_truth_and_constant_rules_do_not() -> None:
    found = [Verified(verified=n, refuted=3 - n, unknown=0) for n in (0, 1, 2, 3)]
    truth = compare_with_truth([0.5] * 4, [0.1, 0.2, 0.3, 0.4], found)
    assert truth.judge.rho == pytest.approx(1.0)
    assert (truth.rules.rho, truth.rules.undefined) == (None, "the rules gave every document 0.5")


def test_vectors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rule, 1 judge scores, 1 checked"):
        compare_with_truth([0.1, 0.2], [0.3], [LOST])


# A question without a vector: what is found by words is taken, and the trace says why there is nothing else.

WORDS = Document(problem="๑ บวก ๑ คืออะไร", text="so \\boxed{2}")
UNSEARCHED_LIBRARY = {WORDS.hash: WORDS}
QUESTION = "หนึ่งบวกหนึ่งเท่ากับเท่าไร"
REASON = "the embedder knows no token"


UNSEARCHED = Retrieved(hits=(), reason=REASON)


def ended(pipeline: str, dense: Retrieved = UNSEARCHED, **params: Any) -> Outcome:
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    replay = Replay(registry.get(pipeline).run(sample, Params(**params), UNSEARCHED_LIBRARY))
    while replay.calls:
        replay.answer([dense if is_dense(call) else reply(call) for call in replay.calls])
    assert replay.result is not None, replay.failure
    return replay.result


def is_dense(call: Call) -> bool:
    return isinstance(call, Retrieve) and call.index == "dense"


def reply(call: Call) -> Reply:
    match call:
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
    [("dense", ()), ("hyde", ()), ("hybrid", (WORDS.hash,)), ("crag", (WORDS.hash,)), ("critic-loop", (WORDS.hash,))],
)
def test_a_question_without_a_vector_is_answered_from_its_words(pipeline: str, found: tuple[str, ...]) -> None:
    outcome = ended(pipeline, critic=CriticParams(attempts=1))
    assert outcome.context == found
    [without] = [each for each in outcome.trace.decisions if each.fallback == "no_vector"]
    assert (without.stage, without.detail) == ("retrieve", {"said": REASON})
    assert without.action in ("without dense", "without original dense")


CUT = Retrieved(hits=(), cut=(Hit(document="f" * 64, rank=1, score=0.6), Hit(document="e" * 64, rank=2, score=0.5)))


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        *((name, ()) for name in ("dense", "hyde")),
        *((name, (WORDS.hash,)) for name in ("hybrid", "crag", "critic-loop", "enhanced", "enhanced-crag")),
        *((name, (WORDS.hash,)) for name in ("program-aided", "self-consistency")),
    ],
)
def test_a_list_of_which_the_threshold_left_nothing_is_an_empty_one(pipeline: str, found: tuple[str, ...]) -> None:
    outcome = ended(pipeline, CUT, critic=CriticParams(attempts=1))
    assert outcome.context == found
    first = next(each for each in outcome.trace.decisions if each.action == "cut")
    assert first.detail["search"] in ("dense", "original dense")
    assert (first.detail["documents"], first.detail["best"], first.fallback) == (2, 0.6, None)
    assert describe_decision(first, {}).endswith(f"`{first.detail['search']}` (the best of them has 0.6).")


def test_every_wording_without_a_vector_is_named() -> None:
    outcome = ended("enhanced")
    assert [each.action for each in outcome.trace.decisions if each.fallback == "no_vector"][:1] == [
        "without original dense"
    ]
    assert outcome.context == (WORDS.hash,)
