"""Cross-encoders on HTTP servers, with either of two protocols."""

from collections.abc import Iterable, Sequence

import msgspec

from shared.contracts.replies import FailureKind
from shared.models.endpoint import Endpoint
from shared.models.ports import ModelFailed


class _Relevance(msgspec.Struct, frozen=True):
    index: int
    relevance_score: float


class _Results(msgspec.Struct, frozen=True):
    results: list[_Relevance]


class _Rank(msgspec.Struct, frozen=True):
    index: int
    score: float


class JinaServer:
    """A server with `/v1/rerank`: llama.cpp's answers logits, vLLM's and Jina's own service answer probabilities."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`; the results come best first and are ordered by their index."""
        body = {"model": self._model, "query": question, "documents": list(documents)}
        results = self._endpoint.post("/v1/rerank", body, _Results).results
        return order_scores([(each.index, each.relevance_score) for each in results], len(documents))

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()


class TeiServer:
    """`/rerank` of text-embeddings-inference, which applies a sigmoid unless `raw` scores are requested."""

    def __init__(self, endpoint: Endpoint, *, raw: bool) -> None:
        self._endpoint = endpoint
        self._raw = raw

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`."""
        body = {"query": question, "texts": list(documents), "raw_scores": self._raw, "truncate": False}
        ranks = self._endpoint.post("/rerank", body, list[_Rank])
        return order_scores([(each.index, each.score) for each in ranks], len(documents))

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()


def order_scores(found: Iterable[tuple[int, float]], count: int) -> list[float]:
    """Return one score per document from (index, score) pairs.

    Raises:
        ModelFailed: a document has no score or two.
    """
    pairs = list(found)
    scores = dict(pairs)
    if len(pairs) != count or sorted(scores) != list(range(count)):
        raise ModelFailed(
            FailureKind.BACKEND_ERROR, f"the reranker gave {len(pairs)} scores for {count} documents, or wrong indexes"
        )
    return [scores[at] for at in range(count)]
