"""The gate: thresholds, routing, the relevance floor."""

import math
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Estimate, Generate, Judge, Rerank, Retrieve
from shared.params import GateParams, Params, RerankParams, RouteParams
from shared.pipelines import registry
from shared.rag import gate
from shared.rag.gate import (
    JudgeUnusable,
    Route,
    choose_route,
    decide_gate,
    judge_relevance_test,
    make_estimates,
    pair_documents,
    score_document,
    score_text,
)
from shared.replies import Document, Estimated, Failure, FailureKind, Relevance, Reply, Scored
from shared.runtime.price import dry_run, make_placeholder_job
from shared.samples import Decision, GateDecision, Item, Outcome, Sample, Strategy
from tests.unit.cases import named
from tests.unit.shared.pipelines.test_pipelines import (
    HASHES,
    LIBRARY,
    RATINGS,
    A,
    Answer,
    B,
    C,
    D,
    drive,
    neighbours,
    run,
    world,
)

# The confidence gate: correlation, decision, reason, and recomputation.


SHARES_OF_RATINGS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
PAIRS = st.lists(st.tuples(st.floats(0, 1), SHARES_OF_RATINGS), max_size=80)
AGREEING = [(i / 40, i / 40) for i in range(40)]
OPPOSED = [(i / 40, 1 - i / 40) for i in range(40)]


def decide(
    pairs: list[tuple[float, float]], *, asked: int | None = None, unparsed: int = 0, **params: object
) -> GateDecision:
    rules, judged = [rule for rule, _ in pairs], [judge for _, judge in pairs]
    documents = [f"d{i}" for i in range(len(pairs))]
    asked = len(pairs) + unparsed if asked is None else asked
    settings_ = msgspec.convert(params, GateParams)
    return decide_gate(documents, rules, judged, asked=asked, unparsed=unparsed, params=settings_)


def noisy(slope: float, n: int = 40) -> list[tuple[float, float]]:
    return [(i / n, slope * i / n + (0.3 if i % 2 else 0.0)) for i in range(n)]


def test_agreement_lets_the_rules_decide() -> None:
    decision = decide(AGREEING)
    assert decision.strategy is Strategy.RULES
    assert decision.rho == pytest.approx(1)
    assert decision.reason == "rho = 1.000 > tau = 0.45: rules"


def test_disagreement_calls_the_judge() -> None:
    decision = decide(OPPOSED)
    assert decision.strategy is Strategy.JUDGE
    assert decision.spearman == pytest.approx(-1)
    assert decision.reason == "rho = -1.000 <= tau = 0.45: judge"


def test_rho_equal_to_tau_means_judge() -> None:
    rho = decide(noisy(0.3)).rho
    assert rho is not None
    assert decide(noisy(0.3), tau=rho).strategy is Strategy.JUDGE
    assert decide(noisy(0.3), tau=math.nextafter(rho, -1)).strategy is Strategy.RULES


def test_an_interval_that_holds_tau_is_said() -> None:
    decision = decide(noisy(0.3), tau=0.5)
    assert decision.low is not None
    assert decision.high is not None
    assert decision.low < 0.5 < decision.high
    assert f"undecided at 95 %: the interval [{decision.low:.3f}, {decision.high:.3f}] holds tau" in decision.reason


def test_a_clear_decision_does_not_speak_of_doubt() -> None:
    decision = decide(noisy(5.0))
    assert decision.strategy is Strategy.RULES
    assert decision.low is not None
    assert decision.low > decision.tau
    assert "undecided" not in decision.reason


@given(st.lists(st.tuples(st.floats(0, 1), SHARES_OF_RATINGS), min_size=4, max_size=80))
def test_rho_and_its_interval_follow_the_formulas(pairs: list[tuple[float, float]]) -> None:
    decision = decide(pairs)
    assume(decision.rho is not None and abs(decision.rho) < 0.999999 and _spread(pairs) > 1e-3)
    x, y = zip(*pairs, strict=True)
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    covariance = math.fsum((a - mx) * (b - my) for a, b in pairs)
    rho = covariance / math.sqrt(math.fsum((a - mx) ** 2 for a in x) * math.fsum((b - my) ** 2 for b in y))
    half = 1.959963984540054 / math.sqrt(len(pairs) - 3)
    assert decision.rho == pytest.approx(rho, abs=1e-9)
    assert decision.low == pytest.approx(math.tanh(math.atanh(rho) - half), abs=1e-6)
    assert decision.high == pytest.approx(math.tanh(math.atanh(rho) + half), abs=1e-6)


