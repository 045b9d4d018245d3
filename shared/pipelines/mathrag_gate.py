"""mathrag-gate: hybrid retrieval, reranked by reasoning quality, which rules or the judge score as the gate decides.

Seed document 000, section 3. The gate is calibrated once a job, before its samples.
"""

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Judge, Rerank, Verify, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Failure, Rated, Verified, require
from shared.contracts.samples import GateDecision, Item, Library, PrepareSteps, Sample, Steps, Strategy
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.gate import decide_gate, set_gate
from shared.rag.prompts import template
from shared.rag.provenance import Found, Scoring, context, scored_trace, searches
from shared.rag.relevance import Floored, above_floor, floored_trace
from shared.rag.rerank import rerank
from shared.rag.routing import estimates, routed, routed_trace
from shared.rag.rule_rqp import document_score
from shared.rag.truth import ground_truth

READS = (
    "anchors", "candidates", "context_size", "duplicates", *FUSED, "gate", "generate", "judge", "quality",
    "quality_weight", "rerank.floor", "route", "rrf_weight", "seed", "verify",
)  # fmt: skip
"""Parameters."""

RUBRIC = template("reasoning-quality").id


def calibrate(items: Sequence[Item], params: Params, library: Library) -> PrepareSteps:
    """Score the calibration items' best documents by rules and by judge, and let the gate decide.

    `items` are those already chosen for it. Replies without a rating are counted, and their documents left out.
    Where the job says who scores, nothing is asked.

    Raises:
        CallFailed: if a search failed.
        JudgeUnusable: if most of the judge's replies have no rating.
    """
    if params.quality != "gate":
        return set_gate(Strategy(params.quality), params.gate)
    documents = yield from _calibration_documents(items, params)
    replies, checked = yield from _calibration_replies(documents, params)
    rated = {document: reply for document, reply in replies.items() if isinstance(reply, Rated)}
    decision = decide_gate(
        tuple(rated),
        [document_score(library[document]).score for document in rated],
        [_quality(reply, params) for reply in rated.values()],
        asked=len(replies),
        unparsed=len(replies) - len(rated),
        params=params.gate,
    )
    if params.gate.truth == "none":
        return decision
    truth = ground_truth(decision.rule_scores, decision.judge_scores, [checked[document] for document in rated])
    return replace(decision, truth=truth)


