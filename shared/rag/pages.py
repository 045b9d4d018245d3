"""What was found for each query so far: a search that goes on takes the next page, not the same one again."""

from collections import defaultdict
from collections.abc import Collection

from shared.contracts.calls import Failure, Retrieve, Retrieved
from shared.contracts.documents import Hit
from shared.contracts.params import Params
from shared.contracts.samples import Candidate
from shared.rag.fusion import fuse


class Pages:
    """Both indexes' lists by query, each as long as it has been read."""

    def __init__(self, params: Params, size: int) -> None:
        self._params = params
        self._size = size
        self._read: dict[str, int] = defaultdict(int)
        self._hits: dict[str, tuple[list[Hit], list[Hit]]] = defaultdict(lambda: ([], []))
        self.duplicates: dict[str, None] = {}
        """Near-duplicates of the question, or of a query made from it: they must not come in by another query."""

    def next(self, query: str) -> tuple[Retrieve, Retrieve]:
        """The searches for the next page of `query`; of a new one it is the first."""
        skip = self._size * self._read[query]
        return (
            Retrieve(question=query, index="dense", k=self._size, skip=skip),
            Retrieve(question=query, index="sparse", k=self._size, skip=skip),
        )

    def add(self, query: str, dense: Retrieved, sparse: Retrieved | Failure) -> None:
        """A page as it came; without the one of words where that search failed."""
        self._read[query] += 1
        for hits, found in zip(self._hits[query], (dense, sparse), strict=True):
            if isinstance(found, Retrieved):
                hits.extend(found.hits)
                self.duplicates.update(dict.fromkeys(found.duplicates))

    def unseen(self, query: str, seen: Collection[str]) -> list[Candidate]:
        """The best documents of a query, fused over all its pages, without those in `seen`: a page of them at most."""
        lists = [[(hit.document, hit.score) for hit in hits] for hits in self._hits[query]]
        weights = (self._params.fusion.dense, self._params.fusion.sparse)
        fused = fuse(lists, weights, self._params.fusion, self._params.rrf_k)
        new = [entry for entry in fused if entry[0] not in seen and entry[0] not in self.duplicates]
        return [self._candidate(query, document, score) for document, score in new[: self._size]]

    def _candidate(self, query: str, document: str, fused: float) -> Candidate:
        dense, sparse = (
            next((hit for hit in hits if hit.document == document), None) for hits in self._hits[query]
        )  # fmt: skip
        return Candidate(
            document=document,
            rank=0,
            dense_rank=dense.rank if dense else None,
            sparse_rank=sparse.rank if sparse else None,
            dense_score=dense.score if dense else None,
            sparse_score=sparse.score if sparse else None,
            fused=fused,
        )
