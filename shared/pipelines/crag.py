"""crag: what was found is evaluated, and refined, completed or replaced before anything is generated from it.

Yan et al. 2024; diversity, rounds and fallbacks are those of seed document 001.
"""

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Failure, FailureKind, Judge, Rerank, Retrieve, Write, Yielded, require
from shared.contracts.params import Params
from shared.contracts.samples import Decision, Library, Sample, Steps
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.crag import Action, judged
from shared.rag.knowledge import together
from shared.rag.language import localised
from shared.rag.pool import Pool
from shared.rag.provenance import answered, generation, searches
from shared.rag.rewriting import keywords, named, rewrite, rewritten

Part = Generator[Yielded, Any, Pool]


@pipeline("crag", reads=("candidates", "context_size", "crag", "enhance", *FUSED, "generate", "judge"))
def crag(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve from both indexes, evaluate, correct, then generate."""
    question = sample.question
    dense, sparse = yield searches(question, params)
    found = Pool(question).found(require(dense), sparse, 0, params, library)
    found = yield from _evaluated(found, params)
    found = yield from _refined(found, params, library)
    other = yield from _other(found, params, library)
    knowledge = together(question, found, other, params, library)
    generated = require((yield generation(question, knowledge.documents, knowledge.passage)))
    return answered(generated, knowledge.documents, knowledge.trace)


def _evaluated(pool: Pool, params: Params) -> Part:
    """Ask about every document that was not asked about yet; similarity asks nobody."""
    new = pool.open
    if not new or params.crag.evaluator == "similarity":
        return pool
    if params.crag.evaluator == "reranker":
        reply = yield Rerank(question=pool.question, documents=new)
        failed = isinstance(reply, Failure)
        return pool.scored(dict.fromkeys(new, reply) if failed else dict(zip(new, reply.scores, strict=True)))
    rubric = localised("relevance", pool.question)
    replies = yield [Judge(rubric=rubric, document=document, question=pool.question) for document in new]
    ratings = (reply if isinstance(reply, Failure) else reply.quality for reply in replies)
    return pool.scored(dict(zip(new, ratings, strict=True)))


def _refined(found: Pool, params: Params, library: Library) -> Part:
    """While a list is ambiguous and says the same again and again, search once more, `crag.rounds` times at most."""
    number = 0
    while True:
        evaluation, diversity = found.evaluation(params), found.diversity(library)
        found = found.decided(judged(evaluation, diversity, number))
        clear = evaluation.action is not Action.AMBIGUOUS or diversity >= params.crag.diversity
        if clear or number == params.crag.rounds:
            return found
        number += 1
        found = yield from _searched_again(found, number, params, library)
        found = yield from _evaluated(found, params)


def _searched_again(found: Pool, number: int, params: Params, library: Library) -> Part:
    """With another query; without one, for the next documents of the question's own lists."""
    written = rewritten(found.question, (yield _rewriting(found, number, params)))
    page = 0 if written.queries else number * params.candidates
    query = next(iter(written.queries), found.question)
    dense, sparse = yield [replace(each, skip=page) for each in searches(query, params)]
    more = found.decided(replace(written.decision, round=number)).found(dense, sparse, number, params, library)
    action = "rewritten" if written.queries else "deeper"
    new = float(len(more.documents) - len(found.documents))
    return more.decided(Decision(stage="refine", action=action, round=number, detail={"new": new}))


def _rewriting(found: Pool, number: int, params: Params) -> Write:
    """The first time of the question alone, then of what was found, too: from another angle."""
    if number == 1:
        return rewrite(found.question, params.enhance)
    return Write(
        template=localised("rewrite-again", found.question),
        decoding=params.enhance.decoding,
        slots={"question": found.question},
        documents=found.documents[: params.context_size],
    )


def _other(found: Pool, params: Params, library: Library) -> Part:
    """What the fallback corpus has for the question's keywords, evaluated; nothing where it is not needed."""
    nothing = Pool(found.question)
    if found.evaluation(params).action is Action.CORRECT:
        return nothing
    if not params.crag.fallback:
        return nothing.decided(Decision(stage="external", action="none", fallback=FailureKind.NOT_CONFIGURED.value))
    written = named(found.question, (yield keywords(found.question, params.enhance)))
    query = next(iter(written.queries), found.question)
    reply = yield Retrieve(question=query, index="fallback", k=params.candidates)
    other = found.elsewhere(reply, library)
    other = other._replace(decisions=(written.decision, *other.decisions))
    new = Decision(stage="external", action="searched", detail={"new": float(len(other.documents))})
    return (yield from _evaluated(other.decided(new), params))
