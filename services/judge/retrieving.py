"""Retrieve calls: a chunk becomes one request to the retriever service."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import text

from services.judge import retriever
from shared.contracts.replies import FailureKind, Reply
from shared.contracts.requests import Request
from shared.models.retriever_client import NoReply
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.runtime.execution import Ended
from shared.settings import Settings
from shared.storage.database import Database

INDEX = text("SELECT id FROM indexes WHERE model_id = :model AND state = 'ready' LIMIT 1")

UNANSWERED = (FailureKind.CONNECTION, FailureKind.TIMEOUT)
"""Of a retriever that has said nothing about any search."""

_REQUEST = msgspec.json.Decoder(Request)


class Retrieving:
    """The executor of retrieve calls."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._retriever = retriever.client(settings)
        self._indexes: dict[int, int] = {}

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Ended]:  # noqa: ARG002 - no lease
        """One reply a call, in one go."""
        started = datetime.now(UTC)
        replies = await self._search([await self._search_of(call) for call in calls])
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, retriever.Away):
                yield reply.wait(call.id)
            else:
                yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    async def _search_of(self, call: Claimed) -> dict[str, object]:
        request = _REQUEST.decode(call.request)
        return {
            "index": await self._index(call.model_id), "question": request.values["question"], "k": request.k,
            "skip": request.skip, "hypothetical": request.hypothetical, "duplicates": request.duplicates,
            "item": request.item, "gold": request.gold,
        }  # fmt: skip

    async def _index(self, model_id: int) -> int:
        if model_id not in self._indexes:
            async with self._database.transaction() as connection:
                self._indexes[model_id] = (await connection.execute(INDEX, {"model": model_id})).scalar_one()
        return self._indexes[model_id]

    async def _search(self, searches: list[dict[str, object]]) -> Sequence[Reply | retriever.Away]:
        """One request for all; where the retriever refuses it, one request each: one search may be at fault."""
        try:
            return await self._retriever.search(searches)
        except NoReply as error:
            answer = retriever.unanswered(error, self._retriever.address)
        if isinstance(answer, retriever.Away) or answer.kind in UNANSWERED or len(searches) == 1:
            return [answer] * len(searches)
        return [reply for search in searches for reply in await self._search([search])]
