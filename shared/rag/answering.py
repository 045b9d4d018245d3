"""The end of a pipeline: rank documents by relevance, compress them, and generate the answer from what fits."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Generate, Rerank, Yielded
from shared.params import CompressParams, Params, RelevanceSource
from shared.rag.prompts import ask_relevance, show_documents
from shared.rag.provenance import make_generation, make_outcome
from shared.rag.text import (
    Shingles,
    TermWeights,
    are_alike,
    cosine,
    estimate_tokens,
    extract_terms,
    make_shingles,
    split_sentences,
)
from shared.replies import Document, Failure, FailureKind, Generated, Scored, require
from shared.samples import Decision, Extraction, Library, Outcome, Steps, Trace

# Generate the answer from as many documents as the model's context holds: the last step of a pipeline.
#
# Only the model server knows how many tokens a prompt has; it refuses a prompt that does not fit before it computes
# anything. So the worst document is left out and the question is asked again, until the prompt fits. Each refusal is a
# stored reply: a replay and an audit leave out the same documents.

Prompt = Callable[[str, tuple[str, ...], str], Generate]
"""Makes the generator's call from the question, the documents' hashes, and a passage that replaces the documents."""


class PromptDocuments(NamedTuple):
    """The part of a prompt that shows documents."""

    documents: tuple[str, ...]
    """Hashes, in prompt order."""
    passage: str = ""
    """A text that replaces the documents; empty if they are shown whole, or none is shown."""
    decisions: tuple[Decision, ...] = ()
    """The decisions by which the passage was made."""


class GeneratedReplies(NamedTuple):
    """The generator's text, written with the documents that fitted."""

    replies: list[Generated | Failure]
    """One reply for each prompt, in their order."""
    documents: tuple[str, ...]
    """The documents in the prompts, in prompt order."""
    decisions: tuple[Decision, ...]
    """The decisions by which their passage was made and documents were left out."""


def answer(
    question: str,
    documents: Sequence[str],
    trace: Trace,
    show: Callable[[tuple[str, ...]], PromptDocuments] = PromptDocuments,
    prompt: Prompt = make_generation,
) -> Generator[Yielded, Any, Outcome]:
    """Answer a question with `documents`, best first; the trace names those that did not fit.

    `show` makes the prompt's part from the remaining documents. If none remain, the question is asked alone.

    Raises:
        CallFailed: the generator failed; `context_exceeded` if the question alone does not fit.
    """
    written = yield from write(lambda shown: [prompt(question, shown.documents, shown.passage)], documents, show)
    trace = replace(trace, decisions=(*trace.decisions, *written.decisions))
    return make_outcome(require(written.replies[0]), written.documents, trace)


def write(
    prompts: Callable[[PromptDocuments], list[Generate]],
    documents: Sequence[str],
    show: Callable[[tuple[str, ...]], PromptDocuments] = PromptDocuments,
) -> Generator[Yielded, Any, GeneratedReplies]:
    """Generate replies to prompts over `documents`, best first, leaving out those that do not fit.

    A document is left out if every prompt was refused for its length. Without documents, the failures are returned.
    """
    left, dropped = tuple(documents), list[Decision]()
    while True:
        shown = show(left)
        replies: list[Generated | Failure] = yield prompts(shown)
        refusals = [
            reply for reply in replies if isinstance(reply, Failure) and reply.kind is FailureKind.CONTEXT_EXCEEDED
        ]
        if not shown.documents or len(refusals) < len(replies):
            return GeneratedReplies(replies, shown.documents, (*shown.decisions, *dropped))
        *rest, worst = (document for document in left if document in shown.documents)
        left, refusal = tuple(rest), refusals[0]
        detail = {"document": worst, "reason": refusal.detail}
        dropped.append(Decision(stage="context", action="drop", detail={**detail}, fallback=refusal.kind.value))


# Compress the context: keep the sentences of the documents that matter for the question (seed document 001).
#
# A sentence's importance is the mean of the three values that the document lists, each in [0, 1]: its TF-IDF weight
# (its cosine with all sentences together, relative to the highest: the centroid of Radev et al. 2004), its position (1
# for the first and last sentence of a text, 0 in the middle), and its TF-IDF cosine with the question. The document
# gives no weights; here they are equal. Sentences are kept or dropped whole, with their formulas. Kept sentences stay
# in order, and documents keep the format in which prompts show them.