def _spread(pairs: list[tuple[float, float]]) -> float:
    return min(max(column) - min(column) for column in zip(*pairs, strict=True))


@given(PAIRS, st.integers(0, 30))
def test_a_stored_decision_recomputes_bit_for_bit(pairs: list[tuple[float, float]], unparsed: int) -> None:
    first = decide(pairs, unparsed=unparsed, on_unusable="rules")
    stored = msgspec.json.decode(msgspec.json.encode(first), type=GateDecision)
    again = decide_gate(
        stored.documents,
        stored.rule_scores,
        stored.judge_scores,
        asked=stored.asked,
        unparsed=stored.unparsed,
        params=GateParams(tau=stored.tau, on_unusable="rules"),
    )
    assert msgspec.json.encode(again) == msgspec.json.encode(first)


@given(PAIRS)
def test_rules_are_chosen_only_above_tau(pairs: list[tuple[float, float]]) -> None:
    decision = decide(pairs)
    if decision.strategy is Strategy.RULES:
        assert decision.rho is not None
        assert decision.rho > decision.tau
        assert len(pairs) >= 30


@pytest.mark.parametrize(
    ("pairs", "who"),
    [
        ([(i / 40, 0.75) for i in range(40)], "the judge gave every document 0.75"),
        ([(0.3, i / 40) for i in range(40)], "the rules gave every document 0.3"),
        ([(0.1 + 0.2 if i % 2 else 0.3, i / 40) for i in range(40)], "the rules gave every document 0.3"),
    ],
)
def test_a_constant_vector_has_no_rho_and_means_judge(pairs: list[tuple[float, float]], who: str) -> None:
    decision = decide(pairs)
    assert (decision.strategy, decision.rho, decision.low, decision.high) == (Strategy.JUDGE, None, None, None)
    assert decision.spearman is None
    assert decision.reason == f"rho is undefined ({who}): judge"


def test_too_few_pairs_mean_judge_but_rho_is_still_reported() -> None:
    decision = decide(AGREEING[:29])
    assert decision.strategy is Strategy.JUDGE
    assert decision.reason == "29 scored documents, fewer than the 30 needed: judge"
    assert decision.rho == pytest.approx(1)
    assert decide(AGREEING[:30]).strategy is Strategy.RULES


@pytest.mark.parametrize("n", range(4))
def test_fewer_than_four_pairs_have_no_rho(n: int) -> None:
    decision = decide(AGREEING[:n], min_pairs=0)
    assert (decision.strategy, decision.rho, decision.low) == (Strategy.JUDGE, None, None)
    assert f"only {n} pairs" in decision.reason


def test_a_judge_that_mostly_fails_is_unusable() -> None:
    with pytest.raises(JudgeUnusable, match=r"51 of 100 replies have no rating.*`--set gate\.on_unusable=rules`"):
        decide(AGREEING, asked=100, unparsed=51)


def test_exactly_half_is_still_usable() -> None:
    assert decide(AGREEING, asked=100, unparsed=50).strategy is Strategy.RULES


def test_an_unusable_judge_can_be_replaced_by_rules() -> None:
    decision = decide(OPPOSED, asked=100, unparsed=60, on_unusable="rules")
    assert decision.strategy is Strategy.RULES
    assert decision.reason.startswith("judge unusable: 60 of 100 replies have no rating")
    assert (decision.asked, decision.unparsed) == (100, 60)
    assert decision.rho == pytest.approx(-1)


def test_a_judge_that_never_answers_can_be_replaced_by_rules_too() -> None:
    decision = decide([], asked=8, unparsed=8, on_unusable="rules")
    assert (decision.strategy, decision.rho, decision.documents) == (Strategy.RULES, None, ())


def test_nothing_to_calibrate_with_means_judge() -> None:
    assert decide([]).reason == "0 scored documents, fewer than the 30 needed: judge"


def test_the_decision_carries_its_vectors() -> None:
    decision = decide([(0.1, 0.2), (0.3, 0.4)])
    assert (decision.documents, decision.rule_scores, decision.judge_scores) == (("d0", "d1"), (0.1, 0.3), (0.2, 0.4))


def test_vectors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one score a document: 1 documents, 2 rule scores, 1 judge scores"):
        decide_gate(["a"], [0.1, 0.2], [0.3], asked=1, unparsed=0, params=GateParams())