@pipeline("mathrag-gate", prepare=calibrate, reads=READS)
def mathrag_gate(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve from both indexes, fuse, score what is relevant as the question deserves, rerank, then generate."""
    gate = _decision(sample)
    asked = estimates(sample.question, gate.strategy, params.route)
    dense, sparse, *estimated = yield [*searches(sample.question, params), *asked]
    route = routed(estimated, gate.strategy, params.route)
    found = Found(require(dense), require(sparse))
    fused = found.fused(params)
    floored = yield from _floored(sample.question, [document for document, _ in fused], params)
    scorings = yield from _score(floored.rated, route.strategy, params, library)
    quality = {document: scoring.quality for document, scoring in scorings.items()}
    order = rerank(fused, quality, rrf_weight=params.rrf_weight, quality_weight=params.quality_weight)
    trace = routed_trace(floored_trace(scored_trace(order, found, scorings), floored), route)
    return (yield from answer(sample.question, context(trace, params), trace))


def _decision(sample: Sample) -> GateDecision:
    if sample.prepared is None:
        raise ValueError("mathrag-gate needs the gate's decision in `sample.prepared`; run its `prepare` first")
    return sample.prepared


def _calibration_documents(items: Sequence[Item], params: Params) -> Generator[Yielded, Any, list[str]]:
    """The distinct documents among every item's best `gate.top`, at most `gate.max_documents`, in item order."""
    if not items:
        return []
    replies = yield [call for item in items for call in searches(item.question, params)]
    distinct: dict[str, None] = {}
    for dense, sparse in zip(replies[::2], replies[1::2], strict=True):
        best = Found(require(dense), require(sparse)).fused(params)[: params.gate.top]
        distinct.update((document, None) for document, _ in best)
    return list(islice(distinct, params.gate.max_documents))


def _calibration_replies(
    documents: Sequence[str], params: Params
) -> Generator[Yielded, Any, tuple[dict[str, Rated | Failure], dict[str, Verified | Failure]]]:
    """Every distinct document's rating and, where the gate is held against the truth, what its equations are worth.

    Ratings that are asked for again are of no use here: they are there for a report to compare with the first ones.
    """
    checked = documents if params.gate.truth == "verifier" else []
    again = [rating for draw in range(1, params.gate.repeats) for rating in _ratings(documents, draw)]
    calls: list[Judge | Verify] = [*_ratings(documents), *_checks(checked, params), *again]
    replies = iter((yield calls) if calls else ())
    judged, found = islice(replies, len(documents)), islice(replies, len(checked))
    return dict(zip(documents, judged, strict=True)), dict(zip(checked, found, strict=True))


def _floored(question: str, documents: Sequence[str], params: Params) -> Generator[Yielded, Any, Floored]:
    """What is relevant enough to be rated: an unrelated document does not win by being well reasoned."""
    if not documents or not params.rerank.floor:
        return Floored(tuple(documents), {}, ())
    reply = yield Rerank(question=question, documents=tuple(documents))
    return above_floor(documents, reply, params.rerank.floor)


def _score(
    documents: Sequence[str], strategy: Strategy, params: Params, library: Library
) -> Generator[Yielded, Any, dict[str, Scoring]]:
    if strategy is Strategy.RULES:
        return {document: _by_rules(document, library) for document in documents}
    if strategy is Strategy.VERIFIER:
        found = yield from _verified(documents, params)
        return {document: _by_verifier(reply) for document, reply in found.items()}
    replies = yield from _judged(documents)
    return {document: _by_judge(reply, params) for document, reply in replies.items()}


def _judged(documents: Sequence[str]) -> Generator[Yielded, Any, dict[str, Rated | Failure]]:
    """Every distinct document's rating, asked for in parallel."""
    distinct = list(dict.fromkeys(documents))
    if not distinct:
        return {}
    replies = yield _ratings(distinct)
    return dict(zip(distinct, replies, strict=True))


def _verified(documents: Sequence[str], params: Params) -> Generator[Yielded, Any, dict[str, Verified | Failure]]:
    """What every distinct document's equations are worth, asked for in parallel."""
    distinct = list(dict.fromkeys(documents))
    if not distinct:
        return {}
    replies = yield _checks(distinct, params)
    return dict(zip(distinct, replies, strict=True))


def _ratings(documents: Sequence[str], draw: int = 0) -> list[Judge]:
    return [Judge(rubric=RUBRIC, document=document, draw=draw) for document in documents]


def _checks(documents: Sequence[str], params: Params) -> list[Verify]:
    return [Verify(document=document, modulus=params.verify.modulus) for document in documents]


def _by_rules(document: str, library: Library) -> Scoring:
    scored = document_score(library[document])
    return Scoring(quality=scored.score, features=scored.features)


def _by_judge(reply: Rated | Failure, params: Params) -> Scoring:
    """A failed judgement is recorded as what it is: it has no quality, which is not a low one."""
    return Scoring(failure=reply.kind.value) if isinstance(reply, Failure) else Scoring(quality=_quality(reply, params))


def _quality(reply: Rated, params: Params) -> float:
    """The rating's, or what it is worth by people's labels."""
    calibrated = params.gate.calibrated
    return reply.quality if calibrated is None else calibrated.quality(reply.rating)


def _by_verifier(reply: Verified | Failure) -> Scoring:
    """A document of which nothing could be checked has no quality."""
    if isinstance(reply, Failure):
        return Scoring(failure=reply.kind.value)
    counts = {name: float(getattr(reply, name)) for name in ("verified", "refuted", "unknown")}
    return Scoring(quality=reply.quality, features=counts)
