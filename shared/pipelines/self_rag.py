"""self-rag: the generator itself says whether to retrieve, and rates each passage by its reflection tokens.

Asai et al. 2024, in the short form of their code. For models with reflection tokens only, on servers that give
log-probabilities. Searches are made in the first round already, so that nothing comes between the generator's two.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shared.contracts.calls import Generate
from shared.contracts.params import Params
from shared.contracts.replies import Failure, FailureKind, Generated, require
from shared.contracts.samples import Candidate, Decision, Library, Outcome, Sample, Steps, Trace
from shared.pipelines.registry import pipeline
from shared.rag.graders import grader
from shared.rag.prompts import template
from shared.rag.provenance import answered, search, single_trace
from shared.rag.self_rag import NO_RETRIEVAL, Scores, answer_text, best, passage, reflecting, retrieval, score

TEMPLATE = template("self-rag").id


class Path(NamedTuple):
    """What was written after one passage."""

    candidate: Candidate
    generated: Generated
    scores: Scores


@pipeline("self-rag", reads=("candidates", "duplicates", "generate", "self_rag"))
def self_rag(sample: Sample, params: Params, library: Library) -> Steps:
    """Generate without a passage; where the model wants some, once after each, and give the best one's answer."""
    found, plain = yield [search(sample.question, "dense", params), _after("", sample, params)]
    plain = reflecting(require(plain))
    wanted = retrieval(plain.tokens[0])
    retrieves = wanted is None or wanted > params.self_rag.threshold
    decision = Decision(stage="retrieve", action="retrieve" if retrieves else "answer", detail={"probability": wanted})
    if not retrieves:
        if plain.tokens[0].text.strip() != NO_RETRIEVAL:
            plain = require((yield _after(NO_RETRIEVAL, sample, params)))
        return _answered(plain, (), Trace(decisions=(decision,)))
    trace = single_trace(require(found), "dense", params)
    trace = replace(trace, decisions=(decision, *trace.decisions))
    if not trace.candidates:
        return _answered(plain, (), trace)
    passages = [passage(library[candidate.document]) for candidate in trace.candidates]
    # Two documents may read alike; what is written after the same passage is asked for once.
    distinct = list(dict.fromkeys(passages))
    written = dict(zip(distinct, (yield [_after(text, sample, params) for text in distinct]), strict=True))
    replies = [written[text] for text in passages]
    failed = [_failed(candidate, reply) for candidate, reply in zip(trace.candidates, replies, strict=True)]
    if all(candidate.failure == FailureKind.CONTEXT_EXCEEDED for candidate in failed):
        decisions = (*trace.decisions, *map(_left_out, failed))
        return _answered(plain, (), replace(trace, candidates=tuple(failed), decisions=decisions))
    return _best(replies, trace, params)


def _after(said: str, sample: Sample, params: Params) -> Generate:
    """What the model goes on with after what it has said."""
    alternatives = params.self_rag.alternatives
    return Generate(template=TEMPLATE, question=sample.question, passage=said, logprobs=alternatives)


def _best(replies: Sequence[Generated | Failure], trace: Trace, params: Params) -> Outcome:
    """The answer of the best path. One that failed is left out; where all did, the first failure ends the sample."""
    asked = list(zip(trace.candidates, replies, strict=True))
    paths = [
        Path(candidate, reply, score(reply.tokens, params.self_rag))
        for candidate, reply in asked
        if isinstance(reply, Generated)
    ]
    if not paths:
        require(replies[0])
    texts = [path.generated.text for path in paths]
    extract = grader(params.grading.grader).extract
    chosen = paths[best([path.scores.total for path in paths], texts, params.self_rag, extract)]
    failed = [_failed(each, reply) for each, reply in asked if isinstance(reply, Failure)]
    scored = [
        replace(path.candidate, relevance=path.scores.relevance, score=path.scores.total)
        for path in sorted(paths, key=lambda path: (-path.scores.total, path.candidate.rank))
    ]
    ranked = [replace(each, rank=rank) for rank, each in enumerate([*scored, *failed], start=1)]
    decisions = (*trace.decisions, *map(_scored, paths), *map(_left_out, failed))
    trace = replace(trace, candidates=tuple(ranked), decisions=decisions)
    return _answered(chosen.generated, (chosen.candidate.document,), trace)


def _failed(candidate: Candidate, reply: Generated | Failure) -> Candidate:
    """The candidate, without a score where nothing was written after it."""
    return replace(candidate, score=None, failure=reply.kind.value) if isinstance(reply, Failure) else candidate


def _scored(path: Path) -> Decision:
    detail = {"document": path.candidate.document, **path.scores._asdict()}
    return Decision(stage="passage", action="score", detail=detail)


def _left_out(candidate: Candidate) -> Decision:
    return Decision(
        stage="passage", action="leave out", detail={"document": candidate.document}, fallback=candidate.failure
    )  # fmt: skip


def _answered(generated: Generated, context: tuple[str, ...], trace: Trace) -> Outcome:
    return answered(replace(generated, text=answer_text(generated.text)), context, trace)
