"""Rank in the mode `enhanced`: with the parts of the pipeline of that name that ask no model."""

from collections.abc import Mapping, Sequence

import msgspec

from services.retriever.evaluation.collection import Queries
from services.retriever.evaluation.modes import Kind, Mode
from services.retriever.ports import IndexMatch
from shared.params import Params
from shared.rag import retrieval
from shared.rag.fusion import fuse
from shared.rag.retrieval import ORIGINAL, RecallPath
from shared.rag.rewriting import EnhancedQuestion, enhance

Lists = Mapping[Kind, Mapping[str, Sequence[IndexMatch]]]


class EnhancedQueries:
    """Enhances the questions of one collection: cleaned, corrected, and in a second wording with synonyms."""

    def __init__(self, mode: Mode, queries: Queries) -> None:
        self._params = Params(fusion=mode.fusion, rrf_k=mode.rrf_k, enhance=mode.enhance)
        self._asked = queries.texts
        self._ready: dict[str, EnhancedQuestion] = {
            query: enhance(text, mode.enhance, mode.fusion) for query, text in queries.texts.items()
        }
        self.widened = msgspec.structs.replace(
            queries, texts={query: ready.widened for query, ready in self._ready.items()}
        )
        """The queries in their second wording."""

    def rank(self, query: str, original: Lists, widened: Lists) -> list[str]:
        """Fuse the lists of both wordings with the weights that the question's intent gives them; return document
        keys."""
        paths = retrieval.make_first_searches(self._asked[query], self._ready[query], self._params)
        lists = [_list(path, original if path.wording == ORIGINAL else widened, query) for path in paths]
        weights = [path.weight for path in paths]
        return [document for document, _ in fuse(lists, weights, self._params.fusion, self._params.rrf_k)]


def _list(path: RecallPath, lists: Lists, query: str) -> list[tuple[str, float]]:
    kind: Kind = "dense" if path.call.index == "dense" else "sparse"
    return [(match.document, match.score) for match in lists[kind][query]]