def test_spearman_sees_order_where_pearson_sees_lines() -> None:
    decision = decide([(i / 40, (i / 40) ** 9) for i in range(40)])
    assert decision.spearman == pytest.approx(1)
    assert decision.rho is not None
    assert decision.rho < 0.9


def test_scipy_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, shared.rag.gate, mathrag.intervals; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Difficulty-aware routing in mathrag-gate: who is asked, who scores, and what the trace says of it.

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
    steps = dry_run(make_placeholder_job("mathrag-gate", params), Item(ordinal=0, question="q"))
    assert sum(call.role == "judge" for step in steps for call in step) >= params.candidates


# Rule-RQP: the four features, the length factor, and the score.

FILLER = "we look at the words of this sentence and then at those of the next one and so on until it ends "
PIECES = st.sampled_from(
    [
        "Therefore ",
        "Step 1. ",
        r"\begin{align} ",
        r"\boxed{3} ",
        "x = 2 ",
        r"\implies ",
        "apple ",
        "\n1. ",
        "因此",
        "é🙂 ",
    ]
)
TEXTS = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map("".join))


@given(TEXTS)
def test_score_and_features_lie_between_0_and_1(text: str) -> None:
    scored = score_text(text)
    assert all(0 <= value <= 1 for value in [scored.score, *scored.features.values()])


@given(TEXTS)
def test_score_is_the_papers_weighted_sum_scaled_by_length(text: str) -> None:
    s = score_text(text)
    form = 0.3 * s.logic + 0.3 * s.structure + 0.25 * s.math + 0.15 * s.box
    assert s.score == pytest.approx(s.length * form)


def test_the_weights_add_up_to_one() -> None:
    text = r"Step 1. Since \( x = 1 \) Step 2. Therefore \( y = 2 \). Hence \( x + y = 3 \) = \boxed{3} * 4 + 5 = 17"
    assert score_text(text).score == pytest.approx(1.0)


def test_the_empty_text_scores_nothing() -> None:
    assert score_text("").score == 0
    assert score_text("  \n ").math == 0


def test_each_connective_counts_once() -> None:
    connectives = [
        "Therefore", "THUS", "hence", "since", "Because", "so that", "so\nthat", "implies", r"\implies", r"\Rightarrow",
        r"\therefore", "consequently", "it follows", "⇒", "∴", "因为", "所以", "因此",
    ]  # fmt: skip
    texts = [f"a {connective} b" for connective in connectives]
    assert {text: found for text in texts if (found := named(score_text, text).logic) != pytest.approx(1 / 3)} == {}


def test_words_that_only_look_like_connectives_do_not_count() -> None:
    words = ["thusly", "insince", "so, that", r"\impliesfoo", "sincere", "whence", "so it is that"]
    texts = [f"a {word} b" for word in words]
    assert {text: found for text in texts if (found := named(score_text, text).logic) != 0} == {}


def test_logic_grows_with_connectives_and_saturates_at_three() -> None:
    marks = [score_text("Thus x. " * n).logic for n in range(6)]
    assert marks == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])


def test_each_structure_marker_counts_once() -> None:
    markers = [
        "Step 1", "step 12:", r"\begin{align}", r"\begin{cases}", r"\item", "1. first", "  2) second", "(3) third",
        "第一步", "第2步",
    ]  # fmt: skip
    texts = [f"{marker} and so on" for marker in markers]
    assert {text: found for text in texts if (found := named(score_text, text).structure) != 0.5} == {}


def test_text_that_only_looks_structured_does_not_count() -> None:
    texts = ["3.5 is a number", "the 1. place", "stepping 1", "a step", r"\itemize", r"\end{align}", "2024. Year"]
    assert {text: found for text in texts if (found := named(score_text, text).structure) != 0} == {}


def test_structure_saturates_at_two() -> None:
    assert [score_text("Step 1 " * n).structure for n in range(4)] == [0, 0.5, 1, 1]


def test_mathematics_is_judged_by_its_share_of_the_tokens() -> None:
    assert score_text("one two three 4").math == pytest.approx(0.5)
    assert score_text("one two + 4").math == 1
    assert score_text("one two three four").math == 0


def test_prose_dilutes_mathematics() -> None:
    assert score_text("so x = 2" + " word" * 20).math < score_text("so x = 2" + " word" * 10).math


