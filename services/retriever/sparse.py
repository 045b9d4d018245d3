"""BM25 in memory, as Lucene counts it: ln(1 + (N - n + .5) / (n + .5)) * f / (f + k1 (1 - b + b |d| / avgdl))."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import bm25s.version
import numpy as np
from numpy.typing import NDArray

from services.retriever import hashes
from services.retriever.ports import UNSIGNED, Batch, Embedded, Match
from services.retriever.words import PAIRS, Words

K1 = 1.2
B = 0.75
METHOD = "lucene"


class Bm25Index:
    """A `SparseIndex` over bm25s; a repeated term of the question counts as often as it is repeated."""

    def __init__(self, scorer: bm25s.BM25, documents: list[str], words: Words) -> None:
        self._scorer = scorer
        self._words = words
        self.documents = documents

    @property
    def terms(self) -> int:
        """Number of distinct terms."""
        return len(self._scorer.vocab_dict) - 1  # without the empty term

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question at most `k` matches that share a term with it."""
        return [self._matches(question, k) for question in questions]

    def _matches(self, question: str, k: int) -> list[Match]:
        terms = self._scorer.get_tokens_ids(self._words.of(question))
        scores: NDArray[np.float32] = self._scorer.get_scores_from_ids(terms)
        chosen = best(scores, k)
        return [Match(self.documents[at], score) for at, score in zip(chosen, scores[chosen].tolist(), strict=True)]

    def save(self, folder: Path) -> None:
        """Write bm25s's arrays and the document hashes."""
        self._scorer.save(folder, show_progress=False)
        hashes.write(folder, self.documents)


class Bm25(Embedded):
    """The `Backend` of sparse indexes."""

    kind = "sparse"

    def __init__(self, words: Words = PAIRS, *, k1: float = K1, b: float = B) -> None:
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Library, formula and tokenizer."""
        return {
            "backend": f"bm25s {bm25s.version.__version__}",
            "method": METHOD,
            "k1": self._k1,
            "b": self._b,
            **self._words.recipe(),
        }

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:  # noqa: ARG002 - files bear it
        """Index all documents; of their texts only term numbers are kept."""
        vocabulary = {"": 0}
        documents: list[str] = []
        terms: list[list[int]] = []
        for batch in batches:
            for document, text in batch:
                documents.append(document)
                terms.append([vocabulary.setdefault(term, len(vocabulary)) for term in self._words.of(text)])
        order = hashes.ascending(documents)
        if not any(terms):
            terms = [[0]] * len(terms)  # the empty term: an average length of 0 cannot be divided by
        scorer = bm25s.BM25(method=METHOD, k1=self._k1, b=self._b, backend="numpy", csc_backend="scipy")
        scorer.index(([terms[at] for at in order], vocabulary), show_progress=False)
        return Bm25Index(scorer, [documents[at] for at in order], self._words)

    def load(self, folder: Path) -> Bm25Index:
        """The index that was saved in `folder`."""
        return Bm25Index(bm25s.BM25.load(folder, show_progress=False), hashes.read(folder), self._words)


def best(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Positions of the `k` largest positive scores, largest first; the smaller position among equals."""
    least = np.partition(scores, -k)[-k] if len(scores) > k else np.float32(0)
    found = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores > 0)
    return found[np.argsort(-scores[found], kind="stable")][:k]
