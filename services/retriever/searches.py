"""Answer many searches at once: one batch per index, then near-duplicates are dropped and a page is taken."""

import asyncio
from collections import defaultdict
from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from anyio import to_thread

from services.retriever.ports import DenseIndex, IndexMatch, SearchIndex
from services.retriever.questions import QuestionVectors, Vector, compute_mean_direction
from services.retriever.shelf import DocumentCache, IndexCache
from shared.calls import RELEASE_0_1, Duplicates
from shared.errors import Invalid
from shared.rag.duplicates import is_left_out
from shared.replies import Document, Hit, Retrieved

NO_VECTOR = "the embedder knows no token of the question, which therefore has no vector"
SPARE = 10
"""Matches that are fetched beyond the page, to fill the gaps of dropped duplicates."""


class IndexSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Asks one index one question; `Retrieve` says what the fields mean."""

    index: int
    question: str
    k: int
    skip: int = 0
    hypothetical: tuple[str, ...] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: str = ""
    gold: str = ""

    def leaves_out(self, document: Document) -> bool:
        """Tell whether the document would give the answer away."""
        return is_left_out(self.duplicates, self.item or self.question, self.gold, document)

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

    def __init__(self, shelf: IndexCache, documents: DocumentCache, questions: QuestionVectors) -> None:
        self._shelf = shelf
        self._documents = documents
        self._questions = questions

    async def answer(self, searches: Sequence[IndexSearch]) -> list[Retrieved]:
        """Return a reply per search, in order.

        Raises:
            NotFound, Unavailable: an index does not exist or cannot be used; nothing is answered then.
            Invalid: hypothetical texts for an index of words.
            TooLarge: a question or hypothetical text that the embedder cannot hold.
        """
        found = await self._search_indexes(searches)
        known = await self._documents.of(match.document for each in found for match in each.matches)

        def work() -> list[Retrieved]:
            return [make_reply(search, each, known) for search, each in zip(searches, found, strict=True)]

        return await to_thread.run_sync(work)

    async def _search_indexes(self, searches: Sequence[IndexSearch]) -> list[SearchMatches]:
        """Search dense and sparse indexes concurrently, since FAISS releases the interpreter lock."""
        asked: defaultdict[int, list[IndexSearch]] = defaultdict(list)
        for search in searches:
            asked[search.index].append(search)
        indexes = {number: await self._shelf.index(number) for number in asked}
        dense = {number: index for number, index in indexes.items() if isinstance(index, DenseIndex)}
        sparse = {number: index for number, index in indexes.items() if number not in dense}
        _refuse_hypothetical(searches, sparse)
        by_vectors, by_words = await asyncio.gather(
            self._search_vectors([(index, asked[number]) for number, index in dense.items()]),
            asyncio.gather(*(_search_words(index, asked[number]) for number, index in sparse.items())),
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


def make_reply(search: IndexSearch, found: SearchMatches, known: dict[str, Document]) -> Retrieved:
    """Make the reply of a search from its matches, or from the reason why there are none."""
    if found.reason is not None:
        return Retrieved(hits=(), reason=found.reason)
    return drop_duplicates(search, found.matches, known)


def drop_duplicates(search: IndexSearch, matches: Sequence[IndexMatch], known: dict[str, Document]) -> Retrieved:
    """Drop duplicates and take the page, so that no two pages overlap.

    Ranks start at 1 and continue from page to page. More than `SPARE` duplicates make a page shorter.
    """
    fetched = matches[: search.depth]
    dropped = [each for match in fetched if (each := match.document) in known and search.leaves_out(known[each])]
    kept = [match for match in fetched if match.document not in dropped][search.skip : search.skip + search.k]
    hits = (
        Hit(document=match.document, rank=rank, score=match.score)
        for rank, match in enumerate(kept, start=search.skip + 1)
    )
    return Retrieved(hits=tuple(hits), duplicates=tuple(dropped))


async def _search_words(index: SearchIndex, searches: Sequence[IndexSearch]) -> list[SearchMatches]:
    texts = [search.question for search in searches]
    return [SearchMatches(each) for each in await to_thread.run_sync(index.search, texts, _find_depth(searches))]


def _refuse_hypothetical(searches: Sequence[IndexSearch], of_words: Container[int]) -> None:
    for at, search in enumerate(searches):
        if search.hypothetical and search.index in of_words:
            raise Invalid(f"`searches.{at}.hypothetical`: index {search.index} is sparse; name a dense index")


def _find_depth(searches: Sequence[IndexSearch]) -> int:
    """Return the largest depth, which serves all searches: fewer matches are a prefix of more."""
    return max(search.depth for search in searches)