def test_letters_that_are_words_are_not_variables() -> None:
    assert score_text("a A I").math == 0
    assert score_text("x").math == 1


@pytest.mark.parametrize(
    ("text", "box"), [(r"\boxed{5}", 1), (r"\boxed {5}", 1), ("boxed 5", 0), (r"\fbox{5}", 0), ("", 0)]
)
def test_a_box_is_there_or_not(text: str, box: float) -> None:
    assert score_text(text).box == box


def test_short_texts_are_scaled_down_in_proportion() -> None:
    assert score_text("word " * 5).length == pytest.approx(0.25)
    assert score_text("word " * 19).length < 1
    assert score_text("word " * 20).length == 1


def test_overlong_texts_lose_a_fifth_at_most() -> None:
    assert score_text("word " * 400).length == 1
    assert score_text("word " * 450).length == pytest.approx(400 / 450)
    assert score_text("word " * 5000).length == 0.8


@given(st.integers(0, 5), st.integers(0, 5))
def test_more_connectives_never_lower_a_text_of_fitting_length(fewer: int, more: int) -> None:
    low, high = sorted((fewer, more))
    texts = [FILLER + "therefore " * n + "moreover " * (5 - n) for n in (low, high)]
    assert score_text(texts[0]).score <= score_text(texts[1]).score


def test_a_box_raises_the_score() -> None:
    plain = FILLER + "the answer is 14"
    assert score_text(plain + r" \boxed{14}").score > score_text(plain).score


def test_worked_steps_beat_a_bare_answer() -> None:
    worked = r"Step 1. Since multiplication comes first, 3*4=12. Step 2. Therefore 2+12=14. The answer is \boxed{14}."
    assert score_text("The answer is 5.").score < 0.1
    assert score_text(worked).score > 0.8


def test_a_document_is_scored_by_its_solution_alone() -> None:
    document = Document(problem=r"Step 1. Therefore \boxed{1}", text="The answer is 5.")
    assert score_document(document) == score_text("The answer is 5.")


def test_a_document_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gate, "score_text", lambda text: calls.append(text) or score_text(text))
    for _ in range(3):
        score_document(Document(problem="p", text="scored once only"))
    assert calls == ["scored once only"]


# The relevance floor of mathrag-gate: what is unrelated is not rated, and does not win.

FLOOR = Params(rerank=RerankParams(floor=0.5))
RELEVANCE = {A: 0.9, B: 0.1, C: 0.5, D: 0.49}


def scored(call: Call) -> Reply:
    if isinstance(call, Rerank):
        return Scored(scores=tuple(RELEVANCE[document] for document in call.documents))
    return world(call)


def order(outcome: Outcome) -> list[str]:
    return [candidate.document for candidate in outcome.trace.candidates]


def test_a_well_reasoned_document_about_something_else_does_not_win() -> None:
    outcome, asked = run("mathrag-gate", scored, FLOOR)
    assert asked[1] == [Rerank(question="What is x?", documents=(C, A, B, D))]
    assert [call.document for call in asked[2] if isinstance(call, Judge)] == [C, A]
    assert RATINGS[C] > RATINGS[A]
    assert order(outcome) == [C, A, B, D]
    assert outcome.context == (C,)


def test_the_trace_says_how_relevant_each_was_and_how_many_were_left_out() -> None:
    outcome, _ = run("mathrag-gate", scored, FLOOR)
    last = outcome.trace.candidates[-1]
    assert [candidate.relevance for candidate in outcome.trace.candidates] == [0.5, 0.9, 0.1, 0.49]
    assert [candidate.rank for candidate in outcome.trace.candidates] == [1, 2, 3, 4]
    assert (last.quality, last.failure) == (None, None)
    assert outcome.trace.decisions == (
        Decision(stage="floor", action="floor", detail={"floor": 0.5, "below": 2.0}),
    )  # fmt: skip


def test_without_a_floor_nobody_is_asked() -> None:
    outcome, asked = run("mathrag-gate", scored)
    assert not any(isinstance(call, Rerank) for step in asked for call in step)
    assert outcome.trace.decisions == ()
    assert {candidate.relevance for candidate in outcome.trace.candidates} == {None}


def test_without_a_reranker_all_are_rated_and_the_trace_says_why() -> None:
    gone = Failure(kind=FailureKind.NOT_CONFIGURED)
    outcome, _ = run("mathrag-gate", lambda call: gone if isinstance(call, Rerank) else world(call), FLOOR)
    assert order(outcome) == order(run("mathrag-gate")[0])
    assert outcome.trace.decisions == (Decision(stage="floor", action="none", fallback="not_configured"),)


