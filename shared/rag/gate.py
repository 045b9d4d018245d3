"""The confidence gate: rule scores, their correlation with a judge's, the verifier's truth, and routing."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from mathrag.intervals import wilson
from shared.calls import Estimate
from shared.params import GateParams, RouteParams
from shared.replies import Document, Estimated, Failure, SampleFailed, Verified
from shared.samples import Agreement, Decision, GateDecision, RelevanceTest, Strategy, Truth

# Agreement of two vectors of scores: Pearson's correlation with its interval, and Spearman's correlation.

FEWEST_FOR_RHO = 4
"""Fisher's z has standard error 1 / sqrt(n - 3): below four pairs, neither interval nor rho is meaningful."""
SAME_SCORE = 1e-9
"""Scores within this range of each other are one constant: rounding noise must not make a correlation."""


class Correlation(NamedTuple):
    """Pearson's rho with Fisher's z interval at 95 %, and Spearman's."""

    rho: float | None
    low: float | None = None
    high: float | None = None
    spearman: float | None = None
    undefined: str = ""
    """The reason why rho is missing."""


def correlate(one: Sequence[float], other: Sequence[float], who: tuple[str, str]) -> Correlation:
    """Correlate two vectors of one length by scipy; `who` names their sources.

    With fewer than four pairs, or a constant vector, the correlation is undefined.
    """
    if len(one) < FEWEST_FOR_RHO:
        return Correlation(rho=None, undefined=f"only {len(one)} pairs")
    for name, scores in zip(who, (one, other), strict=True):
        if max(scores) - min(scores) <= SAME_SCORE:
            return Correlation(rho=None, undefined=f"{name} gave every document {scores[0]:g}")
    from scipy import stats  # slow to import, and only a calibration needs it

    pearson, spearman = stats.pearsonr(one, other), stats.spearmanr(one, other)
    low, high = pearson.confidence_interval(0.95)
    return Correlation(float(pearson.statistic), float(low), float(high), float(spearman.statistic))


# The confidence gate: decide whether rules may replace the judge on this corpus (MathRAG-Gate paper, section 3.3).
#
# Both score the same calibration documents. rho > tau: they agree, the cheap rules do. rho <= tau, or no rho at all:
# the judge does. Everything the decision rests on is returned with it, so that it can be recomputed bit for bit.


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
    than `params.min_pairs` pairs they are reported, but the judge is chosen regardless of them.

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
        strategy=strategy, reason=reason, tau=params.tau, rho=found.rho, low=found.low, high=found.high,
        spearman=found.spearman, documents=tuple(documents), rule_scores=tuple(rule_scores),
        judge_scores=tuple(judge_scores), asked=asked, unparsed=unparsed,
    )  # fmt: skip


def set_gate(strategy: Strategy, params: GateParams) -> GateDecision:
    """Record that the job itself says who scores; nothing is calibrated."""
    return GateDecision(
        strategy=strategy, reason=f"set by the parameter quality: {strategy.value}", tau=params.tau, rho=None, low=None,
        high=None, spearman=None, documents=(), rule_scores=(), judge_scores=(), asked=0, unparsed=0,
    )  # fmt: skip


# Test whether the judge model can tell relevance, without any labels: on average, the documents that a search finds for
# a question must seem more relevant than those that it finds for another question.

TRUSTED = 0.6
"""Lower end of the interval from which a judge is trusted; one that guesses has 0.5 in the middle. 6 of 6, 10 of 10, 13
of 15 or 37 of 50 questions are enough."""
MOST_QUESTIONS = 50
"""Number of questions that are enough."""
COMPARED = 3
"""Number of documents of each side, of which the most relevant counts: the first alone may well be a miss."""


