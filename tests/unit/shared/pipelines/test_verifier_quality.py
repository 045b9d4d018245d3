"""mathrag-gate with a verifier: as the one who scores, and as the truth that rules and judge are held against."""

from typing import Any

import msgspec
import pytest

from shared import canonical
from shared.calls import Call, Judge, Verify
from shared.params import Params
from shared.pipelines import registry
from shared.rag.gate import compare_with_truth
from shared.replies import Failure, FailureKind, Reply, Verified
from shared.samples import GateDecision, Item, Sample, Strategy
from tests.unit.shared.pipelines.test_pipelines import HASHES, LIBRARY, drive, neighbours, world

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