def test_where_nothing_is_relevant_nothing_is_rated() -> None:
    outcome, asked = run("mathrag-gate", scored, Params(rerank=RerankParams(floor=0.95)))
    assert not any(isinstance(call, Judge) for step in asked for call in step)
    assert order(outcome) == [C, A, B, D]
    assert not outcome.trace.unscored


def test_a_relevant_document_whose_judgement_failed_stays_before_the_unrelated() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and call.document == A
        return Failure(kind=FailureKind.UNPARSED) if failed else scored(call)

    outcome, _ = run("mathrag-gate", answer, FLOOR)
    assert order(outcome) == [C, A, B, D]
    assert outcome.trace.candidates[1].failure == "unparsed"
    assert not outcome.trace.unscored


def test_relevant_documents_none_of_which_could_be_rated_are_unscored() -> None:
    broken = Failure(kind=FailureKind.CONNECTION)
    outcome, _ = run("mathrag-gate", lambda call: broken if isinstance(call, Judge) else scored(call), FLOOR)
    assert outcome.trace.unscored


def test_the_floor_holds_for_rules_too() -> None:
    outcome, asked = run("mathrag-gate", scored, FLOOR, Strategy.RULES)
    assert {type(call).__name__ for step in asked for call in step} == {"Retrieve", "Rerank", "Generate"}
    assert [candidate.quality is None for candidate in outcome.trace.candidates] == [False, False, True, True]


def test_replay_repeats_the_floor() -> None:
    first, again = (run("mathrag-gate", scored, FLOOR) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)


# How many documents are rated: outside mathematics those of the prompt, so that quality removes nothing from it.


def test_documents_behind_the_rated_ones_stay_behind() -> None:
    outcome, asked = run("mathrag-gate", scored, Params(rated=2, context_size=2))
    assert [call.document for call in asked[1] if isinstance(call, Judge)] == [C, A]
    found = [(each.document, each.quality is None) for each in outcome.trace.candidates]
    assert found == [(C, False), (A, False), (B, True), (D, True)]


@pytest.mark.parametrize("strategy", [Strategy.JUDGE, Strategy.RULES])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_with_as_many_rated_as_the_prompt_holds_it_has_the_documents_of_hybrid(size: int, strategy: Strategy) -> None:
    params = Params(rated=size, context_size=size)
    outcome, _ = run("mathrag-gate", scored, params, strategy)
    plain, _ = run("hybrid", scored, params)
    assert set(outcome.context) == set(plain.context)
    assert len(outcome.context) == size


def test_of_documents_above_the_floor_the_first_are_rated() -> None:
    outcome, asked = run("mathrag-gate", scored, Params(rated=1, rerank=RerankParams(floor=0.5)))
    assert [call.document for call in asked[2] if isinstance(call, Judge)] == [C]
    assert order(outcome) == [C, A, B, D]


def judged_relevant(call: Call) -> Reply:
    if isinstance(call, Judge) and call.logprobs:
        return Relevance(probability=RELEVANCE[call.document], text="yes")
    return world(call)


def test_the_floor_may_be_asked_of_the_judge() -> None:
    by_judge, asked = run("mathrag-gate", judged_relevant, Params(rerank=RerankParams(by="yes-no", floor=0.5)))
    by_reranker, _ = run("mathrag-gate", scored, FLOOR)
    assert by_judge == by_reranker
    assert not any(isinstance(call, Rerank) for step in asked for call in step)


# The test of the judge's relevance: a question's own documents against those of another.


def test_each_questions_best_documents_are_paired_with_those_of_the_next_that_it_did_not_find() -> None:
    lists = [["a", "b", "c", "d"], ["a", "e", "f"], ["g"], ["a", "b"], []]
    assert pair_documents(lists) == [
        (0, ("a", "b"), ("e", "f")),
        (1, ("a",), ("g",)),
        (2, ("g",), ("a",)),
        (3, ("a", "b"), ("c", "d")),
    ]


