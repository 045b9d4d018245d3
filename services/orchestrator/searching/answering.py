"""Who answers the calls of a search: the retriever. What needs a model of the device is not to be had here."""

from collections.abc import Sequence

import httpx2
import msgspec

from services.orchestrator.api.resources import Resources
from services.orchestrator.api.said import PROBLEM
from shared.contracts.calls import Call, Failure, FailureKind, Reply, Rerank, Retrieve, Retrieved, Scored
from shared.contracts.documents import Document
from shared.errors import TooLarge, Unavailable
from shared.runtime.library import LibraryCache
from shared.runtime.models import NO_RERANKER

PATIENCE_S = 30.0
_FOUND = msgspec.json.Decoder(list[Retrieved])
_SCORED: msgspec.json.Decoder[Scored | Failure] = msgspec.json.Decoder(Scored | Failure)


class Answering:
    """The calls of one search over the builds `indexes`, by role."""

    def __init__(self, held: Resources, indexes: dict[str, int], reranker: str) -> None:
        self._held = held
        self._indexes = indexes
        self._reranker = reranker
        """Hash of the model that a job of this moment would be pinned to."""
        self._library = LibraryCache()

    async def replies(self, calls: Sequence[Call]) -> list[Reply]:
        """One a call.

        Raises:
            Unavailable: the retriever does not answer a search, or not as it should.
            TooLarge: the embedder cannot hold the question.
        """
        searches = [call for call in calls if isinstance(call, Retrieve)]
        found = iter(await self._search(searches) if searches else ())
        return [next(found) if isinstance(call, Retrieve) else await self._other(call) for call in calls]

    async def _other(self, call: Call) -> Reply:
        if isinstance(call, Rerank):
            return await self._rerank(call)
        detail = "a search asks no model of the device: POST /v1/chat does"
        return Failure(kind=FailureKind.NOT_CONFIGURED, detail=detail)

    async def _search(self, calls: Sequence[Retrieve]) -> list[Retrieved]:
        searches = [
            {"index": self._indexes[call.index], "question": call.question, "k": call.k, "skip": call.skip}
            for call in calls
        ]
        try:
            reply = await self._post("/search", {"searches": searches})
            _refuse(reply)
            return _FOUND.decode(reply.content)
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            hint = "see GET /readyz and the retriever's log"
            raise Unavailable(f"the retriever did not answer ({type(error).__name__})", hint=hint) from error

    async def _rerank(self, call: Rerank) -> Reply:
        """A reranker that is not there, or does not answer, is a failure that searches go on without."""
        if self._reranker == NO_RERANKER.hash.hex():
            return Failure(kind=FailureKind.NOT_CONFIGURED, detail="no reranker is configured (`retrieval.reranker`)")
        if not call.documents:
            return Scored(scores=())
        async with self._held.database.statement() as connection:
            await self._library.ensure(connection, call.documents)
        texts = [_text(self._library[document]) for document in call.documents]
        try:
            body = {"model": self._reranker, "question": call.question, "documents": texts}
            reply = await self._post("/rerank", body)
            reply.raise_for_status()
            return _SCORED.decode(reply.content)
        except httpx2.TimeoutException as error:
            return Failure(kind=FailureKind.TIMEOUT, detail=type(error).__name__)
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=type(error).__name__)

    async def _post(self, path: str, body: object) -> httpx2.Response:
        url = f"{self._held.settings.retriever_url}{path}"
        return await self._held.http.post(url, json=body, timeout=PATIENCE_S)


def _refuse(reply: httpx2.Response) -> None:
    """What the retriever says of a request is said on."""
    if reply.status_code == httpx2.codes.SERVICE_UNAVAILABLE:
        said = PROBLEM.decode(reply.content)
        raise Unavailable(said.detail, hint=said.hint)
    if reply.status_code == httpx2.codes.CONTENT_TOO_LARGE:
        said = PROBLEM.decode(reply.content)
        raise TooLarge(said.detail, hint=said.hint)
    reply.raise_for_status()


def _text(document: Document) -> str:
    """As it was indexed, and as jobs have it scored: problem and text on separate lines."""
    return f"{document.problem}\n{document.text}" if document.problem else document.text
