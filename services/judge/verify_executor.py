"""Answer verify calls with a pool of processes that can be killed."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from services.judge.tasks import as_completed
from services.judge.verification_pool import VerificationPool
from shared.calls import Request
from shared.rag.prompts import list_references
from shared.replies import Document, Failure, FailureKind, Reply
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.storage.database import Database
from shared.storage.provenance import LibraryCache

_REQUEST = msgspec.json.Decoder(Request)


class VerifyExecutor:
    """The executor of verify calls."""

    def __init__(self, database: Database, pool: VerificationPool) -> None:
        self._database = database
        self._pool = pool
        self._library = LibraryCache()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncGenerator[AnsweredCall, None]:  # noqa: ARG002 - no lease
        """Yield the verdicts as they come; the pool bounds how many documents are verified at once."""
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.statement() as connection:
            hashes = {ref.doc for request in requests for ref in list_references(request)}
            documents = await self._library.documents(connection, hashes)
        verifying = [self._verify(call, request, documents) for call, request in zip(calls, requests, strict=True)]
        async with aclosing(as_completed(verifying)) as answers:
            async for answer in answers:
                yield answer

    async def _verify(self, call: ClaimedCall, request: Request, documents: Mapping[str, Document]) -> AnsweredCall:
        started = datetime.now(UTC)
        reply = await self._reply(request, documents)
        return AnsweredCall(
            call_id=call.id, reply=reply, receipt=Receipt(started_at=started, ended_at=datetime.now(UTC))
        )

    async def _reply(self, request: Request, documents: Mapping[str, Document]) -> Reply:
        """Verify the document's text, without its problem, which states conditions rather than steps."""
        (document,) = list_references(request)
        try:
            text = documents[document.doc].text
        except KeyError as missing:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=f"document {missing} does not exist")
        return await self._pool.verify(text)
