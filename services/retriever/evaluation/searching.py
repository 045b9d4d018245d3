"""What the configured back ends find for every query of a collection; their indexes are kept for the next time."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.retriever import builds, files
from services.retriever.evaluation.collection import Collection, Queries
from services.retriever.evaluation.enhancing import Enhancing
from services.retriever.evaluation.modes import Kind, Mode
from services.retriever.ports import Backend, Index, Match
from shared.contracts import canonical
from shared.errors import Invalid, Unavailable
from shared.models.ports import ModelFailed, Reranker

FOLDER = "evaluations"
"""Below the data directory; may be deleted at any time."""
AT_ONCE = 256
"""Queries in one search."""

Found = dict[str, list[Match]]
"""Query -> matches, best first."""
Lists = dict[Kind, Found]
Run = dict[str, list[str]]
"""Query -> documents, best first."""


class Searcher:
    """Asks the indexes of one collection for the `k` best documents of every query."""

    def __init__(
        self,
        backends: Sequence[Backend[Index]],
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
        self._indexes: dict[Kind, Index] = {}

    def recipe(self, kind: Kind) -> dict[str, Any]:
        """What determines the scores of an index."""
        return builds.recipe(self._backends[kind], self._collection.hash)

    def lists(self, kinds: Iterable[Kind], queries: Queries) -> Lists:
        """What each index finds; a query is never among its own hits."""
        return {kind: self._found(self._index(kind), queries) for kind in kinds}

    def runs(self, modes: Sequence[Mode], queries: Queries) -> dict[str, Run]:
        """Mode -> query -> documents; every index is asked once.

        Raises:
            Invalid: a mode reranks, and no reranker is configured.
            Unavailable: an index or the reranker cannot be used.
        """
        lists = self.lists(dict.fromkeys(kind for mode in modes for kind in mode.kinds), queries)
        runs = {mode.name: self.ranked(mode, lists) for mode in modes if not mode.enhances}
        runs |= {mode.name: self._enhanced(mode, lists, queries) for mode in modes if mode.enhances}
        return runs | {mode.name: self._reranked(runs[mode.name], queries) for mode in modes if mode.reranks}

    def ranked(self, mode: Mode, lists: Lists) -> Run:
        """The best documents for every query in one mode, by the collection's ids."""
        queries = lists[mode.kinds[0]]
        return self._named({query: mode.ranked({kind: lists[kind][query] for kind in lists}) for query in queries})

    def _enhanced(self, mode: Mode, lists: Lists, queries: Queries) -> Run:
        enhancing = Enhancing(mode, queries)
        widened = self.lists(mode.kinds, enhancing.widened)
        return self._named({query: enhancing.ranked(query, lists, widened) for query in queries.texts})

    def _named(self, keys: Mapping[str, Sequence[str]]) -> Run:
        return {query: [self._collection.ids[key] for key in found[: self._k]] for query, found in keys.items()}

    def _found(self, index: Index, queries: Queries) -> Found:
        names = list(queries.texts)
        matches: list[list[Match]] = []
        for start in range(0, len(names), AT_ONCE):
            texts = [queries.texts[name] for name in names[start : start + AT_ONCE]]
            matches += index.search(texts, self._k + 1)
        return {
            name: self._kept(found, name if name in queries.themselves else None)
            for name, found in zip(names, matches, strict=True)
        }

    def _reranked(self, run: Run, queries: Queries) -> Run:
        if self._reranker is None:
            raise Invalid("mode `rerank` needs a reranker", hint="name one under `retrieval.reranker` in mathrag.yaml")
        texts = self._collection.texts({document for found in run.values() for document in found})
        try:
            return {query: by_score(self._reranker, queries.texts[query], found, texts) for query, found in run.items()}
        except ModelFailed as failed:
            raise Unavailable(f"the reranker gave no score: {failed}", hint="see `retrieval.reranker`") from failed

    def _kept(self, matches: Sequence[Match], itself: str | None) -> list[Match]:
        return [match for match in matches if self._collection.ids[match.document] != itself][: self._k]

    def _index(self, kind: Kind) -> Index:
        if kind not in self._indexes:
            self._indexes[kind] = self._opened(self._backends[kind], self.recipe(kind))
        return self._indexes[kind]

    def _opened(self, backend: Backend[Index], made: dict[str, Any]) -> Index:
        """The index of this recipe, from disk if it is there and sound."""
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


def by_score(reranker: Reranker, question: str, documents: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """The documents by falling score; equal ones keep their order."""
    scores = reranker.score(question, [texts[document] for document in documents])
    return [document for document, _ in sorted(zip(documents, scores, strict=True), key=lambda each: -each[1])]
