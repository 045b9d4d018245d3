"""Searches: embed questions, search, and rerank."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from math import inf
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError

from mathrag.errors import Conflict, Invalid, Unavailable
from services.retriever.builds import DocumentCache, IndexCache
from services.retriever.index import DenseIndex, IndexMatch
from shared.calls import MAX_QUESTION, RELEASE_0_1, Duplicates
from shared.models import files
from shared.models.embedding import Embedder, ModelFailed, RerankingModel
from shared.models.retriever_client import EmbeddedTexts
from shared.models.servers import identity_of
from shared.plugins.loading import find_usable
from shared.rag.duplicates import ComparedDocument, find_left_out
from shared.recent import LruCache
from shared.replies import Failure, FailureKind, Hit, Retrieved, Scored
from shared.runtime import pins
from shared.runtime.pins import NO_RERANKER, ModelIdentity, embedder_identity
from shared.settings import Reranker as RerankerSettings
from shared.shapes import Kind
from shared.storage.database import Database, retry_through_outage

MAX_K = 1_000
MAX_HYPOTHETICAL = 64
MAX_RERANKED = 1_000

Vector = NDArray[np.float32]
Question = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]

_log = logging.getLogger(__name__)

# Embed texts: distinct questions of a batch together, and cached ones not at all.

QUESTIONS_AT_ONCE = 8
"""Batches that are embedded at once, so that a slow server leaves threads for sparse searches."""
AGAIN_S = 5.0
"""Seconds before an embedder's server is asked again which model it serves."""


class CacheCounts(msgspec.Struct):
    """Uses of the cache since the process started."""

    asked: int = 0
    """Questions to dense indexes, with repetitions."""
    hits: int = 0
    """Questions whose vector was cached, or made for an equal question of the same batch."""


class EmbeddingCache:
    """Embeds texts for searches and jobs; keeps the `size` vectors of questions that were used last."""

    def __init__(self, embedder: Embedder, size: int) -> None:
        self._embedder = embedder
        self._recent: LruCache[Vector] = LruCache(size)
        self._limiter = CapacityLimiter(QUESTIONS_AT_ONCE)
        self.counted = CacheCounts()

    async def vectors(self, questions: Sequence[str]) -> list[Vector]:
        """Return one vector per question.

        Raises:
            TooLarge, Unavailable: see `Embedder.embed_queries`; then nothing is cached.
        """
        found = self._recent.find(dict.fromkeys(questions))
        if missing := [text for text in dict.fromkeys(questions) if text not in found]:
            made = await to_thread.run_sync(self._embedder.embed_queries, missing, limiter=self._limiter)
            found |= dict(zip(missing, made, strict=True))
        self.counted.asked += len(questions)
        self.counted.hits += len(questions) - len(missing)
        self._recent.keep(found)
        return [found[text] for text in questions]

    async def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts as documents, without the cache, as vectors [len(texts), dimension].

        Raises:
            TooLarge, Unavailable: see `Embedder.embed_documents`.
        """
        return await to_thread.run_sync(self._embedder.embed_documents, texts, limiter=self._limiter)

    async def hypothetical(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed hypothetical documents, by text; they are not cached, since they do not repeat."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, await self.documents(distinct), strict=True)) if distinct else {}

    async def register(self, database: Database) -> None:
        """Pin new jobs to the embedder; an outage of its server or the database is waited for."""
        await register_for_new_jobs(database, await self._identify(), "embedder")

    async def _identify(self) -> ModelIdentity:
        while True:
            try:
                return embedder_identity(await to_thread.run_sync(lambda: self._embedder.signature))
            except Unavailable:
                await asyncio.sleep(AGAIN_S)

    async def embed(self, texts: Sequence[str], model: str) -> EmbeddedTexts:
        """Return a vector of length 1 for each text, in order.

        Args:
            texts: the texts to embed.
            model: hash, in hex, of the row of `models` that the asking job is pinned to; "": the configured embedder.

        Raises:
            Conflict: the job was given another embedder.
            TooLarge: a text is longer than the model can hold.
            Unavailable: the embedder's server does not answer now.
        """
        if model and model != (await self._identify()).hash.hex():
            raise Conflict(
                "the job is pinned to an embedder that the retriever is not configured with",
                hint="configure that embedder again, or submit the job again",
            )
        vectors = await self.documents(texts)
        return EmbeddedTexts(vectors=tuple(vector.astype("<f4").tobytes() for vector in vectors))


async def register_for_new_jobs(database: Database, identity: ModelIdentity, what: str) -> None:
    """Pin new jobs to this model; wait out outages of the database."""

    async def write() -> None:
        async with database.transaction() as connection:
            await pins.register(connection, identity)

    try:
        await retry_through_outage(write, inf)
    except SQLAlchemyError:
        _log.exception("the %s could not be registered: new jobs stay pinned to the previous one", what)


def compute_mean_direction(vectors: Sequence[Vector]) -> Vector:
    """Return the mean of vectors at length 1, or zeros (HyDE, Gao et al. 2023, section 3.2)."""
    total: NDArray[np.float64] = np.stack(vectors).sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(total))
    return (total / (length or 1)).astype(np.float32)


# Answer many searches at once: one batch per index, then near-duplicates are dropped, a page is taken and cut.

NO_VECTOR = "the embedder knows no token of the question, which therefore has no vector"
SPARE = 10
"""Matches that are fetched beyond the page, to fill the gaps of dropped duplicates."""


class IndexSearch(BaseModel):
    """Asks one index one question; see `Retrieve` for the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Annotated[int, Field(gt=0)]
    question: Question
    k: Annotated[int, Field(gt=0, le=MAX_K)]
    skip: Annotated[int, Field(ge=0, le=MAX_K)] = 0
    hypothetical: Annotated[tuple[Question, ...], Field(max_length=MAX_HYPOTHETICAL)] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: Annotated[str, Field(max_length=MAX_QUESTION)] = ""
    gold: str = ""
    threshold: float | None = None

    @property
    def depth(self) -> int:
        """Number of matches that must be fetched."""
        return self.skip + self.k + SPARE


