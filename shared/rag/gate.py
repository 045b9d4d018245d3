"""The confidence gate: decide whether rules may replace the judge on this corpus (MathRAG-Gate paper, section 3.3).

Both score the same calibration documents. rho > tau: they agree, the cheap rules do. rho <= tau, or no rho at all:
the judge does. Everything the decision rests on is returned with it, so that it can be recomputed bit for bit.
"""

from collections.abc import Sequence

from shared.params import GateParams
from shared.rag.correlation import Correlation, correlate
from shared.replies import SampleFailed
from shared.samples import GateDecision, Strategy


class JudgeUnusable(SampleFailed):
    """Too many of the judge's replies hold no rating, so a ranking by them would be meaningless."""

    def __init__(self, detail: str) -> None:
        super().__init__("judge_unusable", detail)


def decide_gate(
    documents: Sequence[str],
    rule_scores: Sequence[float],
    judge_scores: Sequence[float],
    *,
    asked: int,
    unparsed: int,
    params: GateParams,
) -> GateDecision:
    """Decide who scores quality from the documents that both scored (three sequences of one length, in [0, 1]).

    `asked` counts the judge calls, `unparsed` those without a rating. rho is Pearson's, its interval Fisher's z at
    95 %, both as scipy computes them; with fewer than four pairs or a constant vector they are None. With fewer
    than `params.min_pairs` pairs they are reported, but the judge is chosen whatever they are.

    Raises:
        JudgeUnusable: more than half of the replies have no rating and `params.on_unusable` is not "rules".
        ValueError: if the sequences differ in length.
    """
    if not len(documents) == len(rule_scores) == len(judge_scores):
        raise ValueError(
            f"one score a document: {len(documents)} documents, {len(rule_scores)} rule scores, "
            f"{len(judge_scores)} judge scores"
        )
    found = correlate(rule_scores, judge_scores, ("the rules", "the judge"))
    strategy, reason = _decide(found, len(documents), asked=asked, unparsed=unparsed, params=params)
    return GateDecision(
        strategy=strategy,
        reason=reason,
        tau=params.tau,
        rho=found.rho,
        low=found.low,
        high=found.high,
        spearman=found.spearman,
        documents=tuple(documents),
        rule_scores=tuple(rule_scores),
        judge_scores=tuple(judge_scores),
        asked=asked,
        unparsed=unparsed,
    )


def set_gate(strategy: Strategy, params: GateParams) -> GateDecision:
    """Record that the job itself says who scores; nothing is calibrated."""
    return GateDecision(
        strategy=strategy, reason=f"set by the parameter quality: {strategy.value}", tau=params.tau, rho=None, low=None,
        high=None, spearman=None, documents=(), rule_scores=(), judge_scores=(), asked=0, unparsed=0,
    )  # fmt: skip


def _decide(found: Correlation, pairs: int, *, asked: int, unparsed: int, params: GateParams) -> tuple[Strategy, str]:
    if 2 * unparsed > asked:
        return Strategy.RULES, _explain_unusable(asked, unparsed, params)
    if pairs < params.min_pairs:
        return Strategy.JUDGE, f"{pairs} scored documents, fewer than the {params.min_pairs} needed: judge"
    if found.rho is None:
        return Strategy.JUDGE, f"rho is undefined ({found.undefined}): judge"
    return _compare(found, found.rho, params.tau)


def _explain_unusable(asked: int, unparsed: int, params: GateParams) -> str:
    """Return the reason to fall back on rules, if the job allows that."""
    figures = f"judge unusable: {unparsed} of {asked} replies have no rating [[1]] to [[5]]"
    if params.on_unusable != "rules":
        raise JudgeUnusable(
            f"{figures}; use another judge model, or `--set gate.on_unusable=rules` to go on with rules"
        )
    return f"{figures}: rules, as gate.on_unusable says"


def _compare(found: Correlation, rho: float, tau: float) -> tuple[Strategy, str]:
    strategy, sign = (Strategy.RULES, ">") if rho > tau else (Strategy.JUDGE, "<=")
    reason = f"rho = {rho:.3f} {sign} tau = {tau:g}: {strategy.value}"
    if found.low is not None and found.high is not None and found.low <= tau <= found.high:
        reason += f"; undecided at 95 %: the interval [{found.low:.3f}, {found.high:.3f}] holds tau"
    return strategy, reason