class _Sentence(NamedTuple):
    document: int
    text: str
    position: float
    """1 at the beginning and the end of the document, 0 in the middle."""
    terms: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


def compress_context(
    question: str, documents: tuple[str, ...], library: Library, params: CompressParams
) -> PromptDocuments:
    if not params.enabled or not documents:
        return PromptDocuments(documents)
    return compress(question, documents, library, params)


def compress(question: str, documents: Sequence[str], library: Library, params: CompressParams) -> PromptDocuments:
    """Keep the most important sentences of the documents: `params.ratio` of their tokens, and `params.tokens` in all.

    A document's problem is shown with the first sentence that is kept of it, and counts among the tokens. The one most
    important sentence that fits stays regardless of the ratio. A ratio of 1 and enough tokens change nothing; otherwise
    sentences that repeat an earlier one go first.
    """
    whole = [library[document] for document in documents]
    before = estimate_tokens(show_documents(whole))
    parts = [part for at, document in enumerate(whole) for part in _split_document(at, document)]
    fits = before <= params.tokens
    if fits and params.ratio >= 1:
        return PromptDocuments(tuple(documents), "", _describe_compression(before, before, len(parts), 0))
    # The indexes of the kept sentences in order, choosing the most important ones until the budget is used.
    frames = [estimate_tokens(show_documents([Document(problem=document.problem, text="")])) for document in whole]
    weights = TermWeights(part.terms for part in parts)
    question_vector = weights.vector(extract_terms(question))
    centroid = weights.vector([term for part in parts for term in part.terms])
    vectors = [weights.vector(part.terms) for part in parts]
    central = [cosine(vector, centroid) for vector in vectors]
    most = max(central, default=0.0) or 1.0
    importance = [
        (share / most + part.position + cosine(vector, question_vector)) / 3
        for part, vector, share in zip(parts, vectors, central, strict=True)
    ]
    # The indexes of the sentences that do not repeat an earlier one; one without terms repeats none.
    distinct: list[int] = []
    seen: list[Shingles] = []
    for number, part in enumerate(parts):
        mine = make_shingles(part.terms)
        if not any(are_alike(mine, other) for other in seen):
            distinct.append(number)
            seen.append(mine)
    order = sorted(distinct, key=lambda at: (-importance[at], at))
    room = _Budget(params.ratio * sum(part.tokens for part in parts), params.tokens, frames)
    chosen = sorted(at for at in order if room.takes(parts[at]))
    if fits and len(chosen) == len(parts):
        return PromptDocuments(tuple(documents), "", _describe_compression(before, before, len(parts), 0))
    texts: dict[int, str] = {}
    for part in map(parts.__getitem__, chosen):
        texts[part.document] = texts.get(part.document, "") + part.text
    passage = show_documents([Document(problem=whole[at].problem, text=text.strip()) for at, text in texts.items()])
    decisions = _describe_compression(before, estimate_tokens(passage), len(parts), len(parts) - len(chosen))
    return PromptDocuments(tuple(documents[at] for at in texts), passage, decisions)


def _describe_compression(before: int, after: int, of: int, dropped: int) -> tuple[Decision, ...]:
    detail = {
        "tokens before": float(before), "tokens after": float(after), "ratio": after / before if before else 1.0,
        "sentences": float(of), "dropped": float(dropped),
    }  # fmt: skip
    action = "compressed" if after < before else "unchanged"
    return (Decision(stage="compress", action=action, detail={**detail}),)


def _split_document(at: int, document: Document) -> list[_Sentence]:
    texts = split_sentences(document.text)
    last = max(1, len(texts) - 1)
    return [
        _Sentence(at, text, abs(2 * place / last - 1) if len(texts) > 1 else 1.0, tuple(extract_terms(text)))
        for place, text in enumerate(texts)
    ]


