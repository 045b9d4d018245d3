"""Retrieve calls: a chunk becomes one request to the retriever service."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import httpx2
import msgspec
from sqlalchemy import text

from shared.access.bearer import authorization
from shared.contracts.calls import Failure, FailureKind, Reply, Retrieved
from shared.runtime.answers import Answered, Receipt
from shared.runtime.binding import Request
from shared.runtime.claims import Claimed
from shared.storage.database import Database
from shared.telemetry import traces
from shared.telemetry.redaction import redacted

INDEX = text("SELECT id FROM indexes WHERE model_id = :model AND state = 'ready' LIMIT 1")
TIMEOUT_S = 60.0

_REQUEST = msgspec.json.Decoder(Request)
_REPLIES = msgspec.json.Decoder(list[Retrieved])


class Retrieving:
    """The executor of retrieve calls."""

    def __init__(self, database: Database, url: str, service_key: str = "") -> None:
        self._database = database
        self._client = httpx2.AsyncClient(
            base_url=url, timeout=TIMEOUT_S, trust_env=False, event_hooks=traces.hooks(),
            headers=authorization(service_key),
        )  # fmt: skip
        self._indexes: dict[int, int] = {}

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered]:  # noqa: ARG002 - no lease
        """One reply a call, in one go; a retriever that is away fails them all for infrastructure reasons."""
        started = datetime.now(UTC)
        replies = await self._search([await self._search_of(call) for call in calls])
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    async def _search_of(self, call: Claimed) -> dict[str, object]:
        request = _REQUEST.decode(call.request)
        return {"index": await self._index(call.model_id), "question": request.values["question"], "k": request.k}

    async def _index(self, model_id: int) -> int:
        if model_id not in self._indexes:
            async with self._database.transaction() as connection:
                self._indexes[model_id] = (await connection.execute(INDEX, {"model": model_id})).scalar_one()
        return self._indexes[model_id]

    async def _search(self, searches: list[dict[str, object]]) -> Sequence[Reply]:
        try:
            response = await self._client.post("/search", json={"searches": searches})
        except httpx2.TimeoutException as error:
            return [_failure(FailureKind.TIMEOUT, repr(error))] * len(searches)
        except httpx2.TransportError as error:
            return [_failure(FailureKind.CONNECTION, repr(error))] * len(searches)
        if response.status_code != 200:
            said = f"HTTP {response.status_code}: {response.text[:300]}"
            return [_failure(FailureKind.BACKEND_ERROR, said)] * len(searches)
        return _REPLIES.decode(response.content)


def _failure(kind: FailureKind, detail: str) -> Failure:
    return Failure(kind=kind, detail=redacted(detail))
