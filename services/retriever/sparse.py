"""Search words in this process: BM25 as in Lucene, ln(1 + (N - n + .5) / (n + .5)) * f / (f + k1 (1 - b + b |d| /
avgdl))."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.retriever import hashes
from services.retriever.ports import UNSIGNED, Batch, FolderBackend, IndexMatch
from services.retriever.words import PAIRS, TermCutter

# Where JAX is installed, bm25s starts it when it is imported, and JAX then takes most of the GPU's memory (seen on an
# H200 with 12 GiB free: 11 GiB). It is not needed here.
sys.modules.setdefault("jax", None)  # type: ignore[arg-type]
import bm25s  # noqa: E402
import bm25s.version  # noqa: E402

if sys.modules["jax"] is None:
    del sys.modules["jax"]

K1 = 1.2
B = 0.75
METHOD = "lucene"


class Bm25Index:
    """A `SparseIndex` over bm25s; a term that the question repeats counts as often."""

    def __init__(self, scorer: bm25s.BM25, documents: list[str], words: TermCutter) -> None:
        self._scorer = scorer
        self._words = words
        self.documents = documents

    @property
    def terms(self) -> int:
        """Return the number of distinct terms."""
        return len(self._scorer.vocab_dict) - 1  # without the empty term

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return at most `k` matches per question, each of which shares a term with it."""
        return [self._find_matches(question, k) for question in questions]

    def _find_matches(self, question: str, k: int) -> list[IndexMatch]:
        terms = self._scorer.get_tokens_ids(self._words.of(question))
        scores: NDArray[np.float32] = self._scorer.get_scores_from_ids(terms)
        chosen = find_best(scores, k)
        return [
            IndexMatch(self.documents[at], score) for at, score in zip(chosen, scores[chosen].tolist(), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Write bm25s's arrays and the document hashes."""
        self._scorer.save(folder, show_progress=False)
        hashes.write(folder, self.documents)


class Bm25(FolderBackend):
    """The `Backend` of sparse indexes in this process."""

    kind = "sparse"

    def __init__(self, words: TermCutter = PAIRS, *, k1: float = K1, b: float = B) -> None:
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Return the library, the formula and the tokenizer."""
        return {
            "backend": f"bm25s {bm25s.version.__version__}",
            "method": METHOD,
            "k1": self._k1,
            "b": self._b,
            **self._words.recipe(),
        }

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:  # noqa: ARG002 - files bear it
        """Index all documents; of their texts only the numbers of the terms stay in memory."""
        vocabulary = {"": 0}
        documents: list[str] = []
        terms: list[list[int]] = []
        for batch in batches:
            for document, text in batch:
                documents.append(document)
                terms.append([vocabulary.setdefault(term, len(vocabulary)) for term in self._words.of(text)])
        order = hashes.sort_positions(documents)
        if not any(terms):
            terms = [[0]] * len(terms)  # the empty term: an average length of 0 cannot be divided by
        scorer = bm25s.BM25(method=METHOD, k1=self._k1, b=self._b, backend="numpy", csc_backend="scipy")
        scorer.index(([terms[at] for at in order], vocabulary), show_progress=False)
        return Bm25Index(scorer, [documents[at] for at in order], self._words)

    def load(self, folder: Path) -> Bm25Index:
        """Load the index that was saved in `folder`."""
        return Bm25Index(bm25s.BM25.load(folder, show_progress=False), hashes.read(folder), self._words)


def find_best(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the positions of the `k` largest positive scores, in descending order; ties by position."""
    least = np.partition(scores, -k)[-k] if len(scores) > k else np.float32(0)
    found = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores > 0)
    return found[np.argsort(-scores[found], kind="stable")][:k]
