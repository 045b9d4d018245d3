"""BM25 by Elasticsearch, over the same terms as the embedded index.

Documents and questions are cut into terms here and joined by blanks; the server's `whitespace` analyser takes them
apart again. Lucene has dropped BM25's factor k1 + 1 since version 8, but Elasticsearch has kept it
(LegacyBM25Similarity), so its scores are divided by it. Then they are those of bm25s's method `lucene` but for two
roundings: it computes in single precision, and keeps a document's length in one byte (SmallFloat), which is exact up
to 40 terms and up to 11 % short above.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import MOST_HITS, Body, Server
from services.retriever.ports import UNSIGNED, Batch, Match
from services.retriever.words import Words

FIELD = "terms"
SIMILARITY = "ours"
MARGIN = 2
"""More hits than asked for, so that nearly all equal scores at the end of the list are among them."""
BY_HASH = {"sort": [{"_score": "desc"}, {"hash": "asc"}]}
"""Exact for any number of equal scores, but then Lucene can skip no document that has too low a score."""


class ServedTerms:
    """An `Index` of terms on a server."""

    def __init__(self, place: backend.Place, words: Words, k1: float) -> None:
        self._place = place
        self._words = words
        self._factor = k1 + 1
        self.documents = place.documents
        self.save = place.save

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question at most `k` matches that share a term with it."""
        terms = {at: asked for at, question in enumerate(questions) if (asked := self._words.of(question))}
        found = dict(zip(terms, self._fetch(list(map(query, terms.values())), k), strict=True))
        return [self._rank(found.get(at, []), k) for at in range(len(questions))]

    def _fetch(self, queries: list[Body], k: int) -> list[list[Body]]:
        """The hits of each query: all that can be among the first `k`, and perhaps more."""
        search, index = self._place.server.search, self._place.index
        size = max(k, min(k + MARGIN, MOST_HITS))
        found = search(index, size, queries)
        cut = [at for at, hits in enumerate(found) if len(hits) == size and hits[-1]["_score"] == hits[k - 1]["_score"]]
        again = search(index, k, [{**queries[at], **BY_HASH} for at in cut])
        for at, hits in zip(cut, again, strict=True):
            found[at] = hits
        return found

    def _rank(self, hits: list[Body], k: int) -> list[Match]:
        ranked = sorted((-hit["_score"], hit["fields"]["hash"][0]) for hit in hits)
        return [Match(document, -score / self._factor) for score, document in ranked[:k]]


def query(terms: Sequence[str]) -> Body:
    """The search for documents that share any of `terms`."""
    return {"query": {"match": {FIELD: {"query": " ".join(terms)}}}, "docvalue_fields": ["hash"]}


class ElasticsearchTerms(backend.Served):
    """The `Backend` of sparse indexes on a server."""

    kind = "sparse"

    def __init__(self, server: Server, words: Words, *, k1: float, b: float) -> None:
        super().__init__(server)
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Formula and tokenizer; where the server is does not matter.

        `factor` is what the server's scores are multiplied by. Indexes of release 0.1 have none: theirs were k1 + 1
        times the formula's.
        """
        formula = {"backend": "elasticsearch BM25", "k1": self._k1, "b": self._b, "factor": "1 / (k1 + 1)"}
        return {**formula, **self._words.recipe()}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedTerms:
        """Stream all documents to a new index; only their hashes are kept here."""
        similarity = {"type": "BM25", "k1": self._k1, "b": self._b}
        field = {"type": "text", "analyzer": "whitespace", "similarity": SIMILARITY, "index_options": "freqs"}
        place = self._made(
            signature, batches, self._fields,
            settings={"similarity": {SIMILARITY: similarity}}, properties={FIELD: field},
        )  # fmt: skip
        return ServedTerms(place, self._words, self._k1)

    def _fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        return ({FIELD: " ".join(self._words.of(text))} for text in texts)

    def load(self, folder: Path) -> ServedTerms:
        """The index that was saved in `folder`."""
        return ServedTerms(self._placed(folder), self._words, self._k1)
