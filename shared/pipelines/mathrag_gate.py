"""mathrag-gate: reranks hybrid retrieval by reasoning quality, which the gate has the judge or rules score.

Seed document 000, section 3. The gate is calibrated once per job, before its samples.
"""

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from shared.calls import Judge, Verify, Yielded
from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import FloorResult, answer, ask_for_relevance, keep_above_floor, make_floored_trace
from shared.rag.fusion import rerank
from shared.rag.gate import (
    choose_route,
    compare_with_truth,
    decide_gate,
    judge_relevance_test,
    make_estimates,
    pair_documents,
    score_document,
    set_gate,
)
from shared.rag.prompts import ask_relevance, template
from shared.rag.provenance import DocumentScoring, FoundLists, choose_context, make_scored_trace, make_searches
from shared.replies import Failure, Rated, Verified, require
from shared.samples import Decision, Item, Library, PrepareSteps, RelevanceTest, Sample, Steps, Strategy

READS = (
    "anchors", "candidates", "context_size", "duplicates", *FUSED, "gate", "generate", "judge", "quality",
    "quality_weight", "rated", "rerank.by", "rerank.floor", "rerank.tested", "route", "rrf_weight", "seed",
)  # fmt: skip
"""Parameters that the pipeline reads."""

RUBRIC = template("reasoning-quality").id


def calibrate(items: Sequence[Item], params: Params, library: Library) -> PrepareSteps:
    """Let the gate decide who scores quality, and test whether the judge's relevance can be trusted, if that counts.

    `items` are the calibration items. Where neither depends on them, no call is made.

    Raises:
        CallFailed: if a search failed.
        JudgeUnusable: if most of the judge's replies have no rating.
    """
    tests = bool(params.rerank.tested and params.rerank.floor and params.rerank.by in ("yes-no", "rating"))
    lists: list[list[str]] = []
    if tests or params.quality == "gate":
        searches = [call for item in items for call in make_searches(item.question, params)]
        found = (yield searches) if searches else []
        for dense, sparse in zip(found[::2], found[1::2], strict=True):
            fused = FoundLists(require(dense), require(sparse)).fuse(params)
            lists.append([document for document, _ in fused])
    if params.quality == "gate":
        decision = yield from _calibrate_quality(lists, params, library)
    else:
        decision = set_gate(Strategy(params.quality), params.gate)
    if not tests:
        return decision
    return replace(decision, relevance=(yield from _test_relevance(items, lists, params)))


def _calibrate_quality(lists: Sequence[Sequence[str]], params: Params, library: Library) -> PrepareSteps:
    """Score the best documents of each list by rules and by judge, and let the gate decide.

    Replies without a rating are counted, and their documents left out.
    """
    # The distinct documents of every item's best `gate.top`, up to `gate.max_documents`, in item order.
    distinct = dict.fromkeys(document for each in lists for document in each[: params.gate.top])
    documents = list(islice(distinct, params.gate.max_documents))
    replies, checked = yield from _calibration_replies(documents, params)
    rated = {document: reply for document, reply in replies.items() if isinstance(reply, Rated)}
    decision = decide_gate(
        tuple(rated),
        [score_document(library[document]).score for document in rated],
        [_quality(reply, params) for reply in rated.values()],
        asked=len(replies),
        unparsed=len(replies) - len(rated),
        params=params.gate,
    )
    if params.gate.truth == "none":
        return decision
    truth = compare_with_truth(decision.rule_scores, decision.judge_scores, [checked[document] for document in rated])
    return replace(decision, truth=truth)


def _test_relevance(
    items: Sequence[Item], lists: Sequence[Sequence[str]], params: Params
) -> Generator[Yielded, Any, RelevanceTest]:
    """Ask the judge how relevant the best documents of each question are to it, and those of another question."""
    pairs = pair_documents(lists)
    asked = [
        ask_relevance(items[index].question, document, params.rerank.by)
        for index, own, others in pairs
        for document in (*own, *others)
    ]
    replies = iter((yield asked) if asked else ())
    sides = []
    for _, own, others in pairs:
        both = [[next(replies) for _ in side] for side in (own, others)]
        known = [[each.probability for each in side if not isinstance(each, Failure)] for side in both]
        sides.append((known[0], known[1]))
    return judge_relevance_test(sides)


