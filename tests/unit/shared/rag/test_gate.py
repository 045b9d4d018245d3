"""The confidence gate: correlation, decision, reason, and recomputation."""

import math
import subprocess
import sys

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared.params import GateParams
from shared.rag.gate import JudgeUnusable, decide_gate
from shared.samples import GateDecision, Strategy

RATINGS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
PAIRS = st.lists(st.tuples(st.floats(0, 1), RATINGS), max_size=80)
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


@given(st.lists(st.tuples(st.floats(0, 1), RATINGS), min_size=4, max_size=80))
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
    code = "import sys, shared.rag.gate, shared.statistics.intervals; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
