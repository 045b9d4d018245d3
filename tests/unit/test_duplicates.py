"""Near-duplicates of a question."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.dense import Faiss
from services.retriever.duplicates import is_near_duplicate, jaccard, near_duplicates, shingles
from services.retriever.ports import Match
from services.retriever.searches import SPARE, Search, without_duplicates
from services.retriever.sparse import Bm25
from services.retriever.texts import indexed_text
from shared.contracts.documents import Document
from shared.ingest.corpora import read_corpus
from shared.ingest.datasets import read_dataset
from shared.ingest.paths import corpus_lines, dataset_lines
from shared.models.static_embeddings import StaticEmbedder
from shared.settings import REPOSITORY

MATH = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data" / "math"

TEN = "one two three four five six seven eight nine ten"
"""Eight shingles."""


def document(number: int) -> str:
    """A hash that sorts by number."""
    return f"{number:064x}"


@pytest.mark.parametrize(
    ("question", "problem", "expected"),
    [
        ("What is 1+1?", "What is 1+1?", True),
        ("What is  1+1?", "what IS\n1+1? ", True),
        ("+", "+", True),
        (TEN, TEN + " eleven", True),  # 8 of 9
        (TEN, TEN + " eleven twelve", True),  # 8 of 10: the threshold belongs to it
        (TEN, TEN + " eleven twelve thirteen", False),  # 8 of 11
        (TEN, TEN.replace("five", "5"), False),  # 5 of 11
        (TEN, "", False),
        ("", "", False),
        (TEN, "+", False),
        ("8 nubp 7", "8 nubp 7", True),
        ("8 nubp 7", "8 nubp 6", False),
        ("求三角形的面积", "求三角形的面积。", True),
        ("求三角形的面积", "求圆的周长", False),
    ],
)
def test_near_duplicate(question: str, problem: str, *, expected: bool) -> None:
    """Equal but for case and blanks, or a Jaccard index of at least 0.8."""
    assert is_near_duplicate(question, problem) is expected


def test_shingles() -> None:
    """Three words each; a short text is one."""
    assert shingles("a b c d") == {("a", "b", "c"), ("b", "c", "d")}
    assert shingles("a b") == {("a", "b")}
    assert shingles("") == frozenset()


@given(st.frozensets(st.tuples(st.sampled_from("abcd"))), st.frozensets(st.tuples(st.sampled_from("abcd"))))
def test_jaccard(left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]) -> None:
    """Symmetric, within [0, 1], and 1 for equal sets only."""
    value = jaccard(left, right)
    assert value == jaccard(right, left)
    assert 0 <= value <= 1
    assert (value == 1) == (left == right and bool(left))


def test_names_all_duplicates_in_order() -> None:
    """As they were found."""
    assert near_duplicates(TEN, [("b", TEN), ("a", "other"), ("c", TEN + " eleven")]) == ["b", "c"]


def test_ranks_count_from_one_after_dropping() -> None:
    """What was dropped leaves no gap."""
    matches = [Match(document(number), 1 / (number + 1)) for number in range(5)]
    search = Search(index=1, question=TEN, k=3)
    reply = without_duplicates(search, matches, {document(0): TEN, document(2): TEN})
    assert reply.duplicates == (document(0), document(2))
    assert [(hit.document, hit.rank) for hit in reply.hits] == [
        (document(number), rank) for rank, number in enumerate((1, 3, 4), start=1)
    ]
    assert reply.hits[0].score == 1 / 2


def test_looks_at_the_spare_matches_and_no_deeper() -> None:
    """k + 10 are fetched: so many duplicates are made up for, and the reply depends on k alone."""
    matches = [Match(document(number), 1.0) for number in range(50)]
    twins = {document(number): TEN for number in range(SPARE)}
    reply = without_duplicates(Search(index=1, question=TEN, k=2), matches, twins)
    assert [hit.document for hit in reply.hits] == [document(SPARE), document(SPARE + 1)]
    late = without_duplicates(Search(index=1, question=TEN, k=2), matches, {document(SPARE + 2): TEN})
    assert late.duplicates == ()


def test_a_document_that_is_no_longer_known_is_kept() -> None:
    """Nothing says that it is a duplicate."""
    reply = without_duplicates(Search(index=1, question=TEN, k=1), [Match(document(1), 1.0)], {})
    assert len(reply.hits) == 1


@pytest.mark.skipif(not MATH.is_dir(), reason="the data folder is not here (set MATHRAG_SHARED)")
def test_near_duplicates_of_math() -> None:
    """15 of 1,000 questions have one among BM25's first 10 of 7,500, and none is left in a reply."""
    found: dict[str, Document] = {}
    for record in read_corpus(corpus_lines(MATH / "train.jsonl")):
        found[record.document.hash] = record.document
    questions = [item.question for item in read_dataset(dataset_lines(MATH / "test-dev.jsonl"))]
    texts = [(number, indexed_text(each.problem, each.text)) for number, each in found.items()]
    problems = {number: each.problem for number, each in found.items()}
    searches = [Search(index=1, question=question, k=10) for question in questions]
    matches = Bm25().build([texts]).search(questions, 10 + SPARE)
    assert (
        sum(bool(duplicates(search, each[:10], problems)) for search, each in zip(searches, matches, strict=True)) == 15
    )
    for search, each in zip(searches, matches, strict=True):
        reply = without_duplicates(search, each, problems)
        assert not any(is_near_duplicate(search.question, problems[hit.document]) for hit in reply.hits)
        assert len(reply.hits) == 10


def duplicates(search: Search, matches: list[Match], problems: dict[str, str]) -> list[str]:
    """Those among `matches`."""
    return near_duplicates(search.question, [(match.document, problems[match.document]) for match in matches])


@pytest.mark.skipif(not MATH.is_dir(), reason="the data folder is not here (set MATHRAG_SHARED)")
def test_dense_search_finds_the_twin_of_a_problem() -> None:
    """A problem in other words is nearest to itself in the shipped embeddings."""
    records = [
        record.document for _, record in zip(range(300), read_corpus(corpus_lines(MATH / "train.jsonl")), strict=False)
    ]
    backend = Faiss(StaticEmbedder(REPOSITORY / "models" / "static-embeddings"))
    index = backend.build([[(each.hash, indexed_text(each.problem, each.text)) for each in records]])
    found = index.search([each.problem for each in records], 1)
    right = sum(matches[0].document == each.hash for matches, each in zip(found, records, strict=True))
    assert right > 0.9 * len(records)
