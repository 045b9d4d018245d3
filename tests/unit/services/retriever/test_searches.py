"""Searches over real indexes of several kinds: pages, hypothetical documents, one embedding for all."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

from services.retriever.index import Bm25, Faiss, SearchIndex
from services.retriever.searches import NO_VECTOR, SPARE, EmbeddingCache, IndexSearch, Searcher, compute_mean_direction
from shared.errors import Invalid, Unavailable
from shared.replies import Document
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, HashedWords
from tests.unit.services.retriever.test_questions import Counting

pytestmark = pytest.mark.anyio

DENSE, SPARSE, OTHER = 1, 2, 3
TWIN = "How many primes are there below one hundred?"
MANY = [(f"{at:064x}", f"prime number {at} and circle {at % 7}") for at in range(60)]


class Shelf:
    def __init__(self, embedder: HashedWords) -> None:
        self.indexes: dict[int, SearchIndex] = {
            DENSE: Faiss(embedder).build([MANY]),
            SPARSE: Bm25().build([MANY]),
            OTHER: Faiss(embedder).build([DOCUMENTS]),
        }

    async def index(self, index: int) -> SearchIndex:
        return self.indexes[index]


class Known:
    def __init__(self, known: dict[str, Document]) -> None:
        self.known = known

    async def of(self, documents: Iterable[str]) -> dict[str, Document]:
        return {document: self.known[document] for document in documents if document in self.known}


def searcher(embedder: Any = None, twins: Iterable[str] = ()) -> Searcher:
    embedder = embedder or HashedWords()
    shelf: Any = Shelf(embedder)
    known: Any = Known(dict.fromkeys(twins, Document(problem=TWIN, text="")))
    return Searcher(shelf, known, EmbeddingCache(embedder, 100))


def search(index: int, question: str = "prime circle", k: int = 5, **more: Any) -> IndexSearch:
    return IndexSearch(index=index, question=question, k=k, **more)


async def found(made: Searcher, *searches: IndexSearch) -> list[list[tuple[int, str, float]]]:
    return [[(hit.rank, hit.document, hit.score) for hit in each.hits] for each in await made.answer(searches)]


async def test_replies_come_in_the_order_asked() -> None:
    made = searcher()
    asked = [
        search(index, question, k) for k, question in enumerate(QUESTIONS, start=1) for index in (SPARSE, DENSE, OTHER)
    ]
    together = await found(made, *asked)
    assert together == [(await found(made, each))[0] for each in asked]


@pytest.mark.parametrize("index", [DENSE, SPARSE])
async def test_pages_are_the_search_in_pieces(index: int) -> None:
    made = searcher()
    [whole] = await found(made, search(index, k=30))
    pages = await found(made, *(search(index, k=10, skip=skip) for skip in (0, 10, 20)))
    assert [hit for page in pages for hit in page] == whole
    assert [rank for rank, _, _ in whole] == list(range(1, 31))


@pytest.mark.parametrize("index", [DENSE, SPARSE])
async def test_near_duplicates_are_dropped_before_paging(index: int) -> None:
    [[*best]] = await found(searcher(), search(index, TWIN, k=40))
    documents = [document for _, document, _ in best]
    twins = documents[1:9:2]
    pages = await searcher(twins=twins).answer([search(index, TWIN, k=10, skip=skip) for skip in (0, 10, 20)])
    shown = [hit.document for page in pages for hit in page.hits]
    assert shown == [document for document in documents if document not in twins][:30]
    assert pages[0].duplicates == tuple(twins)


@pytest.mark.parametrize("index", [DENSE, SPARSE])
async def test_a_search_in_other_words_leaves_out_what_repeats_the_items_question(index: int) -> None:
    [[*best]] = await found(searcher(), search(index, k=5))
    twin = best[1][1]
    asked = [search(index, k=5), search(index, k=5, item=TWIN, duplicates="same-text")]
    plain, careful = await searcher(twins=[twin]).answer(asked)
    assert (plain.duplicates, careful.duplicates) == ((), (twin,))


@pytest.mark.parametrize("index", [DENSE, SPARSE])
async def test_a_question_without_a_vector_says_why_it_finds_nothing(index: int) -> None:
    nothing, something = await searcher().answer([search(index, "+"), search(index)])
    assert (nothing.hits, len(something.hits)) == ((), 5)
    assert nothing.reason == (NO_VECTOR if index == DENSE else UNSET)
    assert something.reason is UNSET
    if index == DENSE:
        [moved] = await searcher().answer([search(DENSE, "+", hypothetical=("circle",))])
        assert (len(moved.hits), moved.reason) == (5, UNSET)


async def test_a_page_beyond_the_end_is_empty() -> None:
    assert await found(searcher(), search(DENSE, k=10, skip=60)) == [[]]
    [[last]] = await found(searcher(), search(DENSE, k=10, skip=59))
    assert last[0] == 60


async def test_the_depth_has_room_for_duplicates() -> None:
    assert search(DENSE, k=5, skip=20).depth == 25 + SPARE


async def test_hypothetical_documents_move_the_question() -> None:
    texts = ("circle 3 circle", "number of a circle")
    [moved] = await found(searcher(), search(DENSE, hypothetical=texts, k=60))
    vectors = HashedWords().embed_documents(["prime circle", *texts])
    expected = HashedWords().embed_documents([text for _, text in MANY]).astype(np.float64) @ compute_mean_direction(
        list(vectors)
    )
    scores = {int(document, 16): score for _, document, score in moved}
    assert [scores[at] for at in range(60)] == pytest.approx(expected.tolist(), abs=1e-6)


async def test_no_hypothetical_document_is_a_plain_search() -> None:
    made = searcher()
    [plain] = await found(made, search(DENSE))
    together = await found(made, search(DENSE, hypothetical=("circle",)), search(DENSE, hypothetical=()))
    assert together[1] == plain
    assert together[0] != plain


async def test_a_hypothetical_document_is_never_a_hit() -> None:
    [hits] = await found(searcher(), search(OTHER, hypothetical=("made up",), k=50))
    assert {document for _, document, _ in hits} == {document for document, _ in DOCUMENTS}


async def test_words_have_no_mean() -> None:
    with pytest.raises(Invalid, match=r"`searches\.1\.hypothetical`: index 2 is sparse"):
        await searcher().answer([search(DENSE), search(SPARSE, hypothetical=("circle",))])


async def test_all_dense_indexes_share_one_embedding() -> None:
    embedder = Counting()
    made = searcher(embedder)
    await made.answer([search(DENSE), search(OTHER), search(DENSE, skip=5), search(SPARSE, "radius")])
    assert embedder.asked == [["prime circle"]]


async def test_trouble_of_the_embedder_comes_through_as_it_is() -> None:
    embedder = Counting()
    made = searcher(embedder)
    embedder.is_away = True
    with pytest.raises(Unavailable, match="away"):
        await made.answer([search(DENSE), search(SPARSE)])
    assert len((await found(made, search(SPARSE)))[0]) == 5