class _Budget:
    """The remaining number of tokens, in all and of the share to keep."""

    def __init__(self, share: float, tokens: int, frames: Sequence[int]) -> None:
        self._share = share
        self._tokens = tokens
        self._frames = dict(enumerate(frames))
        self._empty = True

    def takes(self, part: _Sentence) -> bool:
        """Take `part` if it fits, and return whether it does; the first part of a document also costs its frame."""
        price = part.tokens + self._frames.get(part.document, 0)
        if price > self._tokens or not (self._empty or part.tokens <= self._share):
            return False
        self._frames.pop(part.document, None)
        self._tokens -= price
        self._share -= part.tokens
        self._empty = False
        return True


# Decide by the probability of relevance: a document's place, whether it stays, and whether to answer at all.
#
# Seed documents 001 (a relevance threshold of 0.4 after reranking) and 003 (too uncertain: refuse). Both are about
# *probabilities*: a reranker's score after its activation, or a judge's rating in [0, 1]. A score that only compares
# the documents of one list (RRF, a batch-centred sigmoid, min-max) always has a best one, however bad; nothing here
# may be called with such scores, and a question is never refused for them.


class Ranking(NamedTuple):
    """Documents sorted by their relevance."""

    order: tuple[str, ...]
    """All documents, the most relevant first; in their original order if they could not be scored."""
    kept: tuple[str, ...]
    """Those of them that may enter the prompt."""
    relevance: dict[str, float]
    """Probabilities by document; empty if they could not be scored."""
    decisions: tuple[Decision, ...]
    refusal: str | None = None
    """Why the question is not to be answered."""


class FloorResult(NamedTuple):
    """The documents above the relevance floor, which are rated next."""

    rated: tuple[str, ...]
    """Documents to be rated, in their order."""
    relevance: dict[str, float]
    """Probabilities by document; empty if they could not be scored, or scores were not requested."""
    decisions: tuple[Decision, ...]


def ask_for_relevance(
    question: str, documents: Sequence[str], by: RelevanceSource
) -> Generator[Yielded, Any, dict[str, float | Failure]]:
    """Return the relevance of each distinct document, a probability, or why it is unknown; `by` is `rerank.by`.

    One call of the reranker for all documents, or one call of the judge model for each.

    Raises:
        ValueError: the reranker gave not one score a document.
    """
    if not documents:
        return {}
    if by in ("yes-no", "rating"):
        distinct = list(dict.fromkeys(documents))
        replies = yield [ask_relevance(question, document, by) for document in distinct]
        said = [reply if isinstance(reply, Failure) else reply.probability for reply in replies]
        return dict(zip(distinct, said, strict=True))
    reply: Scored | Failure = yield Rerank(question=question, documents=tuple(documents))
    if isinstance(reply, Failure):
        return dict.fromkeys(documents, reply)
    return dict(zip(documents, reply.scores, strict=True))


def rank_by_relevance(scores: Mapping[str, float | Failure], params: Params) -> Ranking:
    """Order documents by their relevance and keep those from `rerank.threshold` on.

    Equal documents keep their places, and so does a document whose relevance is unknown, which is kept. If no document
    reaches the threshold, the question is refused where `rerank.refuse` says so, and otherwise the best `context_size`
    stay. If no relevance is known, all documents stay as they came (seed document 001) and nothing is refused.
    """
    failures = [score for score in scores.values() if isinstance(score, Failure)]
    if failures and len(failures) == len(scores):
        decision = Decision(stage="rerank", action="original order", fallback=failures[0].kind.value)
        return Ranking(tuple(scores), tuple(scores), {}, (decision,))
    relevance = {document: score for document, score in scores.items() if not isinstance(score, Failure)}
    threshold, ranked = params.rerank.threshold, iter(sorted(relevance, key=lambda document: -relevance[document]))
    order = tuple(next(ranked) if document in relevance else document for document in scores)
    best = max(relevance.values(), default=None)
    kept = tuple(document for document in order if relevance.get(document, 1.0) >= threshold)
    action, refusal = "threshold" if kept else "best", ""
    if params.rerank.refuse and not kept:
        action, refusal = "refuse", "no document was found"
        if best is not None:
            refusal = f"the most relevant document has a probability of {best:.3f}, below {threshold}"
    elif not kept:
        kept = order[: params.context_size]
    detail = {"documents": float(len(order)), "kept": float(len(kept)), "best": best, "threshold": threshold}
    if failures:
        detail["unknown"] = float(len(failures))
    fallback = failures[0].kind.value if failures else None
    decision = Decision(stage="rerank", action=action, detail={**detail}, fallback=fallback)
    return Ranking(order, kept, relevance, (decision,), refusal or None)