def pair_documents(lists: Sequence[Sequence[str]]) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Pair each question's best documents with as many of the next question whose documents it did not find.

    `lists` has the fused documents of each question, best first. Returns the question's index, its own documents and
    the others; questions without a partner are left out.
    """
    pairs: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []
    for index, found in enumerate(lists):
        if len(pairs) == MOST_QUESTIONS:
            break
        for step in range(1, len(lists)):
            others = [each for each in lists[(index + step) % len(lists)] if each not in found]
            if most := min(COMPARED, len(found), len(others)):
                pairs.append((index, tuple(found[:most]), tuple(others[:most])))
                break
    return pairs


def judge_relevance_test(sides: Sequence[tuple[Sequence[float], Sequence[float]]]) -> RelevanceTest:
    """Decide from the relevance of each question's own and other documents whether the judge is trusted.

    A question counts if each side has a known relevance, and as preferred if the highest one is on its own side.
    """
    known = [(max(own), max(others)) for own, others in sides if own and others]
    preferred = sum(own > others for own, others in known)
    low = wilson(preferred, len(known)).low
    passed = low >= TRUSTED
    verdict = "it can tell what is relevant" if passed else "too few to trust what it calls relevant: no floor"
    reason = f"the judge prefers the documents of a question to others' for {preferred} of {len(known)} questions"
    return RelevanceTest(
        questions=len(known), preferred=preferred, low=low, passed=passed, reason=f"{reason}: {verdict}"
    )


def _decide(found: Correlation, pairs: int, *, asked: int, unparsed: int, params: GateParams) -> tuple[Strategy, str]:
    if 2 * unparsed > asked:
        # The reason to fall back on rules, if the job allows that.
        figures = f"judge unusable: {unparsed} of {asked} replies have no rating [[1]] to [[5]]"
        if params.on_unusable != "rules":
            raise JudgeUnusable(
                f"{figures}; use another judge model, or `--set gate.on_unusable=rules` to go on with rules"
            )
        return Strategy.RULES, f"{figures}: rules, as gate.on_unusable says"
    if pairs < params.min_pairs:
        return Strategy.JUDGE, f"{pairs} scored documents, fewer than the {params.min_pairs} needed: judge"
    if found.rho is None:
        return Strategy.JUDGE, f"rho is undefined ({found.undefined}): judge"
    strategy, sign = (Strategy.RULES, ">") if found.rho > params.tau else (Strategy.JUDGE, "<=")
    reason = f"rho = {found.rho:.3f} {sign} tau = {params.tau:g}: {strategy.value}"
    if found.low is not None and found.high is not None and found.low <= params.tau <= found.high:
        reason += f"; undecided at 95 %: the interval [{found.low:.3f}, {found.high:.3f}] holds tau"
    return strategy, reason


# Compare the gate with a verifiable truth: do rules and judge recognise correct steps?
#
# The gate asks whether rules and judge agree with each other; both may be wrong. A verifier finds out which documents
# contain equations that are wrong, regardless of their author and style.


def compare_with_truth(
    rule_scores: Sequence[float], judge_scores: Sequence[float], found: Sequence[Verified | Failure]
) -> Truth:
    """Correlate both score vectors with the verifier's qualities, over the documents that have one.

    Raises:
        ValueError: if the sequences differ in length.
    """
    if not len(rule_scores) == len(judge_scores) == len(found):
        raise ValueError(f"{len(rule_scores)} rule, {len(judge_scores)} judge scores, {len(found)} checked documents")
    counted = [reply if isinstance(reply, Verified) else None for reply in found]
    scores = tuple(reply.quality if reply else None for reply in counted)
    return Truth(
        scores=scores,
        refuted=tuple(reply.refuted if reply else None for reply in counted),
        failures=counted.count(None),
        rules=_agreement(rule_scores, scores, "the rules"),
        judge=_agreement(judge_scores, scores, "the judge"),
    )


def _agreement(given: Sequence[float], truth: Sequence[float | None], who: str) -> Agreement:
    pairs = [(score, true) for score, true in zip(given, truth, strict=True) if true is not None]
    scores, true = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = correlate(scores, true, (who, "the verifier"))
    return Agreement(
        pairs=len(pairs), rho=found.rho, low=found.low, high=found.high, spearman=found.spearman,
        undefined=found.undefined or None,
    )  # fmt: skip


# Route by difficulty: easy questions are scored by rules and need no judge (MathRAG-Gate paper, 7.2).


class Route(NamedTuple):
    """Who scores the documents of one question, and why."""

    strategy: Strategy
    decisions: tuple[Decision, ...]


def make_estimates(question: str, strategy: Strategy, params: RouteParams) -> tuple[Estimate, ...]:
    """Make the calls that routing needs: none if it is off, or if rules score anyway."""
    return (Estimate(question=question),) if params.enabled and strategy is not Strategy.RULES else ()


def choose_route(replies: Sequence[Estimated | Failure], strategy: Strategy, params: RouteParams) -> Route:
    """Choose rules for a question that is hard with a probability below `params.threshold`, else `strategy`.

    A question that could not be estimated counts as hard, and the decision says why: `replies` are those to
    `estimates`.
    """
    if not replies:
        return Route(strategy, ())
    (reply,) = replies
    if isinstance(reply, Failure):
        return Route(strategy, (Decision(stage="route", action="hard", fallback=reply.kind.value),))
    easy = reply.probability < params.threshold
    detail = {"probability": reply.probability, "threshold": params.threshold}
    decision = Decision(stage="route", action="easy" if easy else "hard", detail={**detail})
    return Route(Strategy.RULES if easy else strategy, (decision,))


# Rule-RQP: how well a text is reasoned, judged by its form alone (the MathRAG-Gate paper, section 3.2.1).
#
# S_rule = length * (0.3 logic + 0.3 structure + 0.25 math + 0.15 box), every part in [0, 1]. The weights are the
# paper's. The paper names a normalisation and a length penalty without giving them; these are ours:
#
# - logic: min(1, connectives / 3); structure: min(1, markers / 2): one more never lowers the score
# - math: min(1, share of mathematical tokens / 0.5); MATH's median solution has a share of 0.6, a plain sentence 0.2
# - box: 1 if `\boxed{` occurs, else 0
# - length: below 20 tokens, tokens / 20; above 400 (MATH's 95th percentile), 400 / tokens but never below 0.8

LOGIC_WEIGHT = 0.3
STRUCTURE_WEIGHT = 0.3
MATH_WEIGHT = 0.25
BOX_WEIGHT = 0.15
LOGIC_SATURATION = 3
STRUCTURE_SATURATION = 2
MATH_SATURATION = 0.5
SHORT_TOKENS = 20
LONG_TOKENS = 400
LONG_FLOOR = 0.8

_CONNECTIVE = re.compile(
    r"\\(?:implies|iff|Rightarrow|Longrightarrow|therefore|because)(?![A-Za-z])"
    r"|\b(?:therefore|thus|hence|since|because|so\s+that|implies|consequently|it\s+follows)\b"
    r"|[⇒⟹∴∵]|因为|由于|所以|因此|从而",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"\bstep\s+\d|\\begin\{|\\item(?![A-Za-z])|^[ \t]*\(?\d{1,2}[.)]\s|第[一二三四五六七八九十\d]{1,3}步",
    re.IGNORECASE | re.MULTILINE,
)
_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]+|\d+(?:\.\d+)?|[一-鿿]|[=+\-*/^<>_×÷≤≥]")
_MATHEMATICAL = re.compile(r"\\[A-Za-z]|[\d=+\-*/^<>_×÷≤≥]|[B-HJ-Zb-z]\Z")
_BOX = re.compile(r"\\boxed\s*\{")


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """The four features, the length factor, and the score they make; all in [0, 1]."""

    logic: float
    structure: float
    math: float
    box: float
    length: float
    score: float

    @property
    def features(self) -> dict[str, float]:
        """Return everything but the score, by name, for the trace."""
        return {name: getattr(self, name) for name in ("logic", "structure", "math", "box", "length")}


def score_text(text: str) -> RuleScore:
    """Score the reasoning in `text` (a worked solution without its problem); the empty text scores 0."""
    tokens = _TOKEN.findall(text)
    logic = _saturate(_count(_CONNECTIVE, text), LOGIC_SATURATION)
    structure = _saturate(_count(_MARKER, text), STRUCTURE_SATURATION)
    share = sum(1 for token in tokens if _MATHEMATICAL.match(token)) / max(1, len(tokens))
    math = min(1.0, share / MATH_SATURATION)
    box = float(bool(_BOX.search(text)))
    if len(tokens) < SHORT_TOKENS:
        length = len(tokens) / SHORT_TOKENS
    else:
        length = max(LONG_FLOOR, min(1.0, LONG_TOKENS / len(tokens)))
    form = LOGIC_WEIGHT * logic + STRUCTURE_WEIGHT * structure + MATH_WEIGHT * math + BOX_WEIGHT * box
    return RuleScore(logic=logic, structure=structure, math=math, box=box, length=length, score=min(1.0, length * form))


@lru_cache(maxsize=16384)
def score_document(document: Document) -> RuleScore:
    """Score a document's text, cached by content because replays score the same documents again."""
    return score_text(document.text)


def _count(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _saturate(count: int, full: int) -> float:
    return min(1.0, count / full)
