"""Searches: their pages, the vectors of their questions, and what is ranked again."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET
from numpy.typing import NDArray
from sqlalchemy.exc import ProgrammingError

from mathrag.errors import Invalid, Unavailable
from services.retriever import searches
from services.retriever.index import Bm25, Faiss, SearchIndex
from services.retriever.searches import (
    NO_VECTOR,
    SPARE,
    EmbeddingCache,
    IndexSearch,
    PinnedReranker,
    RerankQuestion,
    Searcher,
    compute_mean_direction,
    identify_reranker,
)
from shared.models.embedding import ModelFailed
from shared.rag.duplicates import ComparedDocument
from shared.replies import Document, Failure, FailureKind, Scored
from shared.runtime.pins import NO_RERANKER
from shared.settings import Reranker
from tests.doubles import bert_file
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, HashedWords

# Searches over real indexes of several kinds: pages, hypothetical documents, one embedding for all.

# Vectors of questions: embedded once, kept for the next asker, counted.

pytestmark = pytest.mark.anyio


class Counting(HashedWords):
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_away = False

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        if self.is_away:
            raise Unavailable("away")
        return super().embed_queries(texts)


def counts(questions: EmbeddingCache) -> tuple[int, int]:
    return questions.counted.asked, questions.counted.hits


async def test_a_batch_is_embedded_at_once_and_each_question_once() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    found = await questions.vectors(["circle", "prime", "circle"])
    assert embedder.asked == [["circle", "prime"]]
    np.testing.assert_array_equal(found, HashedWords().embed_documents(["circle", "prime", "circle"]))
    assert counts(questions) == (3, 1)


async def test_what_was_asked_before_is_not_embedded_again() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    await questions.vectors(["circle"])
    found = await questions.vectors(["prime", "circle"])
    assert embedder.asked == [["circle"], ["prime"]]
    np.testing.assert_array_equal(found, HashedWords().embed_documents(["prime", "circle"]))
    await questions.vectors(["circle", "prime"])
    assert embedder.asked == [["circle"], ["prime"]]
    assert counts(questions) == (5, 3)


async def test_what_was_asked_longest_ago_goes_first() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 2)
    for text in ("circle", "prime", "circle", "area", "circle", "prime"):
        await questions.vectors([text])
    assert embedder.asked == [["circle"], ["prime"], ["area"], ["prime"]]


async def test_a_batch_larger_than_the_cache_is_answered_whole() -> None:
    for size in (0, 1):
        embedder = Counting()
        questions = EmbeddingCache(embedder, size)
        assert len(await questions.vectors(["circle", "prime", "area"])) == 3
        await questions.vectors(["circle"])
        assert embedder.asked == [["circle", "prime", "area"], ["circle"]]


async def test_an_embedder_that_is_away_leaves_nothing_behind() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    await questions.vectors(["circle"])
    embedder.is_away = True
    with pytest.raises(Unavailable):
        await questions.vectors(["circle", "prime"])
    assert counts(questions) == (1, 0)
    assert len(await questions.vectors(["circle"])) == 1
    embedder.is_away = False
    assert len(await questions.vectors(["prime"])) == 1


async def test_no_question_no_request() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    assert await questions.vectors([]) == []
    assert await questions.hypothetical([]) == {}
    assert embedder.asked == []


async def test_hypothetical_documents_are_embedded_as_documents() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    found = await questions.hypothetical(["a circle", "a prime", "a circle"])
    assert list(found) == ["a circle", "a prime"]
    assert embedder.asked == []
    assert counts(questions) == (0, 0)


def test_the_mean_is_a_direction() -> None:
    vectors = HashedWords().embed_documents(["circle", "prime", "area"])
    found = compute_mean_direction(list(vectors))
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
    expected = vectors.mean(axis=0)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-6)


def test_vectors_that_cancel_out_have_no_direction() -> None:
    one = HashedWords().embed_documents(["circle"])[0]
    assert not compute_mean_direction([one, -one]).any()


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
    def __init__(self, known: dict[str, ComparedDocument]) -> None:
        self.known = known

    async def of(self, documents: Iterable[str]) -> dict[str, ComparedDocument]:
        return {document: self.known[document] for document in documents if document in self.known}


def searcher(embedder: Any = None, twins: Iterable[str] = ()) -> Searcher:
    embedder = embedder or HashedWords()
    shelf: Any = Shelf(embedder)
    known: Any = Known(dict.fromkeys(twins, ComparedDocument(Document(problem=TWIN, text=""))))
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


async def test_words_have_no_cosine() -> None:
    with pytest.raises(Invalid, match=r"`searches\.0\.threshold`: index 2 is sparse"):
        await searcher().answer([search(SPARSE, threshold=0.5)])


async def test_a_threshold_cuts_its_own_search_alone() -> None:
    [whole] = await searcher().answer([search(DENSE)])
    least = whole.hits[2].score
    cut, again = await searcher().answer([search(DENSE, threshold=least), search(DENSE)])
    left = sum(hit.score >= least for hit in whole.hits)
    assert 3 <= left < len(whole.hits)
    assert (cut.hits, cut.cut, again) == (whole.hits[:left], whole.hits[left:], whole)


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


# What the retriever tells the database of its reranker, and whom it answers.


class Lengths:
    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        if "" in documents:
            raise ModelFailed(FailureKind.CONTEXT_EXCEEDED, "too short")
        return [1 / len(document) for document in documents]


def asked(model: str, *documents: str) -> RerankQuestion:
    return RerankQuestion(model=model, question="q", documents=documents)


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = bert_file.write(tmp_path / "a.gguf", head=True)
    found = identify_reranker(Reranker(kind="gguf", path=path))
    assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.version
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    assert identify_reranker(Reranker(kind="gguf", path=copy, batch=3, threads=4)).hash == found.hash
    other = bert_file.write(tmp_path / "b.gguf", head=True, seed=1)
    assert identify_reranker(Reranker(kind="gguf", path=other)).hash != found.hash


def test_a_model_of_the_hub_is_known_by_name_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "version", lambda _: "6.2.0")  # the extra is not installed everywhere
    given: dict[str, Any] = {"kind": "sentence-transformers", "path": Path("/nowhere")}
    hashes = {
        identify_reranker(Reranker(**given, model=name, revision=revision)).hash
        for name in "ab"
        for revision in ("", "1")
    }
    assert len(hashes) == 4
    assert identify_reranker(Reranker(**given, model="a")).digest is None


def test_none_is_one_too() -> None:
    assert identify_reranker(Reranker()) == NO_RERANKER


async def test_scores_go_to_whom_they_belong() -> None:
    mine = identify_reranker(Reranker(kind="endpoint", url="http://server", revision="1"))
    made = PinnedReranker(mine, Lengths())
    assert await made.answer(asked(mine.hash.hex(), "a", "bbbb")) == Scored(scores=(1.0, 0.25))
    for other, model in ((made, "0" * 64), (PinnedReranker(NO_RERANKER, None), mine.hash.hex())):
        refused = await other.answer(asked(model, "a"))
        assert isinstance(refused, Failure)
        assert refused.kind is FailureKind.BACKEND_ERROR


async def test_a_failure_of_the_model_keeps_its_kind() -> None:
    mine = identify_reranker(Reranker(kind="endpoint", url="http://server"))
    refused = await PinnedReranker(mine, Lengths()).answer(asked(mine.hash.hex(), ""))
    assert refused == Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too short")


class Broken:
    @asynccontextmanager
    async def transaction(self) -> Any:
        raise ProgrammingError("INSERT", {}, Exception("no table"))
        yield


async def test_a_database_that_refuses_stops_no_searches(caplog: pytest.LogCaptureFixture) -> None:
    database: Any = Broken()
    with caplog.at_level(logging.ERROR):
        await PinnedReranker(NO_RERANKER, None).register(database)
    assert "could not be registered" in caplog.text
