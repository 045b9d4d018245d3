"""Compress the context: keep the sentences of the documents that matter for the question (seed document 001).

A sentence's importance is the mean of the three values that the document lists, each in [0, 1]: its TF-IDF weight (its
cosine with all sentences together, relative to the highest: the centroid of Radev et al. 2004), its position (1 for the
first and last sentence of a text, 0 in the middle), and its TF-IDF cosine with the question. The document gives no
weights; here they are equal. Sentences are kept or dropped whole, with their formulas. Kept sentences stay in order,
and documents keep the format in which prompts show them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shared.params import CompressParams
from shared.rag.prompts import show_documents
from shared.rag.sentences import estimate_tokens, split_sentences
from shared.rag.shingles import Shingles, are_alike, make_shingles
from shared.rag.tfidf import TermWeights, cosine, extract_terms
from shared.replies import Document
from shared.samples import Decision, Library


class CompressedContext(NamedTuple):
    """What is left of the documents, for `Generate(context=documents, passage=passage)`."""

    documents: tuple[str, ...]
    """Hashes of the documents of which something is left."""
    passage: str
    """The remaining text; empty if the documents are shown unchanged, or none is shown."""
    decision: Decision


class _Sentence(NamedTuple):
    document: int
    text: str
    position: float
    """1 at the beginning and the end of the document, 0 in the middle."""
    terms: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Estimate the number of tokens."""
        return estimate_tokens(self.text)


def compress(question: str, documents: Sequence[str], library: Library, params: CompressParams) -> CompressedContext:
    """Keep the most important sentences of the documents: `params.ratio` of their tokens, and `params.tokens` in all.

    A document's problem is shown with the first sentence that is kept of it, and counts among the tokens. The one most
    important sentence that fits stays whatever the ratio. A ratio of 1 and enough tokens change nothing; otherwise
    sentences that repeat an earlier one go first.
    """
    whole = [library[document] for document in documents]
    before = estimate_tokens(show_documents(whole))
    parts = [part for at, document in enumerate(whole) for part in _split_document(at, document)]
    fits = before <= params.tokens
    if fits and params.ratio >= 1:
        return CompressedContext(tuple(documents), "", _decision(before, before, len(parts), 0))
    chosen = _choose(question, parts, [_count_frame_tokens(document) for document in whole], params)
    if fits and len(chosen) == len(parts):
        return CompressedContext(tuple(documents), "", _decision(before, before, len(parts), 0))
    left = _rebuild_documents(whole, [parts[at] for at in chosen])
    passage = show_documents(list(left.values()))
    decision = _decision(before, estimate_tokens(passage), len(parts), len(parts) - len(chosen))
    return CompressedContext(tuple(documents[at] for at in left), passage, decision)


def _decision(before: int, after: int, of: int, dropped: int) -> Decision:
    return Decision(
        stage="compress",
        action="compressed" if after < before else "unchanged",
        detail={
            "tokens before": float(before),
            "tokens after": float(after),
            "ratio": after / before if before else 1.0,
            "sentences": float(of),
            "dropped": float(dropped),
        },
    )


def _split_document(at: int, document: Document) -> list[_Sentence]:
    texts = split_sentences(document.text)
    last = max(1, len(texts) - 1)
    return [
        _Sentence(at, text, abs(2 * place / last - 1) if len(texts) > 1 else 1.0, tuple(extract_terms(text)))
        for place, text in enumerate(texts)
    ]


def _count_frame_tokens(document: Document) -> int:
    """Count the tokens of a document besides its sentences."""
    return estimate_tokens(show_documents([Document(problem=document.problem, text="")]))


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


def _choose(question: str, parts: Sequence[_Sentence], frames: Sequence[int], params: CompressParams) -> list[int]:
    """Return the indexes of the kept sentences in order, choosing the most important ones until the budget is used."""
    importance = _compute_importance(question, parts)
    order = sorted(_find_distinct(parts), key=lambda at: (-importance[at], at))
    room = _Budget(params.ratio * sum(part.tokens for part in parts), params.tokens, frames)
    return sorted(at for at in order if room.takes(parts[at]))


def _compute_importance(question: str, parts: Sequence[_Sentence]) -> list[float]:
    weights = TermWeights(part.terms for part in parts)
    question_vector = weights.vector(extract_terms(question))
    centroid = weights.vector([term for part in parts for term in part.terms])
    vectors = [weights.vector(part.terms) for part in parts]
    central = [cosine(vector, centroid) for vector in vectors]
    most = max(central, default=0.0) or 1.0
    return [
        (share / most + part.position + cosine(vector, question_vector)) / 3
        for part, vector, share in zip(parts, vectors, central, strict=True)
    ]


def _find_distinct(parts: Sequence[_Sentence]) -> list[int]:
    """Return the indexes of the sentences that do not repeat an earlier one; one without terms repeats none."""
    distinct: list[int] = []
    seen: list[Shingles] = []
    for at, part in enumerate(parts):
        mine = make_shingles(part.terms)
        if not any(are_alike(mine, other) for other in seen):
            distinct.append(at)
            seen.append(mine)
    return distinct


def _rebuild_documents(whole: Sequence[Document], kept: Sequence[_Sentence]) -> dict[int, Document]:
    """Return the documents with only their kept sentences, by index."""
    texts: dict[int, str] = {}
    for part in kept:
        texts[part.document] = texts.get(part.document, "") + part.text
    return {at: Document(problem=whole[at].problem, text=text.strip()) for at, text in texts.items()}