def keep_above_floor(scores: Mapping[str, float | Failure], floor: float) -> FloorResult:
    """Return the documents whose relevance reaches `floor`, or is unknown."""
    failures = [score for score in scores.values() if isinstance(score, Failure)]
    relevance = {document: score for document, score in scores.items() if not isinstance(score, Failure)}
    if failures and not relevance:
        decision = Decision(stage="floor", action="none", fallback=failures[0].kind.value)
        return FloorResult(tuple(scores), {}, (decision,))
    rated = tuple(document for document in scores if relevance.get(document, 1.0) >= floor)
    detail = {"floor": floor, "below": float(len(scores) - len(rated))}
    if failures:
        detail["unknown"] = float(len(failures))
    fallback = failures[0].kind.value if failures else None
    decision = Decision(stage="floor", action="floor", detail={**detail}, fallback=fallback)
    return FloorResult(rated, relevance, (decision,))


def make_ranked_trace(trace: Trace, ranking: Ranking) -> Trace:
    """Put the trace's candidates in the ranking's order, each with its probability; its decisions come last.

    Documents that do not enter the prompt stay in the trace, those that were not ranked behind the others.
    """
    by_document = {candidate.document: candidate for candidate in trace.candidates}
    candidates = []
    for rank, document in enumerate(dict.fromkeys([*ranking.order, *by_document]), start=1):
        candidate = replace(by_document[document], rank=rank)
        if (relevance := ranking.relevance.get(document)) is not None:
            candidate = replace(candidate, relevance=relevance, score=relevance)
        candidates.append(candidate)
    return replace(trace, candidates=tuple(candidates), decisions=trace.decisions + ranking.decisions)


def make_floored_trace(trace: Trace, floored: FloorResult) -> Trace:
    """Add the probabilities to the trace and put those below the floor behind all others, in fused order.

    It is unscored only if something was to be rated.
    """
    rated = frozenset(floored.rated)
    behind = sorted(trace.candidates, key=lambda candidate: candidate.document not in rated)
    candidates = tuple(
        replace(candidate, rank=rank, relevance=floored.relevance.get(candidate.document))
        for rank, candidate in enumerate(behind, start=1)
    )
    unscored = trace.unscored and bool(rated)
    return replace(trace, candidates=candidates, unscored=unscored, decisions=trace.decisions + floored.decisions)


def make_refusal_outcome(reason: str, trace: Trace) -> Outcome:
    """Make the outcome of a refused question. It is not a failure: it is graded, as not correct."""
    return Outcome(answer=None, extraction=Extraction.REFUSED, refusal=reason, trace=trace)


# Finish after retrieval (seed document 001): rerank, drop irrelevant documents, compress, and generate.


def finish(
    question: str, documents: Sequence[str], trace: Trace, params: Params, library: Library, *, vague: bool
) -> Steps:
    """Answer with the best of `documents`, which keep their order; for a vague question only with certain ones.

    Raises:
        CallFailed: the generator failed.
    """
    if params.rerank.enabled:
        ranking = rank_by_relevance((yield from ask_for_relevance(question, documents, params.rerank.by)), params)
    else:
        ranking = Ranking(tuple(documents), tuple(documents), {}, ())
    trace = make_ranked_trace(trace, ranking)
    if ranking.refusal is not None:
        return make_refusal_outcome(ranking.refusal, trace)
    kept, relevance = ranking.kept, ranking.relevance
    if vague and relevance:
        # Keep documents that reach the threshold: for a vague question the best may well be noise (003).
        # Without scores, noise cannot be detected, so all documents stay.
        kept = tuple(document for document in kept if relevance[document] >= params.rerank.threshold)
    show = partial(compress_context, question, library=library, params=params.compress)
    return (yield from answer(question, kept[: params.context_size], trace, show))
