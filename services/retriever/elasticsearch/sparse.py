"""Search words on Elasticsearch: BM25 over the same terms as the embedded index.

Documents and questions are cut into terms here and joined by blanks; the server's `whitespace` analyser takes them
apart again. Lucene dropped BM25's factor k1 + 1 in version 8, but Elasticsearch kept it (LegacyBM25Similarity), so its
scores are divided by it. They then equal those of bm25s's method `lucene` but for two roundings: Elasticsearch computes
in single precision, and keeps a document's length in one byte (SmallFloat), which is exact up to 40 terms and up to 11
% short above.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import MOST_HITS, Body, ElasticsearchServer
from services.retriever.ports import UNSIGNED, Batch, IndexMatch
from services.retriever.words import TermCutter

FIELD = "terms"
SIMILARITY = "ours"
MARGIN = 2
"""Extra hits per search, so that nearly all documents with the last one's score are among them."""
BY_HASH = {"sort": [{"_score": "desc"}, {"hash": "asc"}]}
"""Sort order that is exact for any number of equal scores, but lets Lucene skip no document with a low score."""


class ServedTerms:
    """Searches words on a server, as `SparseIndex` does in memory."""

    def __init__(self, place: backend.ServerIndex, words: TermCutter, k1: float) -> None:
        self._place = place
        self._words = words
        self._factor = k1 + 1
        self.documents = place.documents
        self.save = place.save

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return at most `k` matches per question, each of which shares a term with it."""
        terms = {at: words for at, question in enumerate(questions) if (words := self._words.of(question))}
        found = dict(zip(terms, self._fetch(list(map(make_query, terms.values())), k), strict=True))
        return [self._rank(found.get(at, []), k) for at in range(len(questions))]

    def _fetch(self, queries: list[Body], k: int) -> list[list[Body]]:
        """Fetch the hits of each query: all that can be among the first `k`, and perhaps more."""
        search, index = self._place.server.search, self._place.index
        size = max(k, min(k + MARGIN, MOST_HITS))
        found = search(index, size, queries)
        cut = [at for at, hits in enumerate(found) if len(hits) == size and hits[-1]["_score"] == hits[k - 1]["_score"]]
        again = search(index, k, [{**queries[at], **BY_HASH} for at in cut])
        for at, hits in zip(cut, again, strict=True):
            found[at] = hits
        return found

    def _rank(self, hits: list[Body], k: int) -> list[IndexMatch]:
        ranked = sorted((-hit["_score"], hit["fields"]["hash"][0]) for hit in hits)
        return [IndexMatch(document, -score / self._factor) for score, document in ranked[:k]]


def make_query(terms: Sequence[str]) -> Body:
    """Make the query for documents that share any of `terms`."""
    return {"query": {"match": {FIELD: {"query": " ".join(terms)}}}, "docvalue_fields": ["hash"]}


class ElasticsearchTerms(backend.ServerBackend):
    """The `Backend` of sparse indexes on a server."""

    kind = "sparse"

    def __init__(self, server: ElasticsearchServer, words: TermCutter, *, k1: float, b: float) -> None:
        super().__init__(server)
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Return the formula and the tokenizer; the server's address does not matter.

        `factor` is what the server's scores are multiplied by. Indexes of release 0.1 have none: their scores were k1 +
        1 times the formula's.
        """
        formula = {"backend": "elasticsearch BM25", "k1": self._k1, "b": self._b, "factor": "1 / (k1 + 1)"}
        return {**formula, **self._words.recipe()}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedTerms:
        """Stream all documents to a new index; only their hashes stay in memory."""
        similarity = {"type": "BM25", "k1": self._k1, "b": self._b}
        field = {"type": "text", "analyzer": "whitespace", "similarity": SIMILARITY, "index_options": "freqs"}
        place = self._build_index(
            signature, batches, self._make_fields,
            settings={"similarity": {SIMILARITY: similarity}}, properties={FIELD: field},
        )  # fmt: skip
        return ServedTerms(place, self._words, self._k1)

    def _make_fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        return ({FIELD: " ".join(self._words.of(text))} for text in texts)

    def load(self, folder: Path) -> ServedTerms:
        """Load the index to which `folder` refers."""
        return ServedTerms(self._open_index(folder), self._words, self._k1)
