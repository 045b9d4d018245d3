import json
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import faiss
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid, Unavailable
from mathrag.installation import install_command
from services.retriever import builds, index
from services.retriever import index as index_module
from services.retriever.backends import make_backends
from services.retriever.builds import make_indexed_text
from services.retriever.index import (
    LEAST_PER_LIST,
    MARGIN,
    PAIRS,
    Backend,
    Bm25,
    DenseIndex,
    Faiss,
    FaissIndex,
    Flat,
    Hnsw,
    IndexMatch,
    Ivf,
    SearchIndex,
    TermCutter,
    VectorLayout,
)
from shared import canonical
from shared.settings import Retrieval, Sparse
from tests.unit.datasets import DATA, needs
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, TEXTS, HashedWords

# Chinese is cut into words where jieba is installed, and into characters and pairs where it is not.


JIEBA = TermCutter("jieba")
HAN = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5), max_size=20)


def test_words_are_those_of_the_search_mode() -> None:
    assert JIEBA.of("三角形的面积") == ["三角", "角形", "三角形", "的", "面积"]
    assert PAIRS.of("面积") == ["面", "积", "面积"]


def test_formulas_and_numbers_stay_whole_inside_chinese() -> None:
    text = r"已知$x^{2}+\frac{1}{2}=40{,}000$，求x的值"
    formula = ["x^2", "x", "2", r"\frac", "1", "2", "40000"]
    assert JIEBA.of(text) == ["已知", *formula, "求", "x", "的", "值"]
    assert [token for token in PAIRS.of(text) if token.isascii()] == [*formula, "x"]


def test_what_the_dictionary_does_not_know_is_cut_into_pairs() -> None:
    assert JIEBA.of("カナ") == PAIRS.of("カナ")
    assert JIEBA.of("한글") == PAIRS.of("한글")
    assert JIEBA.of("面积カナ") == ["面积", "カ", "ナ", "カナ"]
    assert JIEBA.of("㐀㐁") == ["㐀", "㐁", "㐀㐁"]


@given(HAN)
def test_no_character_is_lost_and_no_token_holds_a_blank(run: str) -> None:
    found = JIEBA.of(run)
    assert set("".join(found)) == set(index_module.tokenise(run)) & set(run)
    assert all(token and token == "".join(token.split()) for token in found)


def test_the_setting_chooses_and_the_recipe_tells() -> None:
    assert TermCutter("bigrams").recipe() == {"tokens": index_module.VERSION}
    assert TermCutter("jieba").recipe() == {"tokens": index_module.VERSION, "chinese": f"jieba {version('jieba')}"}
    assert TermCutter("auto").recipe() == TermCutter("jieba").recipe()
    _, sparse = make_backends(Retrieval(sparse=Sparse(chinese="bigrams", k1=0.5, b=0.1)), HashedWords())
    assert sparse.recipe() | {"backend": ""} == Bm25(PAIRS, k1=0.5, b=0.1).recipe() | {"backend": ""}


