"""Answer estimate calls, chunk by chunk, with the shipped difficulty classifier."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec
from anyio import CapacityLimiter, to_thread

from shared.calls import Request
from shared.errors import Unavailable
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier, read_regression
from shared.models.embedding import StaticEmbedder
from shared.replies import Estimated, Failure, FailureKind, Reply
from shared.runtime.pins import ESTIMATOR, WEIGHTS
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt

_REQUEST = msgspec.json.Decoder(Request)
OTHER_CLASSIFIER = Failure(
    kind=FailureKind.BACKEND_ERROR, detail="the job was given another difficulty classifier than this one"
)
UNKNOWN = Failure(kind=FailureKind.REFUSED, detail="Chinese, or without a known word: the classifier cannot tell")


class EstimateExecutor:
    """The executor of estimate calls. Weights and embeddings are read at the first call."""

    def __init__(self, weights: Path = WEIGHTS, embeddings: Path = EMBEDDINGS) -> None:
        self._weights = weights
        self._embeddings = embeddings
        self._limiter = CapacityLimiter(1)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all computed at once."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        replies = await to_thread.run_sync(self._make_replies, requests, limiter=self._limiter)
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    def _make_replies(self, requests: Sequence[Request]) -> list[Reply]:
        """Estimate all requests; a classifier that cannot be read is an infrastructure failure, which can be mended."""
        try:
            found = self._classifier.probabilities([str(request.values["question"]) for request in requests])
        except Unavailable as error:
            return [Failure(kind=FailureKind.BACKEND_ERROR, detail=error.message)] * len(requests)
        return [_make_reply(request, each) for request, each in zip(requests, found, strict=True)]

    @cached_property
    def _classifier(self) -> DifficultyClassifier:
        return DifficultyClassifier(read_regression(self._weights), StaticEmbedder(self._embeddings))


def _make_reply(request: Request, probability: float | None) -> Reply:
    if request.model != ESTIMATOR.hash.hex():
        return OTHER_CLASSIFIER
    return UNKNOWN if probability is None else Estimated(probability=probability)
