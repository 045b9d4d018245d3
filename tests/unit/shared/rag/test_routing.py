"""Difficulty-aware routing in mathrag-gate: who is asked, who scores, and what the trace says of it."""

import pytest

from shared.calls import Call, Estimate, Generate, Judge, Retrieve
from shared.params import Params, RerankParams, RouteParams
from shared.rag.gate import Route, choose_route, make_estimates
from shared.replies import Estimated, Failure, FailureKind, Reply
from shared.runtime.price import _make_up_reply
from shared.samples import Decision, Outcome, Strategy
from tests.unit.shared.pipelines.test_pipelines import Answer, run, world

ROUTED = Params(route=RouteParams(enabled=True, threshold=0.4))
STRANGE = Failure(kind=FailureKind.REFUSED, detail="Chinese")


def looks(reply: Reply) -> Answer:
    return lambda call: reply if isinstance(call, Estimate) else world(call)


def hard(probability: float) -> Answer:
    return looks(Estimated(probability=probability))


def decided(action: str, probability: float) -> tuple[Decision, ...]:
    return (Decision(stage="route", action=action, detail={"probability": probability, "threshold": 0.4}),)


def judged(asked: list[list[Call]]) -> int:
    return sum(isinstance(call, Judge) for step in asked for call in step)


def scores(outcome: Outcome) -> list[tuple[str, float | None]]:
    return [(candidate.document, candidate.quality) for candidate in outcome.trace.candidates]


def test_an_easy_question_is_scored_by_rules_although_the_gate_chose_the_judge() -> None:
    outcome, asked = run("mathrag-gate", hard(0.39), ROUTED)
    by_rules, _ = run("mathrag-gate", world, strategy=Strategy.RULES)
    assert judged(asked) == 0
    assert scores(outcome) == scores(by_rules)
    assert (outcome.context, outcome.answer) == (by_rules.context, by_rules.answer)
    assert all(candidate.features for candidate in outcome.trace.candidates)
    assert outcome.trace.decisions == decided("easy", 0.39)


@pytest.mark.parametrize("probability", [0.4, 0.9])
def test_a_hard_question_goes_as_the_gate_decided(probability: float) -> None:
    outcome, asked = run("mathrag-gate", hard(probability), ROUTED)
    by_judge, _ = run("mathrag-gate", world)
    assert judged(asked) == 4
    assert scores(outcome) == scores(by_judge)
    assert outcome.trace.decisions == decided("hard", probability)


def test_the_estimate_is_asked_for_together_with_the_searches() -> None:
    _, asked = run("mathrag-gate", hard(0.9), ROUTED)
    assert [type(call) for call in asked[0]] == [Retrieve, Retrieve, Estimate]
    assert asked[0][2] == Estimate(question="What is x?")


def test_a_question_that_cannot_be_estimated_is_hard_and_the_trace_says_why() -> None:
    outcome, asked = run("mathrag-gate", looks(STRANGE), ROUTED)
    assert judged(asked) == 4
    assert outcome.trace.decisions == (Decision(stage="route", action="hard", fallback="refused"),)


def test_without_routing_nobody_estimates_and_the_trace_knows_no_route() -> None:
    outcome, asked = run("mathrag-gate")
    assert [type(call) for call in asked[0]] == [Retrieve, Retrieve]
    assert outcome.trace.decisions == ()


def test_where_rules_score_anyway_nobody_estimates() -> None:
    outcome, asked = run("mathrag-gate", hard(0.1), ROUTED, Strategy.RULES)
    assert not any(isinstance(call, Estimate) for step in asked for call in step)
    assert outcome.trace.decisions == ()


def test_easy_questions_need_no_verifier_either() -> None:
    assert choose_route([Estimated(probability=0.1)], Strategy.VERIFIER, ROUTED.route).strategy is Strategy.RULES
    assert choose_route([Estimated(probability=0.9)], Strategy.VERIFIER, ROUTED.route).strategy is Strategy.VERIFIER


@pytest.mark.parametrize(("threshold", "strategy"), [(0.0, Strategy.JUDGE), (1.0, Strategy.RULES)])
def test_the_ends_of_the_threshold_send_all_questions_one_way(threshold: float, strategy: Strategy) -> None:
    params = RouteParams(enabled=True, threshold=threshold)
    for probability in (0.000001, 0.5, 0.999999):
        assert choose_route([Estimated(probability=probability)], Strategy.JUDGE, params).strategy is strategy


def test_nothing_asked_nothing_changed() -> None:
    assert make_estimates("q", Strategy.JUDGE, RouteParams()) == ()
    assert choose_route([], Strategy.JUDGE, RouteParams()) == Route(Strategy.JUDGE, ())


def test_the_route_stands_before_the_other_decisions() -> None:
    params = Params(route=RouteParams(enabled=True), rerank=RerankParams(floor=0.5))
    gone = Failure(kind=FailureKind.NOT_CONFIGURED)
    answers = {Estimate: Estimated(probability=0.7), Generate: world(Generate(template="cot", question="q"))}
    outcome, _ = run("mathrag-gate", lambda call: answers.get(type(call)) or _or_gone(call, gone), params)
    assert [decision.stage for decision in outcome.trace.decisions] == ["route", "floor"]


def _or_gone(call: Call, gone: Failure) -> Reply:
    return world(call) if isinstance(call, Retrieve | Judge) else gone


def test_a_dry_run_prices_the_dearer_path() -> None:
    params = Params(route=RouteParams(enabled=True, threshold=1.0))
    outcome, asked = run("mathrag-gate", looks(_make_up_reply(Estimate(question="q"))), params)
    assert judged(asked) == 4
    assert outcome.trace.decisions[0].action == "hard"
