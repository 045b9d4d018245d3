"""Compare the gate with a verifiable truth: do rules and judge recognise correct steps?

The gate asks whether rules and judge agree with each other; both may be wrong. A verifier finds out which documents
hold equations that are wrong, whoever wrote them and however well they read.
"""

from collections.abc import Sequence

from shared.rag.correlation import correlate
from shared.replies import Failure, Verified
from shared.samples import Agreement, Truth


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
