"""enhanced: the question in several wordings, all lists fused, reranked, compressed (seed document 001's flow)."""

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from shared.contracts.calls import Rerank, Scored, Yielded, require
from shared.contracts.params import Params
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag import wordings
from shared.rag.compression import compress
from shared.rag.enhancement import enhanced as prepared
from shared.rag.paths import gather, merged
from shared.rag.provenance import answered, generation
from shared.rag.relevance import Ranking, by_relevance, ranked_trace, refused


@pipeline(
    "enhanced",
    reads=("candidates", "compress", "context_size", "enhance", "fusion", "generate", "hyde", "rerank", "rrf_k"),
)
def enhanced(sample: Sample, params: Params, library: Library) -> Steps:
    """Make the question ready, retrieve by every wording, fuse, rerank, compress, then generate."""
    question = sample.question
    ready = prepared(question, params.enhance, params.fusion)
    paths = wordings.at_once(question, ready, params)
    replies = yield [*(path.call for path in paths), *wordings.asked(ready.question, params)]
    written = wordings.read(ready.question, replies[len(paths) :], params)
    further = wordings.afterwards(question, ready, written, params)
    more = (yield [path.call for path in further]) if further else []
    gathered = gather(paths + further, [*replies[: len(paths)], *more])
    trace = merged(question, gathered.lists, library, params)
    done = ready.decisions + written.decisions + gathered.decisions + trace.decisions
    ranking = yield from _ranked(question, [candidate.document for candidate in trace.candidates], params)
    trace = ranked_trace(msgspec.structs.replace(trace, decisions=done), ranking)
    if ranking.refusal is not None:
        return refused(ranking.refusal, trace)
    chosen = _certain(ranking, params) if ready.vague else ranking.kept
    chosen, passage = chosen[: params.context_size], ""
    if params.compress.enabled and chosen:
        chosen, passage, decision = compress(question, chosen, library, params.compress)
        trace = msgspec.structs.replace(trace, decisions=(*trace.decisions, decision))
    generated = require((yield generation(question, chosen, passage)))
    return answered(generated, chosen, trace)


def _ranked(question: str, documents: Sequence[str], params: Params) -> Generator[Yielded, Any, Ranking]:
    """By the reranker's probabilities, if the job wants it; without documents there is nothing to ask."""
    if not params.rerank.enabled:
        return Ranking(tuple(documents), tuple(documents), {}, ())
    reply = Scored(scores=())
    if documents:
        reply = yield Rerank(question=question, documents=tuple(documents))
    return by_relevance(documents, reply, params)


def _certain(ranking: Ranking, params: Params) -> tuple[str, ...]:
    """What reaches the threshold: of a vague question the best document is noise as likely as not (003).

    Where nobody could score, there is nothing to tell noise by, and all stay.
    """
    if not ranking.relevance:
        return ranking.kept
    return tuple(document for document in ranking.kept if ranking.relevance[document] >= params.rerank.threshold)
