"""Rerank calls: the documents' texts go to the retriever service, a request a call; replies come as they are ready."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from services.judge import retriever
from shared.contracts.documents import Document
from shared.contracts.replies import Failure, FailureKind, Reply, Scored
from shared.contracts.requests import Request
from shared.models.retriever_client import NoReply
from shared.rag.rendering import references
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.runtime.execution import Ended
from shared.runtime.models import NO_RERANKER, NOT_CONFIGURED
from shared.settings import Settings
from shared.storage.database import Database
from shared.storage.library import LibraryCache

_REQUEST = msgspec.json.Decoder(Request)


class Reranking:
    """The executor of rerank calls."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._retriever = retriever.client(settings)
        self._library = LibraryCache()

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Ended]:  # noqa: ARG002 - no lease
        """One after the other: each is a whole batch for the model already."""
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.statement() as connection:
            hashes = {ref.doc for request in requests for ref in references(request)}
            documents = await self._library.documents(connection, hashes)
        for call, request in zip(calls, requests, strict=True):
            started = datetime.now(UTC)
            reply = await self._reply(request, documents)
            if isinstance(reply, retriever.Away):
                yield reply.wait(call.id)
                continue
            receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
            yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    async def _reply(self, request: Request, documents: Mapping[str, Document]) -> Reply | retriever.Away:
        """A call that was bound to no reranker says so at once: the pipeline goes on without."""
        if request.model == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        try:
            texts = [documents[ref.doc].whole for ref in references(request)]
        except KeyError as missing:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=f"there is no document {missing}")
        if not texts:
            return Scored(scores=())
        try:
            return await self._retriever.rerank(request.model, request.values["question"], texts)
        except NoReply as error:
            return retriever.unanswered(error, self._retriever.address)