@pytest.mark.parametrize(
    ("preferred", "questions", "passed"),
    [(6, 6, True), (5, 5, False), (9, 10, False), (10, 10, True), (12, 15, False), (13, 15, True), (36, 50, False)],
)
def test_a_judge_is_trusted_if_it_prefers_a_questions_own_documents(
    preferred: int, questions: int, passed: bool
) -> None:
    found = judge_relevance_test([([0.9], [0.1])] * preferred + [([0.1], [0.9])] * (questions - preferred))
    assert (found.preferred, found.questions, found.passed) == (preferred, questions, passed)
    assert found.reason.startswith(f"the judge prefers the documents of a question to others' for {preferred} of")
    assert found.reason.endswith("no floor") is not passed


def test_ties_are_no_preference_and_unread_replies_no_question() -> None:
    found = judge_relevance_test([([0.5], [0.5])] * 10 + [([], [0.5])] * 3 + [([0.9, 0.1], [0.8])] * 2)
    assert (found.questions, found.preferred, found.passed) == (12, 2, False)


def test_a_test_has_at_most_fifty_questions() -> None:
    assert len(pair_documents([[str(number)] for number in range(200)])) == 50


def test_a_plan_counts_the_calls_of_a_judge_that_is_trusted() -> None:
    job = make_placeholder_job("mathrag-gate", TESTED)
    roles = [each.role for calls in dry_run(job, Item(ordinal=0, question="q")) for each in calls]
    assert roles.count("judge") == Params().candidates


def test_without_a_question_to_tell_by_no_judge_is_trusted() -> None:
    assert not judge_relevance_test([]).passed
    assert pair_documents([]) == pair_documents([["a"]]) == pair_documents([["a"], ["a"]]) == []


TESTED = Params(quality="rules", rerank=RerankParams(by="rating", floor=0.5, tested=True))


def prepared(items: int, likes: Callable[[Judge], float]) -> tuple[GateDecision, list[list[Call]]]:
    """The decision for so many questions, each of which finds two documents of its own."""

    def answer(call: Call) -> Reply:
        if isinstance(call, Judge):
            return Relevance(probability=likes(call), text="[[3]]")
        return neighbours(call)

    asked = [Item(ordinal=number, question=f"q{number}") for number in range(items)]
    prepare = registry.get("mathrag-gate").prepare
    assert prepare is not None
    return drive(prepare(asked, TESTED, LIBRARY), answer)


def is_own(call: Judge) -> bool:
    number = int(str(call.question)[1:])
    return call.document in HASHES[number : number + 2]


def test_a_judge_that_knows_its_documents_passes_and_its_floor_counts() -> None:
    decision, asked = prepared(20, lambda call: 0.9 if is_own(call) else 0.2)
    assert decision.relevance is not None
    assert (decision.relevance.questions, decision.relevance.preferred, decision.relevance.passed) == (20, 20, True)
    assert decision.strategy is Strategy.RULES
    assert {type(call) for call in asked[1]} == {Judge}
    sample = Sample(item=Item(ordinal=0, question="What is x?"), prepared=decision)
    outcome, _ = drive(registry.get("mathrag-gate").run(sample, TESTED, LIBRARY), judged_relevant)
    assert [each.action for each in outcome.trace.decisions] == ["floor"]


def test_a_judge_that_guesses_fails_and_the_documents_are_those_without_a_floor() -> None:
    decision, _ = prepared(20, lambda call: int(canonical.digest(call).hex()[:4], 16) / 65_536)
    assert decision.relevance is not None
    assert not decision.relevance.passed
    sample = Sample(item=Item(ordinal=0, question="What is x?"), prepared=decision)
    outcome, asked = drive(registry.get("mathrag-gate").run(sample, TESTED, LIBRARY), judged_relevant)
    assert [each.action for each in outcome.trace.decisions] == ["judge not trusted"]
    assert not any(isinstance(call, Judge) for step in asked for call in step)
    assert order(outcome) == order(run("mathrag-gate", world, Params(quality="rules"), Strategy.RULES)[0])


def test_nothing_is_tested_unless_the_floor_depends_on_the_judge() -> None:
    for rerank in (
        RerankParams(by="reranker", floor=0.5, tested=True),
        RerankParams(by="rating", floor=0.0, tested=True),
        RerankParams(by="rating", floor=0.5),
    ):
        prepare = registry.get("mathrag-gate").prepare
        assert prepare is not None
        params = Params(quality="rules", rerank=rerank)
        decision, asked = drive(prepare([Item(ordinal=0, question="q0")], params, LIBRARY), neighbours)
        assert (decision.relevance, asked) == (None, [])
