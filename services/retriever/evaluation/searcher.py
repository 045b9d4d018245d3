"""Search a collection with the configured back ends; their indexes are kept for later evaluations."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.retriever import builds, files
from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.enhanced_queries import EnhancedQueries
from services.retriever.evaluation.modes import Kind, Mode
from services.retriever.ports import Backend, IndexMatch, SearchIndex
from shared import canonical
from shared.errors import Invalid, Unavailable
from shared.models.embedding import ModelFailed, Reranker

FOLDER = "evaluations"
"""Folder below the data directory; it may be deleted at any time."""
AT_ONCE = 256
"""Queries in one search."""

Found = dict[str, list[IndexMatch]]
"""Maps a query to its matches, best first."""
Lists = dict[Kind, Found]
Run = dict[str, list[str]]
"""Maps a query to its documents, best first."""


class CollectionSearcher:
    """Searches the indexes of one collection for the `k` best documents of every query."""

    def __init__(
        self,
        backends: Sequence[Backend[SearchIndex]],
        data_dir: Path,
        collection: Collection,
        k: int,
        reranker: Reranker | None = None,
    ) -> None:
        self._backends = {backend.kind: backend for backend in backends}
        self._root = data_dir / FOLDER
        self._collection = collection
        self._k = k
        self._reranker = reranker
        self._indexes: dict[Kind, SearchIndex] = {}

    def recipe(self, kind: Kind) -> dict[str, Any]:
        """Return what determines the scores of an index."""
        return builds.make_recipe(self._backends[kind], self._collection.hash)

    def lists(self, kinds: Iterable[Kind], queries: Queries) -> Lists:
        """Search each index; a query is never among its own hits."""
        return {kind: self._search_index(self._index(kind), queries) for kind in kinds}

    def runs(self, modes: Sequence[Mode], queries: Queries) -> dict[str, Run]:
        """Rank in each mode, and return mode -> query -> documents; every index is searched once.

        Raises:
            Invalid: a mode reranks, and no reranker is configured.
            Unavailable: an index or the reranker cannot be used.
        """
        lists = self.lists(dict.fromkeys(kind for mode in modes for kind in mode.kinds), queries)
        runs = {mode.name: self.rank(mode, lists) for mode in modes if not mode.enhances}
        runs |= {mode.name: self._rank_enhanced(mode, lists, queries) for mode in modes if mode.enhances}
        return runs | {mode.name: self._rerank(runs[mode.name], queries) for mode in modes if mode.reranks}

    def rank(self, mode: Mode, lists: Lists) -> Run:
        """Rank the best documents for every query in one mode, by the collection's ids."""
        queries = lists[mode.kinds[0]]
        return self._name_documents(
            {query: mode.rank({kind: lists[kind][query] for kind in lists}) for query in queries}
        )

    def _rank_enhanced(self, mode: Mode, lists: Lists, queries: Queries) -> Run:
        enhancing = EnhancedQueries(mode, queries)
        widened = self.lists(mode.kinds, enhancing.widened)
        return self._name_documents({query: enhancing.rank(query, lists, widened) for query in queries.texts})

    def _name_documents(self, keys: Mapping[str, Sequence[str]]) -> Run:
        return {query: [self._collection.ids[key] for key in found[: self._k]] for query, found in keys.items()}

    def _search_index(self, index: SearchIndex, queries: Queries) -> Found:
        names = list(queries.texts)
        matches: list[list[IndexMatch]] = []
        for start in range(0, len(names), AT_ONCE):
            texts = [queries.texts[name] for name in names[start : start + AT_ONCE]]
            matches += index.search(texts, self._k + 1)
        return {
            name: self._drop_itself(found, name if name in queries.themselves else None)
            for name, found in zip(names, matches, strict=True)
        }

    def _rerank(self, run: Run, queries: Queries) -> Run:
        if self._reranker is None:
            raise Invalid(
                "mode `rerank` needs a reranker", hint="configure one under `retrieval.reranker` in mathrag.yaml"
            )
        texts = self._collection.texts({document for found in run.values() for document in found})
        try:
            return {
                query: sort_by_score(self._reranker, queries.texts[query], found, texts) for query, found in run.items()
            }
        except ModelFailed as failed:
            raise Unavailable(f"the reranker gave no score: {failed}", hint="check `retrieval.reranker`") from failed

    def _drop_itself(self, matches: Sequence[IndexMatch], itself: str | None) -> list[IndexMatch]:
        return [match for match in matches if self._collection.ids[match.document] != itself][: self._k]

    def _index(self, kind: Kind) -> SearchIndex:
        if kind not in self._indexes:
            self._indexes[kind] = self._open_or_build(self._backends[kind], self.recipe(kind))
        return self._indexes[kind]

    def _open_or_build(self, backend: Backend[SearchIndex], made: dict[str, Any]) -> SearchIndex:
        """Load the index of this recipe if it is on disk and sound; otherwise build it."""
        folder = self._root / canonical.digest(made).hex()
        manifest = folder / files.MANIFEST
        if manifest.is_file():
            try:
                files.verify(folder, made, hashlib.sha256(manifest.read_bytes()).digest())
                backend.check(folder)
                return backend.load(folder)
            except Unavailable:  # damaged: it is built again in its place
                pass
        index = backend.build(self._collection.batches(), folder.name)
        files.write(self._root, made, index)
        return index


def sort_by_score(reranker: Reranker, question: str, documents: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Sort the documents by descending score; those of equal score keep their order."""
    scores = reranker.score(question, [texts[document] for document in documents])
    return [document for document, _ in sorted(zip(documents, scores, strict=True), key=lambda each: -each[1])]
