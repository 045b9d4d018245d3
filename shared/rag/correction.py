"""Correction of what was found: evaluated, searched for again, and completed from another corpus (seed document 001).

Every call is the retriever's or the judge model's, so that all of it comes before the generator is loaded.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.contracts.calls import Judge, Rerank, Retrieve, Write, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Failure, FailureKind
from shared.contracts.samples import Decision, Library
from shared.rag.crag import Action, judged, needs_refinement
from shared.rag.language import localised
from shared.rag.pool import Pool
from shared.rag.provenance import searches
from shared.rag.rewriting import keywords, named, rewrite, rewritten

Part = Generator[Yielded, Any, Pool]


class Corrected(NamedTuple):
    """What there is after correction."""

    found: Pool
    """What the corpus has."""
    other: Pool
    """What the fallback corpus has; empty where it was not searched."""


def correct(found: Pool, params: Params, library: Library) -> Generator[Yielded, Any, Corrected]:
    """Evaluate what was found, refine it, and complete it from the fallback corpus."""
    found = yield from _evaluated(found, params)
    found = yield from _refined(found, params, library)
    other = yield from _other(found, params, library)
    return Corrected(found, other)


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
    """While a list is not good enough, search once more, `crag.rounds` times at most."""
    number = 0
    while True:
        evaluation, diversity = found.evaluation(params), found.diversity(library)
        found = found.decided(judged(evaluation, diversity, number))
        if number == params.crag.rounds or not needs_refinement(evaluation.action, diversity, params.crag):
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
    if number == 1 and not any(name.startswith("rewritten") for name, _ in found.lists):
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
    other = found.elsewhere(reply, params, library)
    other = other._replace(decisions=(written.decision, *other.decisions))
    new = Decision(stage="external", action="searched", detail={"new": float(len(other.documents))})
    return (yield from _evaluated(other.decided(new), params))
