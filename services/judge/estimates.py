"""Estimate calls: how hard questions look, by the shipped classifier, a chunk at a time."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec
from anyio import CapacityLimiter, to_thread

from shared.contracts.replies import Estimated, Failure, FailureKind, Reply
from shared.contracts.requests import Request
from shared.errors import Unavailable
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier, read
from shared.models.static_embeddings import StaticEmbedder
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.runtime.models import ESTIMATOR, WEIGHTS

_REQUEST = msgspec.json.Decoder(Request)
OTHER = Failure(kind=FailureKind.BACKEND_ERROR, detail="the job was given another difficulty classifier than this one")
STRANGE = Failure(kind=FailureKind.REFUSED, detail="Chinese, or without a known word: the classifier cannot tell")


class Estimates:
    """The executor of estimate calls. Weights and embeddings are read when the first one comes."""

    def __init__(self, weights: Path = WEIGHTS, embeddings: Path = EMBEDDINGS) -> None:
        self._weights = weights
        self._embeddings = embeddings
        self._limiter = CapacityLimiter(1)

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered]:  # noqa: ARG002 - no lease
        """One reply a call, all at once."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        replies = await to_thread.run_sync(self._replies, requests, limiter=self._limiter)
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    def _replies(self, requests: Sequence[Request]) -> list[Reply]:
        """A classifier that cannot be had fails them for a reason of infrastructure: it may be put right."""
        try:
            found = self._classifier.probabilities([str(request.values["question"]) for request in requests])
        except Unavailable as error:
            return [Failure(kind=FailureKind.BACKEND_ERROR, detail=error.message)] * len(requests)
        return [_reply(request, each) for request, each in zip(requests, found, strict=True)]

    @cached_property
    def _classifier(self) -> DifficultyClassifier:
        return DifficultyClassifier(read(self._weights), StaticEmbedder(self._embeddings))


def _reply(request: Request, probability: float | None) -> Reply:
    if request.model != ESTIMATOR.hash.hex():
        return OTHER
    return STRANGE if probability is None else Estimated(probability=probability)