class SearchMatches(NamedTuple):
    """The matches of one search."""

    matches: Sequence[IndexMatch]
    reason: str | None = None
    """Why nothing could be searched for; None if it was searched."""


class Searcher:
    """Answers searches with the indexes of the cache."""

    def __init__(self, shelf: IndexCache, documents: DocumentCache, questions: EmbeddingCache) -> None:
        self._shelf = shelf
        self._documents = documents
        self._questions = questions

    async def answer(self, searches: Sequence[IndexSearch]) -> list[Retrieved]:
        """Return a reply per search, in order.

        Raises:
            NotFound, Unavailable: an index does not exist or cannot be used; nothing is answered then.
            Invalid: hypothetical texts or a threshold for an index of words.
            TooLarge: a question or hypothetical text that the embedder cannot hold.
        """
        found = await self._search_indexes(searches)
        known = await self._documents.of(match.document for each in found for match in each.matches)

        def work() -> list[Retrieved]:
            return [
                take_page(search, matches, known) if reason is None else Retrieved(hits=(), reason=reason)
                for search, (matches, reason) in zip(searches, found, strict=True)
            ]

        return await to_thread.run_sync(work)

    async def _search_indexes(self, searches: Sequence[IndexSearch]) -> list[SearchMatches]:
        """Search dense and sparse indexes concurrently, since FAISS releases the interpreter lock."""
        asked: defaultdict[int, list[IndexSearch]] = defaultdict(list)
        for search in searches:
            asked[search.index].append(search)
        indexes = {number: await self._shelf.index(number) for number in asked}
        dense = {number: index for number, index in indexes.items() if isinstance(index, DenseIndex)}
        sparse = {number: index for number, index in indexes.items() if number not in dense}
        for at, search in enumerate(searches):
            if search.index in sparse and (search.hypothetical or search.threshold is not None):
                field = "hypothetical" if search.hypothetical else "threshold"
                raise Invalid(f"`searches.{at}.{field}`: index {search.index} is sparse; name a dense index")

        async def search_words(number: int) -> list[SearchMatches]:
            texts = [search.question for search in asked[number]]
            found = await to_thread.run_sync(sparse[number].search, texts, _find_depth(asked[number]))
            return [SearchMatches(each) for each in found]

        by_vectors, by_words = await asyncio.gather(
            self._search_vectors([(index, asked[number]) for number, index in dense.items()]),
            asyncio.gather(*map(search_words, sparse)),
        )
        found = dict(zip((*dense, *sparse), map(iter, (*by_vectors, *by_words)), strict=True))
        return [next(found[search.index]) for search in searches]

    async def _search_vectors(self, asked: Sequence[tuple[DenseIndex, list[IndexSearch]]]) -> list[list[SearchMatches]]:
        """Embed the questions of all indexes at once, then search each index with one batch."""
        vectors = iter(await self._embed_searches([search for _, searches in asked for search in searches]))
        found = []
        for index, searches in asked:
            stacked = np.stack([next(vectors) for _ in searches])
            matches = await to_thread.run_sync(index.search_vectors, stacked, _find_depth(searches))
            reasons = [None if vector.any() else NO_VECTOR for vector in stacked]
            found.append([SearchMatches(*each) for each in zip(matches, reasons, strict=True)])
        return found

    async def _embed_searches(self, searches: Sequence[IndexSearch]) -> list[Vector]:
        """Return the vector of each search: its question's, or the mean with those of its hypothetical documents."""
        questions = await self._questions.vectors([search.question for search in searches])
        made = await self._questions.hypothetical([text for search in searches for text in search.hypothetical])
        return [
            compute_mean_direction([question, *(made[text] for text in search.hypothetical)])
            if search.hypothetical
            else question
            for question, search in zip(questions, searches, strict=True)
        ]


