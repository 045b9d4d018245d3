"""Who answers the calls of a search: the retriever. What needs a model of the device is not to be had here."""

import asyncio
from collections.abc import Mapping, Sequence

import httpx2
import msgspec

from services.orchestrator.deps import Deps
from services.orchestrator.upstream import read_problem
from shared.contracts.calls import Call, Failure, FailureKind, Reply, Rerank, Retrieve, Retrieved, Scored
from shared.contracts.documents import Document
from shared.errors import MathragError, TooLarge, Unavailable
from shared.runtime.models import NO_RERANKER, NOT_CONFIGURED
from shared.storage.library import LibraryCache, mentioned

_FOUND = msgspec.json.Decoder(tuple[Retrieved])
_SCORED: msgspec.json.Decoder[Scored | Failure] = msgspec.json.Decoder(Scored | Failure)


class Answering:
    """The calls of one search over the builds `indexes`, by role; `reranker` is the hash that a job would be given."""

    def __init__(self, deps: Deps, indexes: Mapping[str, int], reranker: str) -> None:
        self._deps = deps
        self._retrieval = deps.settings.retrieval
        self._indexes = indexes
        self._reranker = reranker
        self.library: dict[str, Document] = {}
        """Every document that was found."""
        self.refusal: MathragError | None = None
        """What to tell whoever cannot go on without a search that failed."""

    async def replies(self, calls: Sequence[Call]) -> list[Reply]:
        """One a call, side by side, so that each fails alone."""
        replies = await asyncio.gather(*(self._reply(call) for call in calls))
        async with self._deps.database.statement() as connection:
            self.library |= await LibraryCache().documents(connection, mentioned(replies))
        return list(replies)

    async def _reply(self, call: Call) -> Reply:
        match call:
            case Retrieve():
                return await self._search(call)
            case Rerank():
                return await self._rerank(call)
        return Failure(kind=FailureKind.NOT_CONFIGURED, detail=f"a search has nobody for a {type(call).__name__}")

    async def _search(self, call: Retrieve) -> Retrieved | Failure:
        asked = {
            "index": self._indexes[call.index], "question": call.question, "k": call.k,
            "duplicates": call.duplicates, "item": call.item,
        }  # fmt: skip
        try:
            reply = await self._post("/search", {"searches": [asked]}, self._retrieval.timeout_s)
            _refuse(reply)
            return _FOUND.decode(reply.content)[0]
        except MathragError as refusal:
            self.refusal = refusal
            kind = FailureKind.CONTEXT_EXCEEDED if isinstance(refusal, TooLarge) else FailureKind.BACKEND_ERROR
            return Failure(kind=kind, detail=refusal.message)
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            said = f"the retriever did not answer ({type(error).__name__})"
            self.refusal = Unavailable(said, hint="see GET /readyz and the retriever's log")
            return Failure(kind=_kind(error), detail=said)

    async def _rerank(self, call: Rerank) -> Scored | Failure:
        if self._reranker == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        if not call.documents:
            return Scored(scores=())
        texts = [self.library[document].whole for document in call.documents]
        try:
            body = {"model": self._reranker, "question": call.question, "documents": texts}
            reply = await self._post("/rerank", body, self._retrieval.reranker.patience_s(len(texts)))
            reply.raise_for_status()
            return _SCORED.decode(reply.content)
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            return Failure(kind=_kind(error), detail=f"the retriever did not answer ({type(error).__name__})")

    async def _post(self, path: str, body: object, timeout_s: float) -> httpx2.Response:
        url = f"{self._deps.settings.retriever_url}{path}"
        return await self._deps.http.post(url, json=body, timeout=timeout_s)


def _refuse(reply: httpx2.Response) -> None:
    """What the retriever says of a request is said on.

    Raises:
        Unavailable: an index, or what it needs, is not there.
        TooLarge: the embedder cannot hold the question.
    """
    if problem := read_problem(reply, httpx2.codes.SERVICE_UNAVAILABLE, httpx2.codes.CONTENT_TOO_LARGE):
        away = reply.status_code == httpx2.codes.SERVICE_UNAVAILABLE
        raise (Unavailable if away else TooLarge)(problem.detail, hint=problem.hint)


def _kind(error: Exception) -> FailureKind:
    if isinstance(error, httpx2.TimeoutException):
        return FailureKind.TIMEOUT
    return FailureKind.CONNECTION if isinstance(error, httpx2.TransportError) else FailureKind.BACKEND_ERROR
