"""self-rag: the generator decides whether to retrieve, and rates each passage by its reflection tokens.

Asai et al. 2024, in the short form of their code. It needs a model with reflection tokens, on a server that gives
log-probabilities. The search is in the first step, so that the generator's two steps follow one another.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shared.calls import Generate
from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.grading import get_grader
from shared.rag.prompts import template
from shared.rag.provenance import make_outcome, make_search, make_single_trace
from shared.rag.self_rag import (
    NO_RETRIEVAL,
    PassageScores,
    choose_best,
    extract_answer,
    make_passage,
    require_reflection,
    retrieval_probability,
    score_passage,
)
from shared.replies import Failure, FailureKind, Generated, require
from shared.samples import Candidate, Decision, Library, Outcome, Sample, Steps, Trace

TEMPLATE = template("self-rag").id


class PassageBranch(NamedTuple):
    """The generator's text after one passage, with its scores."""

    candidate: Candidate
    generated: Generated
    scores: PassageScores


@pipeline(
    "self-rag", reads=("candidates", "dense", "duplicates", "generate.max_tokens", "generate.temperature", "self_rag")
)
def self_rag(sample: Sample, params: Params, library: Library) -> Steps:
    """Generate without a passage; if the model asks for some, generate after each and return the best answer."""
    found, plain = yield [make_search(sample.question, "dense", params), _continue_after("", sample, params)]
    plain = require_reflection(require(plain))
    wanted = retrieval_probability(plain.tokens[0])
    retrieves = wanted is None or wanted > params.self_rag.threshold
    decision = Decision(stage="retrieve", action="retrieve" if retrieves else "answer", detail={"probability": wanted})
    if not retrieves:
        if plain.tokens[0].text.strip() != NO_RETRIEVAL:
            plain = require((yield _continue_after(NO_RETRIEVAL, sample, params)))
        return _make_outcome(plain, (), Trace(decisions=(decision,)))
    trace = make_single_trace(require(found), "dense", params)
    trace = replace(trace, decisions=(decision, *trace.decisions))
    if not trace.candidates:
        return _make_outcome(plain, (), trace)
    passages = [make_passage(library[candidate.document]) for candidate in trace.candidates]
    # Two documents may have the same passage: generate once for both.
    distinct = list(dict.fromkeys(passages))
    written = dict(zip(distinct, (yield [_continue_after(text, sample, params) for text in distinct]), strict=True))
    replies = [written[text] for text in passages]
    failed = [_mark_failed(candidate, reply) for candidate, reply in zip(trace.candidates, replies, strict=True)]
    if all(candidate.failure == FailureKind.CONTEXT_EXCEEDED for candidate in failed):
        decisions = (*trace.decisions, *map(_make_omission_decision, failed))
        return _make_outcome(plain, (), replace(trace, candidates=tuple(failed), decisions=decisions))
    return _choose_best(replies, trace, params)


def _continue_after(said: str, sample: Sample, params: Params) -> Generate:
    """Ask the model to continue after `said`, a passage or a reflection token; empty at the start."""
    alternatives = params.self_rag.alternatives
    return Generate(template=TEMPLATE, question=sample.question, passage=said, logprobs=alternatives)


def _choose_best(replies: Sequence[Generated | Failure], trace: Trace, params: Params) -> Outcome:
    """Return the answer of the best path. Failed paths are left out; if all failed, the first failure is raised."""
    pairs = list(zip(trace.candidates, replies, strict=True))
    paths = [
        PassageBranch(candidate, reply, score_passage(reply.tokens, params.self_rag))
        for candidate, reply in pairs
        if isinstance(reply, Generated)
    ]
    if not paths:
        require(replies[0])
    texts = [path.generated.text for path in paths]
    extract = get_grader(params.grading.grader).extract
    chosen = paths[choose_best([path.scores.total for path in paths], texts, params.self_rag, extract)]
    failed = [_mark_failed(each, reply) for each, reply in pairs if isinstance(reply, Failure)]
    scored = [
        replace(path.candidate, relevance=path.scores.relevance, score=path.scores.total)
        for path in sorted(paths, key=lambda path: (-path.scores.total, path.candidate.rank))
    ]
    ranked = [replace(each, rank=rank) for rank, each in enumerate([*scored, *failed], start=1)]
    scores = [
        Decision(stage="passage", action="score", detail={"document": path.candidate.document, **path.scores._asdict()})
        for path in paths
    ]
    decisions = (*trace.decisions, *scores, *map(_make_omission_decision, failed))
    trace = replace(trace, candidates=tuple(ranked), decisions=decisions)
    return _make_outcome(chosen.generated, (chosen.candidate.document,), trace)


def _mark_failed(candidate: Candidate, reply: Generated | Failure) -> Candidate:
    """Return the candidate; if its reply failed, without a score and with the kind of failure."""
    return replace(candidate, score=None, failure=reply.kind.value) if isinstance(reply, Failure) else candidate


def _make_omission_decision(candidate: Candidate) -> Decision:
    detail = {"document": candidate.document}
    return Decision(stage="passage", action="leave out", detail={**detail}, fallback=candidate.failure)


def _make_outcome(generated: Generated, context: tuple[str, ...], trace: Trace) -> Outcome:
    return make_outcome(replace(generated, text=extract_answer(generated.text)), context, trace)
