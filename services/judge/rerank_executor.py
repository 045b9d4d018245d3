"""Answer rerank calls: send the documents' texts to the retriever service, with one request per call."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from services.judge import retriever_outages
from shared.calls import Request
from shared.models.retriever_client import NoReply
from shared.rag.prompts import list_references
from shared.replies import Document, Failure, FailureKind, Reply, Scored
from shared.runtime.pins import NO_RERANKER, NOT_CONFIGURED
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd
from shared.settings import Settings
from shared.storage.database import Database
from shared.storage.provenance import LibraryCache

_REQUEST = msgspec.json.Decoder(Request)


class RerankExecutor:
    """The executor of rerank calls."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._retriever = retriever_outages.make_client(settings)
        self._library = LibraryCache()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Rerank one call after another, since each is a whole batch for the model."""
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.statement() as connection:
            hashes = {ref.doc for request in requests for ref in list_references(request)}
            documents = await self._library.documents(connection, hashes)
        for call, request in zip(calls, requests, strict=True):
            started = datetime.now(UTC)
            reply = await self._reply(request, documents)
            if isinstance(reply, retriever_outages.RetrieverAway):
                yield reply.make_wait(call.id)
                continue
            receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
            yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    async def _reply(
        self, request: Request, documents: Mapping[str, Document]
    ) -> Reply | retriever_outages.RetrieverAway:
        """Return the scores; a job without a reranker gets a failure at once, and its pipeline goes on without."""
        if request.model == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        try:
            texts = [documents[ref.doc].whole for ref in list_references(request)]
        except KeyError as missing:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=f"document {missing} does not exist")
        if not texts:
            return Scored(scores=())
        try:
            return await self._retriever.rerank(request.model, request.values["question"], texts)
        except NoReply as error:
            return retriever_outages.translate_failure(error, self._retriever.address)
