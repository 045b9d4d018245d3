"""Answering many searches at once: per index one batch, near-duplicates of each question left out, then paged."""

import asyncio
from collections import defaultdict
from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from anyio import to_thread

from services.retriever.ports import DenseIndex, Index, Match
from services.retriever.questions import Questions, Vector, mean
from services.retriever.shelf import Documents, Shelf
from shared.contracts.calls import RELEASE_0_1, Duplicates
from shared.contracts.documents import Document, Hit
from shared.contracts.replies import Retrieved
from shared.errors import Invalid
from shared.rag.duplicates import is_left_out

NO_VECTOR = "the embedder knows no token of the question, which therefore has no vector"
SPARE = 10
"""So many more are fetched, so that dropped duplicates leave no gap."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one index; see `Retrieve` for what the fields mean."""

    index: int
    question: str
    k: int
    skip: int = 0
    hypothetical: tuple[str, ...] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: str = ""
    gold: str = ""

    def leaves_out(self, document: Document) -> bool:
        """Whether the document would give the answer away."""
        return is_left_out(self.duplicates, self.item or self.question, self.gold, document)

    @property
    def depth(self) -> int:
        """Matches that must be looked at."""
        return self.skip + self.k + SPARE


class Found(NamedTuple):
    """What an index has for one search."""

    matches: Sequence[Match]
    reason: str | None = None
    """Why nothing could be searched for."""


class Searcher:
    """Answers searches with the indexes of a shelf."""

    def __init__(self, shelf: Shelf, documents: Documents, questions: Questions) -> None:
        self._shelf = shelf
        self._documents = documents
        self._questions = questions

    async def answer(self, searches: Sequence[Search]) -> list[Retrieved]:
        """A reply per search, in order.

        Raises:
            NotFound, Unavailable: an index does not exist or cannot be used; nothing is answered then.
            Invalid: hypothetical texts for an index of words.
            TooLarge: a question or hypothetical text that the embedder cannot hold.
        """
        found = await self._found(searches)
        known = await self._documents.of(match.document for each in found for match in each.matches)

        def work() -> list[Retrieved]:
            return [reply(search, each, known) for search, each in zip(searches, found, strict=True)]

        return await to_thread.run_sync(work)

    async def _found(self, searches: Sequence[Search]) -> list[Found]:
        """Words do not wait for vectors, nor vectors for words: FAISS leaves the interpreter to the others."""
        asked: defaultdict[int, list[Search]] = defaultdict(list)
        for search in searches:
            asked[search.index].append(search)
        indexes = {number: await self._shelf.index(number) for number in asked}
        dense = {number: index for number, index in indexes.items() if isinstance(index, DenseIndex)}
        sparse = {number: index for number, index in indexes.items() if number not in dense}
        _refuse_hypothetical(searches, sparse)
        by_vectors, by_words = await asyncio.gather(
            self._by_vectors([(index, asked[number]) for number, index in dense.items()]),
            asyncio.gather(*(_by_words(index, asked[number]) for number, index in sparse.items())),
        )
        found = dict(zip((*dense, *sparse), map(iter, (*by_vectors, *by_words)), strict=True))
        return [next(found[search.index]) for search in searches]

    async def _by_vectors(self, asked: Sequence[tuple[DenseIndex, list[Search]]]) -> list[list[Found]]:
        """One embedding for all indexes, which have the same embedder; then one batch an index."""
        vectors = iter(await self._vectors([search for _, searches in asked for search in searches]))
        found = []
        for index, searches in asked:
            stacked = np.stack([next(vectors) for _ in searches])
            matches = await to_thread.run_sync(index.search_vectors, stacked, _deepest(searches))
            reasons = [None if vector.any() else NO_VECTOR for vector in stacked]
            found.append([Found(*each) for each in zip(matches, reasons, strict=True)])
        return found

    async def _vectors(self, searches: Sequence[Search]) -> list[Vector]:
        """What each search looks for: its question, or the mean of that and of its hypothetical documents."""
        questions = await self._questions.vectors([search.question for search in searches])
        made = await self._questions.hypothetical([text for search in searches for text in search.hypothetical])
        return [
            mean([question, *(made[text] for text in search.hypothetical)]) if search.hypothetical else question
            for question, search in zip(questions, searches, strict=True)
        ]


def reply(search: Search, found: Found, known: dict[str, Document]) -> Retrieved:
    """What is found, or why nothing could be."""
    if found.reason is not None:
        return Retrieved(hits=(), reason=found.reason)
    return without_duplicates(search, found.matches, known)


def without_duplicates(search: Search, matches: Sequence[Match], known: dict[str, Document]) -> Retrieved:
    """The page's matches among those that are not left out, so that no two pages overlap.

    Ranks are from 1, and go on counting from page to page. Of more than `SPARE` duplicates the rest are gaps.
    """
    fetched = matches[: search.depth]
    dropped = [each for match in fetched if (each := match.document) in known and search.leaves_out(known[each])]
    kept = [match for match in fetched if match.document not in dropped][search.skip : search.skip + search.k]
    hits = (
        Hit(document=match.document, rank=rank, score=match.score)
        for rank, match in enumerate(kept, start=search.skip + 1)
    )
    return Retrieved(hits=tuple(hits), duplicates=tuple(dropped))


async def _by_words(index: Index, searches: Sequence[Search]) -> list[Found]:
    texts = [search.question for search in searches]
    return [Found(each) for each in await to_thread.run_sync(index.search, texts, _deepest(searches))]


def _refuse_hypothetical(searches: Sequence[Search], of_words: Container[int]) -> None:
    for at, search in enumerate(searches):
        if search.hypothetical and search.index in of_words:
            raise Invalid(f"`searches.{at}.hypothetical`: index {search.index} finds words; only vectors have a mean")


def _deepest(searches: Sequence[Search]) -> int:
    """One depth serves all: fewer matches are a prefix of more."""
    return max(search.depth for search in searches)
