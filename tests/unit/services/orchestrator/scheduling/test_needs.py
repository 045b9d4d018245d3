"""Which calls a job will make, from a dry run: counts by model, and the order in which they are needed."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.orchestrator.scheduling.demands import Needs, count_dry, estimate_new
from shared.calls import Lane
from shared.params import GateParams, GradingParams, HydeParams, Params, RerankParams
from shared.pipelines.binding import Binding, Pin
from shared.runtime.advance import JobSpec
from shared.samples import GateDecision, Strategy

pytestmark = pytest.mark.anyio

JUDGE, GENERATOR, DENSE, SPARSE, GRADER, RERANKER = range(1, 7)
PINS = {
    role: Pin(model_id=model, hash=f"{model:064x}")
    for role, model in (
        ("judge", JUDGE), ("generate", GENERATOR), ("dense", DENSE), ("sparse", SPARSE), ("grade", GRADER),
    )
}  # fmt: skip


def job(pipeline: str, pins: dict[str, Pin] = PINS, **params: Any) -> JobSpec:
    chosen = Params(candidates=4, **params)
    return JobSpec(
        id=1, pipeline=pipeline, dataset_id=1, params=chosen, prepared=None,
        binding=Binding(pins=pins, params=chosen),
    )  # fmt: skip


def calls(found: Needs) -> dict[int, int]:
    return {model: wanted.calls for model, wanted in found.wanted.items()}


def test_a_baseline_asks_the_generator_alone() -> None:
    found = estimate_new(job("closed-book"), 7)
    assert (calls(found), found.order) == ({GENERATOR: 7}, (GENERATOR,))
    assert found.wanted[GENERATOR].lane is Lane.GENERATE
    assert found.wanted[GENERATOR].tokens == Params().generate.max_tokens


def test_hypothetical_documents_are_the_judges() -> None:
    found = estimate_new(job("hyde", hyde=HydeParams(documents=3)), 10)
    assert (calls(found)[JUDGE], calls(found)[GENERATOR]) == (30, 10)
    assert [model for model in found.order if model in (JUDGE, GENERATOR)] == [JUDGE, GENERATOR]


def test_a_critic_that_is_never_content_reads_a_page_at_every_attempt() -> None:
    found = estimate_new(job("critic-loop"), 10)
    assert (calls(found)[JUDGE], calls(found)[GENERATOR]) == (10 * 3 * 3, 10)
    assert found.order[-1] == GENERATOR


@pytest.mark.parametrize("refuse", [False, True])
def test_a_question_may_be_asked_in_many_wordings_and_is_answered_all_the_same(refuse: bool) -> None:
    pins = {**PINS, "rerank": Pin(model_id=RERANKER, hash=f"{RERANKER:064x}")}
    found = estimate_new(job("enhanced", pins, rerank=RerankParams(refuse=refuse)), 10)
    assert calls(found) == {JUDGE: 20, DENSE: 50, SPARSE: 50, RERANKER: 10, GENERATOR: 10}
    assert found.order[-1] == GENERATOR


def test_a_rubric_needs_the_judge_again_after_the_generator() -> None:
    plain, rated = (
        estimate_new(job("mathrag-gate", grading=GradingParams(grader=name)), 10) for name in ("", "rubric")
    )
    assert calls(rated)[JUDGE] == calls(plain)[JUDGE] + 10
    assert [model for model in rated.order if model in (JUDGE, GENERATOR)][-2:] == [GENERATOR, JUDGE]
    assert rated.wanted[JUDGE].tokens == GradingParams().decoding.max_tokens


def test_self_rag_asks_the_generator_once_and_for_every_passage() -> None:
    found = estimate_new(job("self-rag"), 10)
    assert (JUDGE in calls(found), calls(found)[GENERATOR]) == (False, 10 * (1 + 4))


def test_the_gate_asks_its_judge_first() -> None:
    found = estimate_new(job("mathrag-gate", gate=GateParams(items=3)), 10)
    judged = count_dry(job("mathrag-gate"))
    calibration = sum(n for counted in judged.calibration for (model, _), n in counted.items() if model == JUDGE)
    candidates = sum(n for counted in judged.sample for (model, _), n in counted.items() if model == JUDGE)
    assert calibration > 0
    assert candidates > 1
    assert calls(found)[JUDGE] == 3 * calibration + 10 * candidates
    assert calls(found)[GENERATOR] == 10
    assert [model for model in found.order if model in (JUDGE, GENERATOR)][-1] == GENERATOR
    assert found.wanted[JUDGE].tokens == Params().judge.max_tokens


@pytest.mark.parametrize(("strategy", "asked"), [(Strategy.RULES, False), (Strategy.JUDGE, True)])
def test_a_gate_that_was_decided_is_believed(strategy: Strategy, asked: bool) -> None:
    decided = GateDecision(
        strategy=strategy, reason="", tau=0.45, rho=0.9, low=0.8, high=1.0, spearman=0.9, documents=(),
        rule_scores=(), judge_scores=(), asked=0, unparsed=0,
    )  # fmt: skip
    found = estimate_new(replace(job("mathrag-gate"), prepared=decided), 10)
    assert (JUDGE in found.wanted) == asked


def test_one_model_in_both_roles_is_one_model() -> None:
    one = {**PINS, "judge": PINS["generate"]}
    found = estimate_new(job("mathrag-gate", one), 10)
    two = estimate_new(job("mathrag-gate"), 10)
    assert calls(found)[GENERATOR] == calls(two)[GENERATOR] + calls(two)[JUDGE]
    assert found.wanted[GENERATOR].lane is Lane.JUDGE
    assert found.wanted[GENERATOR].tokens == Params().generate.max_tokens
