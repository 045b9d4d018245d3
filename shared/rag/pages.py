"""Keep the pages that were found for each query, so that a search goes on with the next page."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from shared.calls import Retrieve
from shared.params import Params
from shared.rag.duplicates import repeats_question
from shared.rag.fusion import fuse
from shared.rag.paths import ORIGINAL, RecallPath
from shared.rag.provenance import make_candidate
from shared.replies import Hit, Retrieved
from shared.samples import Candidate, Library

Lists = dict[str, dict[str, Hit]]
"""Hits by index and document, in list order."""


class QueryPages:
    """Both indexes' lists by query, as far as they have been read; a page has `critic.k` documents of each index."""

    def __init__(self, question: str, params: Params, library: Library) -> None:
        self._question = question
        self._params = params
        self._library = library
        self._size = params.critic.k
        self._weights = {"dense": params.fusion.dense, "sparse": params.fusion.sparse}
        self._read: dict[str, int] = defaultdict(int)
        self._lists: dict[str, Lists] = defaultdict(lambda: {index: {} for index in self._weights})
        self.duplicates: dict[str, None] = {}
        """Near-duplicates of the question, which searches for it and for other queries have left out."""

    def make_searches(self, query: str) -> list[RecallPath]:
        """Make the searches for the next page of `query`; a new query starts with the first."""
        wording = ORIGINAL if query == self._question else "rewritten"
        skip = self._size * self._read[query]
        return [
            RecallPath(wording, Retrieve(question=query, index=index, k=self._size, skip=skip), weight)
            for index, weight in self._weights.items()
        ]

    def add(self, query: str, found: Mapping[RecallPath, Retrieved]) -> None:
        """Add a page of the indexes that answered."""
        self._read[query] += 1
        for path, page in found.items():
            hits = self._lists[query][path.call.index]
            for hit in page.hits:
                hits.setdefault(hit.document, hit)
            self.duplicates.update(dict.fromkeys((*page.duplicates, *self._twins(page.hits))))

    def list_unseen(self, query: str, seen: Collection[str]) -> list[Candidate]:
        """Return at most a page of the best documents of a query, fused over its pages, without those in `seen`."""
        lists = self._lists[query]
        ranked = [[(hit.document, hit.score) for hit in hits.values()] for hits in lists.values()]
        fused = fuse(ranked, list(self._weights.values()), self._params.fusion, self._params.rrf_k)
        new = [entry for entry in fused if entry[0] not in seen and entry[0] not in self.duplicates]
        dense, sparse = lists["dense"], lists["sparse"]
        return [make_candidate(each, 0, score, dense.get(each), sparse.get(each)) for each, score in new[: self._size]]

    def _twins(self, hits: Iterable[Hit]) -> list[str]:
        documents = [hit.document for hit in hits]
        return [
            each for each in documents if repeats_question(self._question, self._library[each].problem, self._params)
        ]
