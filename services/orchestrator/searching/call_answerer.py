"""Answers the calls of a search by the retriever; calls that need a model on the device fail."""

import asyncio
from collections.abc import Mapping, Sequence

import httpx2

from services.orchestrator.deps import Deps
from shared.calls import Call, Rerank, Retrieve
from shared.errors import MathragError, TooLarge, Unavailable
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.replies import Document, Failure, FailureKind, Reply, Retrieved, Scored
from shared.runtime.pins import NO_RERANKER, NOT_CONFIGURED
from shared.storage.provenance import LibraryCache, list_mentioned_documents


class CallAnswerer:
    """Answers the calls of one search over the index builds `indexes`, by role. `reranker` is the hash that a job
    would be pinned to.
    """

    def __init__(self, deps: Deps, indexes: Mapping[str, int], reranker: str) -> None:
        self._database = deps.database
        self._retriever = RetrieverClient(deps.http, deps.settings)
        self._indexes = indexes
        self._reranker = reranker
        self.library: dict[str, Document] = {}
        """Every document that was found."""
        self.refusal: MathragError | None = None
        """Error of a failed search, for callers that cannot continue without it."""

    async def replies(self, calls: Sequence[Call]) -> list[Reply]:
        """Return one reply per call. The calls run side by side, and each fails alone."""
        replies = await asyncio.gather(*(self._reply(call) for call in calls))
        async with self._database.statement() as connection:
            self.library |= await LibraryCache().documents(connection, list_mentioned_documents(replies))
        return list(replies)

    async def _reply(self, call: Call) -> Reply:
        match call:
            case Retrieve():
                return await self._search(call)
            case Rerank():
                return await self._rerank(call)
        return Failure(
            kind=FailureKind.NOT_CONFIGURED, detail=f"a search cannot answer a call of type {type(call).__name__}"
        )

    async def _search(self, call: Retrieve) -> Retrieved | Failure:
        asked = {
            "index": self._indexes[call.index], "question": call.question, "k": call.k,
            "duplicates": call.duplicates, "item": call.item,
        }  # fmt: skip
        try:
            return (await self._retriever.search([asked]))[0]
        except NoReply as error:
            self.refusal = to_refusal(error)
            return Failure(kind=error.kind, detail=self.refusal.message)

    async def _rerank(self, call: Rerank) -> Scored | Failure:
        if self._reranker == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        if not call.documents:
            return Scored(scores=())
        texts = [self.library[document].whole for document in call.documents]
        try:
            return await self._retriever.rerank(self._reranker, call.question, texts)
        except NoReply as error:
            return Failure(kind=error.kind, detail=_describe_no_answer(error))


def to_refusal(error: NoReply) -> MathragError:
    """Turn the retriever's error into a refusal: about an index, about what it needs, or about a question that its
    embedder cannot hold.
    """
    problem = error.problem
    if error.status == httpx2.codes.CONTENT_TOO_LARGE and problem.detail:
        return TooLarge(problem.detail, hint=problem.hint)
    if error.status == httpx2.codes.SERVICE_UNAVAILABLE and problem.detail:
        return Unavailable(problem.detail, hint=problem.hint)
    return Unavailable(_describe_no_answer(error), hint="see GET /readyz and the retriever's log")


def _describe_no_answer(error: NoReply) -> str:
    return f"the retriever did not answer ({type(error.cause).__name__})"
