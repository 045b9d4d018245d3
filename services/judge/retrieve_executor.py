"""Answer retrieve calls: send each chunk as one request to the retriever service."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import text

from services.judge import retriever_outages
from shared.calls import Request
from shared.models.retriever_client import NoReply
from shared.replies import FailureKind, Reply
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd
from shared.settings import Settings
from shared.storage.database import Database

INDEX = text("SELECT id FROM indexes WHERE model_id = :model AND state = 'ready' LIMIT 1")

UNANSWERED = (FailureKind.CONNECTION, FailureKind.TIMEOUT)
"""Failures without an answer of the retriever, which concern all searches."""

_REQUEST = msgspec.json.Decoder(Request)


class RetrieveExecutor:
    """The executor of retrieve calls."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._retriever = retriever_outages.make_client(settings)
        self._indexes: dict[int, int] = {}

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all from one request."""
        started = datetime.now(UTC)
        replies = await self._search([await self._make_search(call) for call in calls])
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, retriever_outages.RetrieverAway):
                yield reply.make_wait(call.id)
            else:
                yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    async def _make_search(self, call: ClaimedCall) -> dict[str, object]:
        request = _REQUEST.decode(call.request)
        return {
            "index": await self._find_index(call.model_id), "question": request.values["question"], "k": request.k,
            "skip": request.skip, "hypothetical": request.hypothetical, "duplicates": request.duplicates,
            "item": request.item, "gold": request.gold,
        }  # fmt: skip

    async def _find_index(self, model_id: int) -> int:
        if model_id not in self._indexes:
            async with self._database.transaction() as connection:
                self._indexes[model_id] = (await connection.execute(INDEX, {"model": model_id})).scalar_one()
        return self._indexes[model_id]

    async def _search(self, searches: list[dict[str, object]]) -> Sequence[Reply | retriever_outages.RetrieverAway]:
        """Search in one request; if the retriever refuses it, in one request per search, as one may be at fault."""
        try:
            return await self._retriever.search(searches)
        except NoReply as error:
            answer = retriever_outages.translate_failure(error, self._retriever.address)
        if isinstance(answer, retriever_outages.RetrieverAway) or answer.kind in UNANSWERED or len(searches) == 1:
            return [answer] * len(searches)
        return [reply for search in searches for reply in await self._search([search])]
