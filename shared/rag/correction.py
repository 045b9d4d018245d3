"""Correct a retrieval: evaluate the documents, search again, and complete them from another corpus (seed document 001).

All calls go to the retriever or the judge model, so they are finished before the generator is loaded.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Judge, Rerank, Retrieve, Write, Yielded
from shared.params import Params
from shared.rag.crag import ListAction, make_decision, needs_refinement
from shared.rag.language import localised
from shared.rag.pool import DocumentPool
from shared.rag.provenance import make_searches
from shared.rag.rewriting import ask_for_keywords, read_keywords, read_rewrite, rewrite
from shared.replies import Failure, FailureKind
from shared.samples import Decision, Library

Part = Generator[Yielded, Any, DocumentPool]


class CorrectedPools(NamedTuple):
    """The documents after correction."""

    found: DocumentPool
    """Documents of the corpus."""
    other: DocumentPool
    """Documents of the fallback corpus; empty if it was not searched."""


def correct(found: DocumentPool, params: Params, library: Library) -> Generator[Yielded, Any, CorrectedPools]:
    """Evaluate the found documents, refine them, and complete them from the fallback corpus."""
    found = yield from _evaluate(found, params)
    found = yield from _refine(found, params, library)
    other = yield from _search_fallback(found, params, library)
    return CorrectedPools(found, other)


def _evaluate(pool: DocumentPool, params: Params) -> Part:
    """Have every new document evaluated; for `similarity` no call is needed."""
    new = pool.unevaluated
    if not new or params.crag.evaluator == "similarity":
        return pool
    if params.crag.evaluator == "reranker":
        reply = yield Rerank(question=pool.question, documents=new)
        failed = isinstance(reply, Failure)
        return pool.add_scores(dict.fromkeys(new, reply) if failed else dict(zip(new, reply.scores, strict=True)))
    rubric = localised("relevance", pool.question)
    replies = yield [Judge(rubric=rubric, document=document, question=pool.question) for document in new]
    ratings = (reply if isinstance(reply, Failure) else reply.quality for reply in replies)
    return pool.add_scores(dict(zip(new, ratings, strict=True)))


def _refine(found: DocumentPool, params: Params, library: Library) -> Part:
    """Search again while the list is not good enough, `crag.rounds` times at most."""
    number = 0
    while True:
        evaluation, diversity = found.evaluate(params), found.measure_diversity(library)
        found = found.add_decision(make_decision(evaluation, diversity, number))
        if number == params.crag.rounds or not needs_refinement(evaluation.action, diversity, params.crag):
            return found
        number += 1
        found = yield from _search_again(found, number, params, library)
        found = yield from _evaluate(found, params)


def _search_again(found: DocumentPool, number: int, params: Params, library: Library) -> Part:
    """Search with a rewritten query; without one, fetch the next page for the question itself."""
    written = read_rewrite(found.question, (yield _make_rewrite_call(found, number, params)))
    page = 0 if written.queries else number * params.candidates
    query = next(iter(written.queries), found.question)
    dense, sparse = yield [replace(each, skip=page) for each in make_searches(query, params)]
    more = found.add_decision(replace(written.decision, round=number)).add_round(dense, sparse, number, params, library)
    action = "rewritten" if written.queries else "deeper"
    new = float(len(more.documents) - len(found.documents))
    return more.add_decision(Decision(stage="refine", action=action, round=number, detail={"new": new}))


def _make_rewrite_call(found: DocumentPool, number: int, params: Params) -> Write:
    """Ask for a rewrite of the question; from the second time on, show the found documents as well."""
    if number == 1 and not any(name.startswith("rewritten") for name, _ in found.lists):
        return rewrite(found.question, params.enhance)
    return Write(
        template=localised("rewrite-again", found.question),
        decoding=params.enhance.decoding,
        slots={"question": found.question},
        documents=found.documents[: params.context_size],
    )


def _search_fallback(found: DocumentPool, params: Params, library: Library) -> Part:
    """Search the fallback corpus by keywords and evaluate its documents; if it is not needed, return none."""
    nothing = DocumentPool(found.question)
    if found.evaluate(params).action is ListAction.CORRECT:
        return nothing
    if not params.crag.fallback:
        return nothing.add_decision(
            Decision(stage="external", action="none", fallback=FailureKind.NOT_CONFIGURED.value)
        )
    written = read_keywords(found.question, (yield ask_for_keywords(found.question, params.enhance)))
    query = next(iter(written.queries), found.question)
    reply = yield Retrieve(question=query, index="fallback", k=params.candidates)
    other = found.make_fallback_pool(reply, params, library)
    other = other._replace(decisions=(written.decision, *other.decisions))
    new = Decision(stage="external", action="searched", detail={"new": float(len(other.documents))})
    return (yield from _evaluate(other.add_decision(new), params))
