"""The client of the retriever service.

Each request has the time limit of its work, whoever asks: a search `retrieval.timeout_s`, however many questions it
holds; a reranking as long as its reranker may take for so many documents; the building of indexes, and what is answered
only after one, `BUILD_S`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx2
import msgspec

from shared.contracts.replies import Failure, FailureKind, Retrieved, Scored
from shared.redaction import redacted
from shared.settings import Settings

BUILD_S = 1800.0
"""Longest that building the indexes of a corpus may take."""
LONGEST_SAID = 300
"""Characters of an answer that is no problem document which are passed on."""
Reply = TypeVar("Reply")


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that the corpus now uses; the ones before stay on record, for the jobs that used them."""

    index: int
    kind: str
    signature: str
    """Digest of everything that determines it, as the settings are now."""
    documents: int
    reused: bool
    """It was there, and sound."""
    seconds: float


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """What a corpus is searched by."""

    corpus: int = 0
    indexes: tuple[Index, ...] = ()


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Indexes of this installation's prefix that no row and no evaluation names."""

    orphans: tuple[str, ...]
    """Their names on the server, in order."""
    deleted: bool
    """Whether they have been deleted."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What the retriever says is wrong."""

    type: str = ""
    detail: str = ""
    hint: str | None = None
    what: str = ""
    """The service that it needs and that has nothing for us."""


_PROBLEM = msgspec.json.Decoder(Problem)
_FOUND = msgspec.json.Decoder(list[Retrieved])
_SCORED: msgspec.json.Decoder[Scored | Failure] = msgspec.json.Decoder(Scored | Failure)
_INDEXES = msgspec.json.Decoder(Indexes)
_ORPHANS = msgspec.json.Decoder(Orphans)


class NoReply(Exception):
    """The retriever did not do what it was asked for; the message says why, without secrets."""

    def __init__(self, cause: httpx2.HTTPError | msgspec.DecodeError) -> None:
        response = cause.response if isinstance(cause, httpx2.HTTPStatusError) else None
        answer = None if response is None else f"HTTP {response.status_code}: {response.text[:LONGEST_SAID]}"
        super().__init__(redacted(answer or repr(cause)))
        self.cause = cause
        self.status = None if response is None else response.status_code
        """None: no answer came, or none of ours."""
        self.problem = Problem() if response is None else _problem(response)
        """Empty where another than the retriever has answered, or nobody."""

    @property
    def kind(self) -> FailureKind:
        """What it means for a call; a text that is too long is a fact about the text."""
        if isinstance(self.cause, httpx2.TimeoutException):
            return FailureKind.TIMEOUT
        if isinstance(self.cause, httpx2.TransportError):
            return FailureKind.CONNECTION
        too_large = self.status == httpx2.codes.CONTENT_TOO_LARGE
        return FailureKind.CONTEXT_EXCEEDED if too_large else FailureKind.BACKEND_ERROR


class RetrieverClient:
    """Asks the retriever of `settings` over `http`, which carries the service key. Every method may raise `NoReply`."""

    def __init__(self, http: httpx2.AsyncClient, settings: Settings) -> None:
        self._http = http
        self._url = settings.retriever_url
        self._retrieval = settings.retrieval

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return httpx2.URL(self._url).netloc.decode()

    async def search(self, searches: Sequence[Mapping[str, object]]) -> list[Retrieved]:
        """What each search finds, in one request."""
        return await self._ask("POST", "/search", _FOUND, self._retrieval.timeout_s, {"searches": searches})

    async def rerank(self, model: str, question: object, documents: Sequence[str]) -> Scored | Failure:
        """The scores of texts by the reranker whose hash is `model`."""
        body = {"model": model, "question": question, "documents": documents}
        return await self._ask("POST", "/rerank", _SCORED, self._retrieval.reranker.patience_s(len(documents)), body)

    async def build_indexes(self, corpus: int) -> Indexes:
        """Both indexes of a corpus, built where they are missing or damaged."""
        return await self._ask("POST", "/indexes", _INDEXES, BUILD_S, {"corpus": corpus})

    async def list_orphans(self) -> Orphans:
        """Indexes on Elasticsearch that nothing uses; a build that is under way is waited for."""
        return await self._ask("GET", "/orphans", _ORPHANS, BUILD_S)

    async def delete_orphans(self) -> Orphans:
        """The same, deleted."""
        return await self._ask("DELETE", "/orphans", _ORPHANS, BUILD_S)

    async def _ask(
        self, method: str, path: str, decoder: "msgspec.json.Decoder[Reply]", timeout_s: float, body: Any = None
    ) -> Reply:
        try:
            response = await self._http.request(method, f"{self._url}{path}", json=body, timeout=timeout_s)
            response.raise_for_status()
            return decoder.decode(response.content)
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            raise NoReply(error) from error


def _problem(response: httpx2.Response) -> Problem:
    try:
        return _PROBLEM.decode(response.content)
    except msgspec.DecodeError:
        return Problem()
