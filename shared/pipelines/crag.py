"""crag: what was found is evaluated, and refined, completed or replaced before anything is generated from it.

Yan et al. 2024; diversity, rounds and fallbacks are those of seed document 001.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from shared.contracts.calls import Failure, FailureKind, Judge, Rerank, Retrieve, Write, Yielded, require
from shared.contracts.params import Params
from shared.contracts.samples import Decision, Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag.crag import Action, judged, missing, query
from shared.rag.knowledge import together
from shared.rag.language import localised
from shared.rag.pool import Pool
from shared.rag.provenance import answered, generation, searches

Part = Generator[Yielded, Any, Pool]


@pipeline("crag")
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
    """With another query; without one, for the next documents of the question's own list."""
    seen = found.documents[: params.context_size] if number > 1 else ()
    template = localised("rewrite-again" if number > 1 else "rewrite", found.question)
    slots = {"question": found.question}
    written = yield Write(template=template, decoding=params.enhance.decoding, slots=slots, documents=seen)
    wanted = query(written)
    page = 0 if wanted else number * params.candidates
    dense, sparse = yield [
        msgspec.structs.replace(each, skip=page) for each in searches(wanted or found.question, params)
    ]
    more = found.found(dense, sparse, number, params, library)
    return more.decided(
        Decision(
            stage="refine",
            action="rewritten" if wanted else "deeper",
            round=number,
            detail={"query": wanted, "new": float(len(more.documents) - len(found.documents))},
            fallback=None if wanted else missing(written),
        )
    )


def _other(found: Pool, params: Params, library: Library) -> Part:
    """What the fallback corpus has for the question's keywords, evaluated; nothing where it is not needed."""
    if found.evaluation(params).action is Action.CORRECT:
        return Pool(found.question)
    if not params.crag.fallback:
        none = Decision(stage="external", action="none", fallback=FailureKind.NOT_CONFIGURED.value)
        return Pool(found.question).decided(none)
    slots = {"question": found.question}
    written = yield Write(template=localised("keywords", found.question), decoding=params.enhance.decoding, slots=slots)
    wanted = query(written)
    reply = yield Retrieve(question=wanted or found.question, index="fallback", k=params.candidates)
    other = found.elsewhere(reply, library)
    other = other.decided(
        Decision(
            stage="external",
            action="searched",
            detail={"query": wanted, "new": float(len(other.documents))},
            fallback=None if wanted else missing(written),
        )
    )
    return (yield from _evaluated(other, params))
