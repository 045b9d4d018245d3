"""Context compression: the sentences of the documents that matter for the question (seed document 001).

A sentence's importance is the mean of the three that the document lists, each in [0, 1]: its TF-IDF weight (its cosine
with all sentences together, relative to the highest: the centroid of Radev et al. 2004), its position (1 for a text's
first and last sentence, 0 in the middle), and its TF-IDF cosine with the question. The document gives no weights; here
they are equal. Sentences are kept or dropped whole, and with them their formulas; those that stay keep their order, and
their documents the shape in which prompts show them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shared.contracts.documents import Document
from shared.contracts.params import CompressParams
from shared.contracts.samples import Decision, Library
from shared.rag.prompts import shown
from shared.rag.sentences import sentences, tokens
from shared.rag.shingles import Shingles, alike, shingles
from shared.rag.tfidf import Weights, cosine, terms


class Compressed(NamedTuple):
    """What compression left of documents: `Generate(context=documents, passage=passage)` shows just that."""

    documents: tuple[str, ...]
    """Hashes of those of which something is left."""
    passage: str
    """What is left; empty where the documents are shown as they are (or none is)."""
    decision: Decision


class _Sentence(NamedTuple):
    document: int
    text: str
    position: float
    """1 at the beginning and the end of its document, 0 in the middle."""
    terms: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """As they are estimated."""
        return tokens(self.text)


def compress(question: str, documents: Sequence[str], library: Library, params: CompressParams) -> Compressed:
    """Keep the most important sentences of the documents: `params.ratio` of their tokens, and `params.tokens` in all.

    A document's problem is shown with the first sentence that is kept of it, and counts among the tokens. The one most
    important sentence that fits stays whatever the ratio. A ratio of 1 and enough tokens change nothing; otherwise
    sentences that repeat an earlier one go first.
    """
    whole = [library[document] for document in documents]
    before = tokens(shown(whole))
    parts = [part for at, document in enumerate(whole) for part in _parts(at, document)]
    fits = before <= params.tokens
    if fits and params.ratio >= 1:
        return Compressed(tuple(documents), "", _decision(before, before, len(parts), 0))
    chosen = _chosen(question, parts, [_frame(document) for document in whole], params)
    if fits and len(chosen) == len(parts):
        return Compressed(tuple(documents), "", _decision(before, before, len(parts), 0))
    left = _left(whole, [parts[at] for at in chosen])
    passage = shown(list(left.values()))
    decision = _decision(before, tokens(passage), len(parts), len(parts) - len(chosen))
    return Compressed(tuple(documents[at] for at in left), passage, decision)


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


def _parts(at: int, document: Document) -> list[_Sentence]:
    texts = sentences(document.text)
    last = max(1, len(texts) - 1)
    return [
        _Sentence(at, text, abs(2 * place / last - 1) if len(texts) > 1 else 1.0, tuple(terms(text)))
        for place, text in enumerate(texts)
    ]


def _frame(document: Document) -> int:
    """Tokens of a document beside its sentences."""
    return tokens(shown([Document(problem=document.problem, text="")]))


class _Room:
    """What still fits into the share and into the tokens."""

    def __init__(self, share: float, tokens: int, frames: Sequence[int]) -> None:
        self._share = share
        self._tokens = tokens
        self._frames = dict(enumerate(frames))
        self._empty = True

    def takes(self, part: _Sentence) -> bool:
        """Whether `part` fits, which then is in; the first of a document brings its frame along."""
        price = part.tokens + self._frames.get(part.document, 0)
        if price > self._tokens or not (self._empty or part.tokens <= self._share):
            return False
        self._frames.pop(part.document, None)
        self._tokens -= price
        self._share -= part.tokens
        self._empty = False
        return True


def _chosen(question: str, parts: Sequence[_Sentence], frames: Sequence[int], params: CompressParams) -> list[int]:
    """Indexes of the sentences that stay, in order: the most important first, as long as there is room."""
    importance = _importance(question, parts)
    order = sorted(_distinct(parts), key=lambda at: (-importance[at], at))
    room = _Room(params.ratio * sum(part.tokens for part in parts), params.tokens, frames)
    return sorted(at for at in order if room.takes(parts[at]))


def _importance(question: str, parts: Sequence[_Sentence]) -> list[float]:
    weights = Weights(part.terms for part in parts)
    asked = weights.vector(terms(question))
    centroid = weights.vector([term for part in parts for term in part.terms])
    vectors = [weights.vector(part.terms) for part in parts]
    central = [cosine(vector, centroid) for vector in vectors]
    most = max(central, default=0.0) or 1.0
    return [
        (share / most + part.position + cosine(vector, asked)) / 3
        for part, vector, share in zip(parts, vectors, central, strict=True)
    ]


def _distinct(parts: Sequence[_Sentence]) -> list[int]:
    """Indexes of the sentences that do not repeat an earlier one; a sentence without a term repeats none."""
    distinct: list[int] = []
    seen: list[Shingles] = []
    for at, part in enumerate(parts):
        mine = shingles(part.terms)
        if not any(alike(mine, other) for other in seen):
            distinct.append(at)
            seen.append(mine)
    return distinct


def _left(whole: Sequence[Document], kept: Sequence[_Sentence]) -> dict[int, Document]:
    """By their index, the documents of which sentences are kept, with those alone."""
    texts: dict[int, str] = {}
    for part in kept:
        texts[part.document] = texts.get(part.document, "") + part.text
    return {at: Document(problem=whole[at].problem, text=text.strip()) for at, text in texts.items()}