@pipeline("mathrag-gate", prepare=calibrate, reads=READS)
def mathrag_gate(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve from both indexes, fuse, score the relevant documents, rerank, then generate."""
    if sample.prepared is None:
        raise ValueError("mathrag-gate needs the gate's decision in `sample.prepared`; run its `prepare` first")
    gate = sample.prepared
    estimates = make_estimates(sample.question, gate.strategy, params.route)
    dense, sparse, *estimated = yield [*make_searches(sample.question, params), *estimates]
    route = choose_route(estimated, gate.strategy, params.route)
    found = FoundLists(require(dense), require(sparse))
    fused = found.fuse(params)
    documents = tuple(document for document, _ in fused)
    floored = FloorResult(documents, {}, ())
    if documents and params.rerank.floor and gate.relevance is not None and not gate.relevance.passed:
        floored = FloorResult(documents, {}, (Decision(stage="floor", action="judge not trusted"),))
    elif documents and params.rerank.floor:
        # No unrelated document may win by being well reasoned.
        scores = yield from ask_for_relevance(sample.question, documents, params.rerank.by)
        floored = keep_above_floor(scores, params.rerank.floor)
    # Only the first ones: good reasoning need not be about the question.
    scorings = yield from _score(floored.rated[: params.rated], route.strategy, params, library)
    quality = {document: scoring.quality for document, scoring in scorings.items()}
    order = rerank(fused, quality, rrf_weight=params.rrf_weight, quality_weight=params.quality_weight)
    trace = make_floored_trace(make_scored_trace(order, found, scorings), floored)
    # The route's decision comes first, because it was taken before the scoring.
    trace = replace(trace, decisions=route.decisions + trace.decisions)
    return (yield from answer(sample.question, choose_context(trace, params), trace))


def _calibration_replies(
    documents: Sequence[str], params: Params
) -> Generator[Yielded, Any, tuple[dict[str, Rated | Failure], dict[str, Verified | Failure]]]:
    """Return each document's rating and, with `gate.truth: verifier`, the check of its equations.

    Repeated ratings are not read here: the report on the gate compares them with the first ones.
    """
    checked = documents if params.gate.truth == "verifier" else []
    again = [rating for draw in range(1, params.gate.repeats) for rating in _ratings(documents, draw)]
    calls: list[Judge | Verify] = [*_ratings(documents), *_checks(checked), *again]
    replies = iter((yield calls) if calls else ())
    judged, found = islice(replies, len(documents)), islice(replies, len(checked))
    return dict(zip(documents, judged, strict=True)), dict(zip(checked, found, strict=True))


def _score(
    documents: Sequence[str], strategy: Strategy, params: Params, library: Library
) -> Generator[Yielded, Any, dict[str, DocumentScoring]]:
    """Score every distinct document, all in one step.

    A failed judgement has no quality instead of a low one, and neither has a document without any equation.
    """
    scorings: dict[str, DocumentScoring] = {}
    distinct = list(dict.fromkeys(documents))
    if strategy is Strategy.RULES:
        for document in distinct:
            scored = score_document(library[document])
            scorings[document] = DocumentScoring(quality=scored.score, features=scored.features)
        return scorings
    if not distinct:
        return {}
    replies = yield _checks(distinct) if strategy is Strategy.VERIFIER else _ratings(distinct)
    for document, reply in zip(distinct, replies, strict=True):
        if isinstance(reply, Failure):
            scorings[document] = DocumentScoring(failure=reply.kind.value)
        elif isinstance(reply, Verified):
            counts = {name: float(getattr(reply, name)) for name in ("verified", "refuted", "unknown")}
            scorings[document] = DocumentScoring(quality=reply.quality, features=counts)
        else:
            scorings[document] = DocumentScoring(quality=_quality(reply, params))
    return scorings


def _ratings(documents: Sequence[str], draw: int = 0) -> list[Judge]:
    return [Judge(rubric=RUBRIC, document=document, draw=draw) for document in documents]


def _checks(documents: Sequence[str]) -> list[Verify]:
    return [Verify(document=document) for document in documents]


def _quality(reply: Rated, params: Params) -> float:
    """Return the rating's quality, calibrated on people's labels if the job has some."""
    calibrated = params.gate.calibrated
    return reply.quality if calibrated is None else calibrated.quality(reply.rating)