def take_page(search: IndexSearch, matches: Sequence[IndexMatch], known: Mapping[str, ComparedDocument]) -> Retrieved:
    """Drop duplicates, take the page, so that no two pages overlap, and cut it at the threshold.

    Ranks start at 1 and continue from page to page. More than `SPARE` duplicates make a page shorter.
    """
    fetched = matches[: search.depth]
    found = {match.document: known[match.document] for match in fetched if match.document in known}
    dropped = find_left_out(search.duplicates, search.item or search.question, search.gold, found)
    kept = [match for match in fetched if match.document not in dropped][search.skip : search.skip + search.k]
    hits = tuple(
        Hit(document=match.document, rank=rank, score=match.score)
        for rank, match in enumerate(kept, start=search.skip + 1)
    )
    # Scores fall, so the end of the list is cut.
    left = sum(search.threshold is None or hit.score >= search.threshold for hit in hits)
    return Retrieved(hits=hits[:left], duplicates=tuple(dropped), cut=hits[left:] or msgspec.UNSET)


def _find_depth(searches: Sequence[IndexSearch]) -> int:
    """Return the largest depth, which serves all searches: fewer matches are a prefix of more."""
    return max(search.depth for search in searches)


# Rerank for jobs that are pinned to the configured reranker, and register that reranker in the database.

RERANKS_AT_ONCE = 4
"""Requests that are scored at once; searches keep the other threads."""
LIBRARIES = {"gguf": "xllamacpp", "sentence-transformers": "sentence-transformers"}
"""The library that computes with a model in this process; its version is part of the model's identity."""

START_SERVER = "start the server that `retrieval.reranker` names, or correct its `url`"


class RerankQuestion(BaseModel):
    """Holds a question and the texts to score for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    """Hash, in hex, of the row in `models` to which the job is pinned."""
    question: Question
    documents: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_RERANKED)]


class PinnedReranker:
    """The configured reranker, or None."""

    def __init__(self, identity: ModelIdentity, reranker: RerankingModel | None) -> None:
        self._identity = identity
        self._reranker = reranker
        self._limiter = CapacityLimiter(RERANKS_AT_ONCE)

    async def register(self, database: Database) -> None:
        """Register the reranker, or its absence, so that new jobs are pinned to it."""
        await register_for_new_jobs(database, self._identity, "reranker")

    async def answer(self, question: RerankQuestion) -> Scored | Failure:
        """Return one score per document, in order, or a `Failure` if the job is pinned to another reranker.

        Raises:
            Unavailable: the reranker's server does not answer now.
        """
        if self._reranker is None or question.model != self._identity.hash.hex():
            detail = "the job is pinned to a reranker that the retriever is not configured with: submit it again"
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)
        try:
            scores = await to_thread.run_sync(
                self._reranker.score, question.question, question.documents, limiter=self._limiter
            )
        except ModelFailed as failed:
            if failed.kind is FailureKind.UNAVAILABLE:
                raise Unavailable(
                    f"the reranker gave no scores: {failed.detail}", hint=START_SERVER, what=failed.what
                ) from failed
            return Failure(kind=failed.kind, detail=failed.detail)
        return Scored(scores=tuple(scores))


def identify_reranker(settings: RerankerSettings) -> ModelIdentity:
    """Return the identity of the reranker: everything that changes scores, which its address does not.

    Raises:
        WeightsMissing: the file or folder does not exist.
    """
    if settings.kind == "none":
        return NO_RERANKER
    if settings.kind == "plugin":
        plugin = find_usable(Kind.RERANKER, settings.plugin)
        kept = settings.model_dump(include={"activation", "max_chars"})
        return ModelIdentity(
            name=NO_RERANKER.name,
            backend="plugin",
            digest=plugin.pin.hash,
            version=f"{plugin.distribution} {plugin.version}",
            options={**kept, "plugin": identity_of(plugin, settings.options)},
        )
    library = LIBRARIES.get(settings.kind)
    return ModelIdentity(
        name=NO_RERANKER.name,
        backend=settings.kind,
        # None if nothing identifies the version of the model.
        digest=(settings.revision or None) if settings.path is None or settings.model else files.digest(settings.path),
        version=version(library) if library else "",
        options=settings.model_dump(include={"model", "protocol", "activation", "max_chars"}),
    )
