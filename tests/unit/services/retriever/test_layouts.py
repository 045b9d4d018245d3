"""Graphs and lists: what they find, that they find it again, and corpora of every size."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from services.retriever import builds
from services.retriever import index as index_module
from services.retriever.index import LEAST_PER_LIST, Faiss, FaissIndex, Flat, Hnsw, IndexMatch, Ivf, VectorLayout
from shared import canonical
from shared.errors import Unavailable
from tests.unit.retrieval import HashedWords

RNG = np.random.default_rng(0)
WORDS = [f"w{at}" for at in range(200)]
TEXTS = [" ".join(RNG.choice(WORDS, 8)) for _ in range(1200)]
DOCUMENTS = [(f"{at:064x}", text) for at, text in enumerate(TEXTS)]
QUESTIONS = [" ".join(RNG.choice(WORDS, 4)) for _ in range(64)]
K = 10

HNSW = Hnsw(neighbours=16, build=100, search=100)
IVF = Ivf(lists=0, probes=12)


def built(layout: VectorLayout, documents: list[tuple[str, str]] = DOCUMENTS) -> FaissIndex:
    return Faiss(HashedWords(), layout).build([documents])


@pytest.fixture(scope="module")
def exact() -> list[list[IndexMatch]]:
    return built(Flat()).search(QUESTIONS, K)


@pytest.mark.parametrize(("layout", "least"), [(HNSW, 0.95), (IVF, 0.5)], ids=["hnsw", "ivf"])
def test_most_of_the_nearest_are_found_with_their_exact_scores(
    layout: VectorLayout, least: float, exact: list[list[IndexMatch]]
) -> None:
    scores = [dict(matches) for matches in exact]
    found = [[match for match in matches if match.document in scores[at]] for at, matches in enumerate(all_of(layout))]
    assert sum(map(len, found)) >= least * K * len(QUESTIONS)
    assert all(match.score == scores[at][match.document] for at, matches in enumerate(found) for match in matches)


def all_of(layout: VectorLayout) -> list[list[IndexMatch]]:
    return built(layout).search(QUESTIONS, K)


def test_more_probes_find_more(exact: list[list[IndexMatch]]) -> None:
    assert built(Ivf(lists=20, probes=20)).search(QUESTIONS, K) == exact
    few, more = (overlap(built(Ivf(lists=20, probes=probes)).search(QUESTIONS, K), exact) for probes in (1, 8))
    assert few < more < 1


def overlap(found: list[list[IndexMatch]], exact: list[list[IndexMatch]]) -> float:
    shared = [len({*map(first, a)} & {*map(first, b)}) for a, b in zip(found, exact, strict=True)]
    return sum(shared) / (K * len(exact))


def first(match: IndexMatch) -> str:
    return match.document


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_the_same_documents_give_the_same_bytes(layout: VectorLayout, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        built(layout).save(tmp_path / name)
    first, second = ([file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in "ab")
    assert first == second


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_large_and_small_batches_agree_to_the_last_bit(layout: VectorLayout) -> None:
    index = built(layout)
    assert index.search(QUESTIONS, K) == [index.search([question], K)[0] for question in QUESTIONS]


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_a_loaded_index_searches_as_it_was_built(layout: VectorLayout, tmp_path: Path) -> None:
    built(layout).save(tmp_path)
    assert Faiss(HashedWords(), layout).load(tmp_path).search(QUESTIONS, K) == all_of(layout)


@pytest.mark.parametrize(
    ("asked", "documents", "expected"),
    [(0, 1, 1), (0, LEAST_PER_LIST, 1), (0, 1200, 30), (0, 1_000_000, 4000), (500, 100, 2), (500, 1_000_000, 500)],
)
def test_lists_are_never_more_than_documents_can_fill(asked: int, documents: int, expected: int) -> None:
    assert Ivf(lists=asked, probes=1).lists(documents) == expected


@pytest.mark.parametrize("documents", [1, 2, LEAST_PER_LIST, 2 * LEAST_PER_LIST + 1])
@pytest.mark.parametrize("layout", [HNSW, Ivf(lists=64, probes=64)], ids=["hnsw", "ivf"])
def test_a_tiny_corpus_is_searched_whole(
    layout: VectorLayout, documents: int, capfd: pytest.CaptureFixture[str]
) -> None:
    [found] = built(layout, DOCUMENTS[:documents]).search([TEXTS[0]], 1000)
    assert len(found) == documents
    assert found[0].document == DOCUMENTS[0][0]
    assert capfd.readouterr().err == ""


def test_every_parameter_is_another_signature() -> None:
    layouts: list[VectorLayout] = [
        Flat(), Hnsw(16, 100, 100), Hnsw(17, 100, 100), Hnsw(16, 101, 100), Hnsw(16, 100, 101),
        Ivf(0, 12), Ivf(1, 12), Ivf(0, 13),
    ]  # fmt: skip
    recipes = [builds.make_recipe(Faiss(HashedWords(), layout), "ab" * 32) for layout in layouts]
    assert len({canonical.digest(recipe) for recipe in recipes}) == len(layouts)


def test_an_index_of_another_layout_is_refused(tmp_path: Path) -> None:
    backend = Faiss(HashedWords(), IVF)
    folder, file_hash = index_module.write_index(tmp_path, builds.make_recipe(backend, "ab" * 32), built(IVF))
    with pytest.raises(Unavailable, match="built with another backend"):
        index_module.verify(folder, builds.make_recipe(Faiss(HashedWords()), "ab" * 32), file_hash)


def test_threads_are_given_back() -> None:
    before = faiss.omp_get_max_threads()
    built(HNSW, DOCUMENTS[:50])
    assert faiss.omp_get_max_threads() == before


def test_vectors_of_documents_are_those_that_were_embedded() -> None:
    vectors = HashedWords().embed_documents(TEXTS)
    for layout in (Flat(), HNSW, IVF):
        kept: Any = layout.lay(vectors).reconstruct_batch(np.arange(len(TEXTS)))
        np.testing.assert_array_equal(kept, vectors)
