"""BM25 by Elasticsearch, over the same terms as the embedded index.

Documents and questions are cut into terms here and joined by blanks; the server's `whitespace` analyser takes them
apart again. Lucene has dropped BM25's factor k1 + 1 since version 8, as bm25s's method `lucene` has, so the scores are
the same but for two roundings: it computes in single precision, and keeps a document's length in one byte (SmallFloat),
which is exact up to 40 terms and up to 11 % short above.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import Server
from services.retriever.ports import UNSIGNED, Batch, Match
from services.retriever.words import Words

FIELD = "terms"
SIMILARITY = "ours"
ORDER = [{"_score": "desc"}, {"hash": "asc"}]


class ServedTerms:
    """An `Index` of terms on a server."""

    def __init__(self, place: backend.Place, words: Words) -> None:
        self._place = place
        self._words = words
        self.documents = place.documents
        self.save = place.save

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question at most `k` matches that share a term with it."""
        return backend.together(lambda question: self._matches(question, k), questions)

    def _matches(self, question: str, k: int) -> list[Match]:
        terms = self._words.of(question)
        if not terms:
            return []
        query = {"match": {FIELD: {"query": " ".join(terms)}}}
        return [Match(*hit) for hit in self._place.server.search(self._place.index, k, query=query, sort=ORDER)]


class ElasticsearchTerms(backend.Served):
    """The `Backend` of sparse indexes on a server."""

    kind = "sparse"

    def __init__(self, server: Server, words: Words, *, k1: float, b: float) -> None:
        super().__init__(server)
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Formula and tokenizer; where the server is does not matter."""
        return {"backend": "elasticsearch BM25", "k1": self._k1, "b": self._b, **self._words.recipe()}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedTerms:
        """Stream all documents to a new index; only their hashes are kept here."""
        similarity = {"type": "BM25", "k1": self._k1, "b": self._b}
        field = {"type": "text", "analyzer": "whitespace", "similarity": SIMILARITY, "index_options": "freqs"}
        place = self._made(
            signature, batches, self._fields,
            settings={"similarity": {SIMILARITY: similarity}}, properties={FIELD: field},
        )  # fmt: skip
        return ServedTerms(place, self._words)

    def _fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        return ({FIELD: " ".join(self._words.of(text))} for text in texts)

    def load(self, folder: Path) -> ServedTerms:
        """The index that was saved in `folder`."""
        return ServedTerms(self._placed(folder), self._words)