@pytest.fixture
def _without_jieba(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr(index_module, "find_spec", lambda name: None if name == "jieba" else found(name))
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.setattr(index_module, "import_jieba", index_module.import_jieba.__wrapped__)


@pytest.mark.usefixtures("_without_jieba")
def test_without_jieba_it_is_pairs_or_a_clear_refusal() -> None:
    assert TermCutter("auto").recipe() == PAIRS.recipe()
    assert TermCutter("auto").of("面积") == PAIRS.of("面积")
    with pytest.raises(Unavailable, match="`jieba` of `mathrag-gate") as caught:
        TermCutter("jieba")
    assert caught.value.hint == install_command("mathrag-gate[zh]")


FRESH = """
import sys, tempfile, warnings
from pathlib import Path
warnings.simplefilter("error")
tempfile.tempdir = sys.argv[1]
(Path(sys.argv[1]) / "jieba.cache").write_bytes(b"poisoned")
from services.retriever.index import TermCutter
assert "jieba" not in sys.modules
words = TermCutter("jieba")
print(words.of("三角形面积"), sorted(file.name for file in Path(sys.argv[1]).iterdir()))
"""


def test_it_is_silent_and_neither_reads_nor_writes_a_cache(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FRESH, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "['三角', '角形', '三角形', '面积'] ['jieba.cache']\n"
    assert (tmp_path / "jieba.cache").read_bytes() == b"poisoned"


def test_its_log_has_no_handlers_of_its_own() -> None:
    JIEBA.of("面积")
    assert logging.getLogger("jieba").handlers == []
    assert logging.getLogger("jieba").getEffectiveLevel() == logging.WARNING


def test_several_threads_load_it_once() -> None:
    index_module.load_tokenizer.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(JIEBA.of, ["三角形的面积"] * 16))
    assert all(each == found[0] for each in found)
    assert index_module.load_tokenizer.cache_info().misses == 1


@needs("zh/cmath-test.jsonl")
@pytest.mark.parametrize("words", [PAIRS, JIEBA], ids=["pairs", "words"])
def test_half_of_a_problem_finds_it_among_a_thousand(words: TermCutter) -> None:
    lines = (DATA / "zh" / "cmath-test.jsonl").read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(json.loads(line)["question"] for line in lines))
    index = Bm25(words).build([[(f"{at:064x}", text) for at, text in enumerate(texts)]])
    found = index.search([text[: len(text) // 2] for text in texts], 1)
    first = sum(bool(matches) and int(matches[0].document, 16) == at for at, matches in enumerate(found))
    assert first > 0.97 * len(texts)


# Nearest vectors, exactly.


def test_scores_are_the_inner_products() -> None:
    embedder = HashedWords()
    expected = (
        embedder.embed_queries(QUESTIONS).astype(np.float64) @ embedder.embed_documents(TEXTS).astype(np.float64).T
    )
    position = {document: at for at, (document, _) in enumerate(DOCUMENTS)}
    for row, matches in zip(expected, Faiss(embedder).build([DOCUMENTS]).search(QUESTIONS, 6), strict=True):
        assert len(matches) == 6
        for match in matches:
            assert match.score == pytest.approx(row[position[match.document]], abs=1e-12)


def test_the_same_text_has_cosine_one() -> None:
    [[match]] = Faiss(HashedWords()).build([DOCUMENTS]).search([TEXTS[0]], 1)
    assert match.document == DOCUMENTS[0][0]
    assert match.score == pytest.approx(1, abs=1e-6)


def test_equal_vectors_beyond_the_margin_come_by_hash() -> None:
    twins = [(f"{at:064x}", "one and the same") for at in range(MARGIN + 1)][::-1]
    [matches] = Faiss(HashedWords()).build([twins]).search(["the same"], 1)
    assert int(matches[0].document, 16) == 0


def test_knows_its_dimension_and_embedder() -> None:
    backend = Faiss(HashedWords())
    index: DenseIndex = backend.build([DOCUMENTS])
    assert index.dimension == backend.recipe()["dimension"] == 64
    assert backend.recipe()["embedder"] == "hashed-words"


def test_large_and_small_batches_agree_to_the_last_bit_in_dense_index() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{at}" for at in range(50)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(300)]
    index = Faiss(HashedWords()).build([[(f"{at:064x}", text) for at, text in enumerate(texts)]])
    assert index.search(texts[:64], 10) == [index.search([text], 10)[0] for text in texts[:64]]


# Indexes on disk: signatures, all-or-nothing writes, and refusals.

BACKENDS: list[Backend[SearchIndex]] = [Bm25(), Faiss(HashedWords())]
CORPUS = "ab" * 32


class OtherWords(HashedWords):
    signature = "other-words"


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.kind)
def backend(request: pytest.FixtureRequest) -> Backend[SearchIndex]:
    chosen: Backend[SearchIndex] = request.param
    return chosen


def write(root: Path, backend: Backend[SearchIndex], corpus: str = CORPUS) -> tuple[Path, dict[str, Any], bytes]:
    recipe = builds.make_recipe(backend, corpus)
    folder, file_hash = index.write_index(root, recipe, backend.build([DOCUMENTS]))
    return folder, recipe, file_hash


def test_the_folder_is_named_by_the_signature(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    assert folder == tmp_path / canonical.digest(recipe).hex()
    index.verify(folder, recipe, file_hash)
    manifest = json.loads((folder / index.MANIFEST).read_bytes())
    assert manifest["recipe"] == recipe
    assert manifest["documents"] == len(DOCUMENTS)
    assert set(manifest["files"]) == {file.name for file in folder.iterdir()} - {index.MANIFEST}


def test_what_was_written_is_searched(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, _, _ = write(tmp_path, backend)
    assert backend.load(folder).search(QUESTIONS, 4) == backend.build([DOCUMENTS]).search(QUESTIONS, 4)


def test_writing_is_repeatable(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    first = write(tmp_path, backend)
    assert write(tmp_path, backend) == first
    assert list(tmp_path.iterdir()) == [first[0]]


def test_recipe_names_everything_that_matters() -> None:
    sparse, dense = (builds.make_recipe(backend, CORPUS) for backend in BACKENDS)
    assert sparse | {"backend": ""} == {
        "kind": "sparse",
        "version": builds.VERSION,
        "text": "problem \\n text",
        "corpus": CORPUS,
        "backend": "",
        "method": "lucene",
        "k1": 1.2,
        "b": 0.75,
        "tokens": 1,
    }
    assert sparse["backend"].startswith("bm25s 0.")
    assert (dense["embedder"], dense["dimension"]) == ("hashed-words", 64)


def test_another_embedder_or_corpus_is_another_signature() -> None:
    recipes = [
        builds.make_recipe(Faiss(HashedWords()), CORPUS),
        builds.make_recipe(Faiss(OtherWords()), CORPUS),
        builds.make_recipe(Faiss(HashedWords()), "cd" * 32),
        builds.make_recipe(Bm25(), CORPUS),
    ]
    assert len({canonical.digest(recipe) for recipe in recipes}) == len(recipes)


def test_an_index_of_another_embedder_is_refused(tmp_path: Path) -> None:
    folder, _, file_hash = write(tmp_path, BACKENDS[1])
    with pytest.raises(Unavailable, match=r"built with another embedder \(hashed-words, now other-words\)") as caught:
        index.verify(folder, builds.make_recipe(Faiss(OtherWords()), CORPUS), file_hash)
    assert caught.value.hint == "Build the corpus's indexes again: `mathrag corpus index NAME`"


def test_what_differs_is_named_with_both_values(tmp_path: Path) -> None:
    folder, recipe, file_hash = write(tmp_path, Bm25())
    other = {key: value for key, value in recipe.items() if key != "tokens"} | {"k1": 0.9, "corpus": "cd" * 32}
    said = r"another corpus \(abababababab…, now cdcdcdcdcdcd…\), k1 \(1.2, now 0.9\), tokens \(1, now none\)"
    with pytest.raises(Unavailable, match=said):
        index.verify(folder, other, file_hash)


def test_every_changed_file_is_refused(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    for file in folder.iterdir():
        sound = file.read_bytes()
        file.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
        with pytest.raises(Unavailable, match=file.name):
            index.verify(folder, recipe, file_hash)
        file.unlink()
        with pytest.raises(Unavailable, match=rf"{file.name} cannot be read"):
            index.verify(folder, recipe, file_hash)
        file.write_bytes(sound)
    index.verify(folder, recipe, file_hash)


def test_a_manifest_that_was_not_registered_is_refused(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, _ = write(tmp_path, backend)
    with pytest.raises(Unavailable, match="not the index that was registered"):
        index.verify(folder, recipe, b"\0" * 32)


class Interrupted:
    documents: Sequence[str] = ()

    def search(self, questions: Sequence[str], k: int) -> list[list[Any]]:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("no space left")


def test_a_failed_write_leaves_nothing_and_spares_the_old(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    with pytest.raises(Unavailable, match="no space left"):
        index.write_index(tmp_path, recipe, Interrupted())
    assert list(tmp_path.iterdir()) == [folder]
    index.verify(folder, recipe, file_hash)


def test_hashes_survive_as_bytes(tmp_path: Path) -> None:
    documents = [document for document, _ in DOCUMENTS]
    index.write_hashes(tmp_path, documents)
    assert (tmp_path / index.HASHES_FILE).stat().st_size == 32 * len(documents)
    assert index.read_hashes(tmp_path) == documents


def test_order_is_ascending_and_nothing_is_refused() -> None:
    assert index.sort_positions(["b", "a", "c"]) == [1, 0, 2]
    with pytest.raises(Invalid, match="no documents"):
        index.sort_positions([])


def test_indexed_text() -> None:
    assert make_indexed_text("p", "t") == "p\nt"
    assert make_indexed_text("", "t") == "t"


# Graphs and lists: what they find, that they find it again, and corpora of every size.

RNG = np.random.default_rng(0)
WORDS = [f"w{at}" for at in range(200)]
MANY_TEXTS = [" ".join(RNG.choice(WORDS, 8)) for _ in range(1200)]
MANY_DOCUMENTS = [(f"{at:064x}", text) for at, text in enumerate(MANY_TEXTS)]
MANY_QUESTIONS = [" ".join(RNG.choice(WORDS, 4)) for _ in range(64)]
K = 10
T = TypeVar("T")

HNSW = Hnsw(neighbours=16, build=100, search=100)
IVF = Ivf(lists=0, probes=12)


def built(layout: VectorLayout, documents: list[tuple[str, str]] = MANY_DOCUMENTS) -> FaissIndex:
    return Faiss(HashedWords(), layout).build([documents])


@pytest.fixture(scope="module")
def exact() -> list[list[IndexMatch]]:
    return built(Flat()).search(MANY_QUESTIONS, K)


@pytest.mark.parametrize(("layout", "least"), [(HNSW, 0.95), (IVF, 0.5)], ids=["hnsw", "ivf"])
def test_most_of_the_nearest_are_found_with_their_exact_scores(
    layout: VectorLayout, least: float, exact: list[list[IndexMatch]]
) -> None:
    scores = [dict(matches) for matches in exact]
    found = [[match for match in matches if match.document in scores[at]] for at, matches in enumerate(all_of(layout))]
    assert sum(map(len, found)) >= least * K * len(MANY_QUESTIONS)
    assert all(match.score == scores[at][match.document] for at, matches in enumerate(found) for match in matches)


def all_of(layout: VectorLayout) -> list[list[IndexMatch]]:
    return built(layout).search(MANY_QUESTIONS, K)


def test_more_probes_find_more(exact: list[list[IndexMatch]]) -> None:
    assert built(Ivf(lists=20, probes=20)).search(MANY_QUESTIONS, K) == exact
    few, more = (overlap(built(Ivf(lists=20, probes=probes)).search(MANY_QUESTIONS, K), exact) for probes in (1, 8))
    assert few < more < 1


def overlap(found: list[list[IndexMatch]], exact: list[list[IndexMatch]]) -> float:
    shared = [len({*map(first, a)} & {*map(first, b)}) for a, b in zip(found, exact, strict=True)]
    return sum(shared) / (K * len(exact))


def first(match: IndexMatch) -> str:
    return match.document


class MadeUpVectors:
    """An embedder of vectors that take 32 MB, more than all else."""

    signature = "made up"
    dimension = 400

    def embed_documents(self, texts: Sequence[str]) -> index_module.Vectors:
        return np.random.default_rng(len(texts)).standard_normal((len(texts), self.dimension), dtype=np.float32)

    embed_queries = embed_documents


def test_vectors_are_built_in_twice_their_memory_and_written_and_loaded_without_a_copy(tmp_path: Path) -> None:
    batches = [[(f"{number:032x}{at:032x}", "") for at in range(1000)] for number in range(20)]
    backend = Faiss(MadeUpVectors())
    vectors = 20_000 * MadeUpVectors.dimension * 4
    index, built_in = measure_peak(lambda: backend.build(batches))
    _, saved_in = measure_peak(lambda: index.save(tmp_path))
    _, loaded_in = measure_peak(lambda: backend.load(tmp_path))
    # This leaves out the memory of FAISS itself, which has the index.
    assert (built_in < 2.3 * vectors, saved_in < 0.5 * vectors, loaded_in < 0.7 * vectors) == (True, True, True)


def test_a_build_that_memory_cannot_hold_is_refused_before_the_system_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=3 << 20))
    batches = [[(f"{number:032x}{at:032x}", "") for at in range(1000)] for number in range(9)]
    with pytest.raises(Unavailable, match=r"first 2000 documents does not .* needs 3 MiB more, and 3 MiB are free"):
        Faiss(MadeUpVectors()).build(batches)


def test_the_limit_of_a_container_counts_and_its_cached_files_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "CGROUP", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=900))
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\nfile 300\nactive_file 20\ninactive_file 180\nshmem 100\n")
    found = []
    for limit in ("1000", "5000", "max"):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        found.append(index_module.find_free_memory())
    (tmp_path / "memory.max").unlink()
    assert (found, index_module.find_free_memory()) == ([500, 900, 900], 900)


def measure_peak(run: Callable[[], T]) -> tuple[T, int]:
    """Run a function; return its result, and the peak of Python's memory above that before, in bytes."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_the_same_documents_give_the_same_bytes(layout: VectorLayout, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        built(layout).save(tmp_path / name)
    first, second = ([file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in "ab")
    assert first == second


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_large_and_small_batches_agree_to_the_last_bit_in_layouts(layout: VectorLayout) -> None:
    index = built(layout)
    assert index.search(MANY_QUESTIONS, K) == [index.search([question], K)[0] for question in MANY_QUESTIONS]


@pytest.mark.parametrize("layout", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_a_loaded_index_searches_as_it_was_built(layout: VectorLayout, tmp_path: Path) -> None:
    built(layout).save(tmp_path)
    assert Faiss(HashedWords(), layout).load(tmp_path).search(MANY_QUESTIONS, K) == all_of(layout)


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
    [found] = built(layout, MANY_DOCUMENTS[:documents]).search([MANY_TEXTS[0]], 1000)
    assert len(found) == documents
    assert found[0].document == MANY_DOCUMENTS[0][0]
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
    built(HNSW, MANY_DOCUMENTS[:50])
    assert faiss.omp_get_max_threads() == before


def test_vectors_of_documents_are_those_that_were_embedded() -> None:
    vectors = HashedWords().embed_documents(MANY_TEXTS)
    for layout in (Flat(), HNSW, IVF):
        kept: Any = layout.lay(vectors).reconstruct_batch(np.arange(len(MANY_TEXTS)))
        np.testing.assert_array_equal(kept, vectors)
