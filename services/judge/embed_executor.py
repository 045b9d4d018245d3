"""Answer embed calls: send the texts of each chunk as one request to the retriever service."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec

from services.judge import retriever_outages
from services.judge.retrieve_executor import UNANSWERED
from shared.calls import Request
from shared.models.retriever_client import NoReply
from shared.replies import Embedded, Reply
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd
from shared.settings import Settings

_REQUEST = msgspec.json.Decoder(Request)


class EmbedExecutor:
    """The executor of embed calls."""

    def __init__(self, settings: Settings) -> None:
        self._retriever = retriever_outages.make_client(settings)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call. A chunk is of one model."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        replies = await self._embed([str(each.values["text"]) for each in requests], requests[0].model)
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, retriever_outages.RetrieverAway):
                yield reply.make_wait(call.id)
            else:
                yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    async def _embed(self, texts: Sequence[str], model: str) -> Sequence[Reply | retriever_outages.RetrieverAway]:
        """Embed in one request; if the retriever refuses it, in one request per text, as one may be at fault."""
        try:
            vectors = (await self._retriever.embed(texts, model)).vectors
            return [Embedded(vector=vector) for vector in vectors]
        except NoReply as error:
            answer = retriever_outages.translate_failure(error, self._retriever.address)
        if isinstance(answer, retriever_outages.RetrieverAway) or answer.kind in UNANSWERED or len(texts) == 1:
            return [answer] * len(texts)
        return [reply for text in texts for reply in await self._embed([text], model)]
