"""The client of the retriever service.

The timeout of a request depends on its work: a search has `retrieval.timeout_s`, for any number of questions; a
reranking as long as its reranker may take; the building of indexes `BUILD_S`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import httpx2
import msgspec

from mathrag.messages import redact
from shared.replies import Failure, FailureKind, Retrieved, Scored
from shared.settings import Settings
from shared.storage.corpora import IndexProgress

BUILD_S = 86_400.0
"""Timeout of building the indexes of a corpus, which ends when the request does."""
BUILDS_S = 2.0
"""Timeout of listing builds, which pages and lists do not depend on."""
EMBED_S = 300.0
"""Timeout of embedding the texts of one request."""
MAX_QUOTED = 300
"""Characters of an answer that are quoted in messages."""
Reply = TypeVar("Reply")


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that the corpus uses now. Earlier indexes are kept for the jobs that used them."""

    index: int
    """Number of the index in the database."""
    kind: str
    """Kind of the index: dense or sparse."""
    signature: str
    """Digest of everything that determines the index with the current settings."""
    documents: int
    """Number of documents in the index."""
    reused: bool
    """Whether an existing, undamaged index was used."""
    seconds: float
    """Seconds that the request spent on the index."""


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """The indexes of a corpus."""

    corpus: int = 0
    """Number of the corpus in the database."""
    indexes: tuple[Index, ...] = ()
    """The indexes that the corpus uses now."""


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Indexes with this installation's prefix that no corpus and no evaluation uses."""

    orphans: tuple[str, ...]
    """Names of the indexes on the server, in order."""
    deleted: bool
    """Whether the indexes have been deleted."""


class RetrieverProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document of the retriever."""

    type: str = ""
    detail: str = ""
    hint: str | None = None
    what: str = ""
    """The service on which the retriever waits; empty if none."""


class EmbeddedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors of length 1, one per text."""

    vectors: tuple[bytes, ...]
    """Each vector as little-endian 32-bit floats."""


_PROBLEM = msgspec.json.Decoder(RetrieverProblem)
_FOUND = msgspec.json.Decoder(list[Retrieved])
_SCORED: msgspec.json.Decoder[Scored | Failure] = msgspec.json.Decoder(Scored | Failure)
_EMBEDDED = msgspec.json.Decoder(EmbeddedTexts)
_INDEXES = msgspec.json.Decoder(Indexes)
_BUILDS = msgspec.json.Decoder(list[IndexProgress])
_ORPHANS = msgspec.json.Decoder(Orphans)


class NoReply(Exception):
    """The retriever did not carry out a request; the message says why, without secrets."""

    def __init__(self, cause: httpx2.HTTPError | msgspec.DecodeError) -> None:
        response = cause.response if isinstance(cause, httpx2.HTTPStatusError) else None
        answer = None if response is None else f"HTTP {response.status_code}: {response.text[:MAX_QUOTED]}"
        super().__init__(redact(answer or repr(cause)))
        self.cause = cause
        self.status = None if response is None else response.status_code
        """Status of the answer; None without an answer."""
        self.problem = RetrieverProblem()
        """The problem; empty without an answer of the retriever."""
        if response is not None:
            with suppress(msgspec.DecodeError):
                self.problem = _PROBLEM.decode(response.content)

    @property
    def kind(self) -> FailureKind:
        """Return the kind of failure that a call has by this error."""
        if isinstance(self.cause, httpx2.TimeoutException):
            return FailureKind.TIMEOUT
        if isinstance(self.cause, httpx2.TransportError):
            return FailureKind.CONNECTION
        too_large = self.status == httpx2.codes.CONTENT_TOO_LARGE
        return FailureKind.CONTEXT_EXCEEDED if too_large else FailureKind.BACKEND_ERROR


class RetrieverClient:
    """Client of the retriever in `settings` over `http`, which has the service key. All methods may raise `NoReply`."""

    def __init__(self, http: httpx2.AsyncClient, settings: Settings) -> None:
        self._http = http
        self._url = settings.retriever_url
        self._retrieval = settings.retrieval

    @property
    def address(self) -> str:
        """Return the retriever's host and port, for messages."""
        return httpx2.URL(self._url).netloc.decode()

    async def search(self, searches: Sequence[Mapping[str, object]]) -> list[Retrieved]:
        """Run several searches in one request and return the hits of each."""
        return await self._ask("POST", "/search", _FOUND, self._retrieval.timeout_s, {"searches": searches})

    async def rerank(self, model: str, question: object, documents: Sequence[str]) -> Scored | Failure:
        """Score texts with the reranker whose hash is `model`."""
        body = {"model": model, "question": question, "documents": documents}
        return await self._ask("POST", "/rerank", _SCORED, self._retrieval.reranker.patience_s(len(documents)), body)

    async def embed(self, texts: Sequence[str], model: str = "") -> EmbeddedTexts:
        """Embed texts as documents; `model` is the hash of the embedder that the asking job is pinned to, or ""."""
        return await self._ask("POST", "/embed", _EMBEDDED, EMBED_S, {"texts": texts, "model": model})

    async def build_indexes(self, corpus: int) -> Indexes:
        """Build those of the two indexes of a corpus that are missing or damaged, and return both."""
        return await self._ask("POST", "/indexes", _INDEXES, BUILD_S, {"corpus": corpus})

    async def list_builds(self, corpus: int) -> list[IndexProgress]:
        """List the builds of a corpus's indexes that run or wait."""
        return await self._ask("GET", f"/indexes/{corpus}/builds", _BUILDS, BUILDS_S)

    async def list_orphans(self) -> Orphans:
        """List unused indexes on Elasticsearch."""
        return await self._ask("GET", "/orphans", _ORPHANS, BUILD_S)

    async def delete_orphans(self) -> Orphans:
        """Delete unused indexes on Elasticsearch."""
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
