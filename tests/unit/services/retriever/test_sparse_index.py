import gc
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import bm25s
import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.retriever import index as index_module
from services.retriever.backends import make_backends
from services.retriever.index import Bm25, Faiss, FaissIndex, Flat, find_best, tokenise
from shared.lease.memory import CUDA_CONTEXT_MIB
from shared.runtime.placement import settings_for_device
from shared.settings import Dense, Device, Retrieval, Settings
from tests.unit.cases import named
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, TEXTS, HashedWords

# BM25: the formula by a second hand.


WORDS = st.sampled_from(["circle", "area", "x^2", r"\frac", "12", "三角", "prime", "the"])
PLAIN = Bm25()
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)


def lucene(texts: Sequence[str], question: str, k1: float = 1.2, b: float = 0.75) -> NDArray[np.float64]:
    bags = [Counter(tokenise(text)) for text in texts]
    lengths = [bag.total() for bag in bags]
    average = sum(lengths) / len(texts)
    scores = np.zeros(len(texts))
    for term in tokenise(question):
        n = sum(term in bag for bag in bags)
        idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
        for at, bag in enumerate(bags):
            if bag[term]:
                scores[at] += idf * bag[term] / (bag[term] + k1 * (1 - b + b * lengths[at] / average))
    return scores


def scores_by_text(texts: Sequence[str], question: str, backend: Bm25 = PLAIN) -> NDArray[np.float64]:
    documents = [(f"{at:064x}", text) for at, text in enumerate(texts)]
    scores = np.zeros(len(texts))
    for match in backend.build([documents]).search([question], len(texts))[0]:
        scores[int(match.document, 16)] = match.score
    return scores


@pytest.mark.parametrize("question", [*QUESTIONS, "the the the of a a", "unheard-of", ""])
def test_scores_are_those_of_the_formula(question: str) -> None:
    np.testing.assert_allclose(scores_by_text(TEXTS, question), lucene(TEXTS, question), atol=5e-6)


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.75), (0.9, 0.4), (2.0, 0.0), (1.2, 1.0)])
def test_parameters_are_those_of_the_formula(k1: float, b: float) -> None:
    backend = Bm25(k1=k1, b=b)
    for question in QUESTIONS:
        expected = lucene(TEXTS, question, k1, b)
        np.testing.assert_allclose(scores_by_text(TEXTS, question, backend), expected, atol=5e-6)
    assert (backend.recipe()["k1"], backend.recipe()["b"]) == (k1, b)


@given(st.lists(SENTENCES, min_size=1, max_size=8), SENTENCES)
def test_scores_are_those_of_the_formula_for_any_texts(texts: list[str], question: str) -> None:
    if any(tokenise(text) for text in texts):
        np.testing.assert_allclose(scores_by_text(texts, question), lucene(texts, question), atol=5e-6)


def test_scores_are_those_of_the_library_to_the_last_bit() -> None:
    dice = np.random.default_rng(0)
    words = [f"word{chr(97 + n)}" for n in range(26)]
    common = 1 / np.arange(1, 27)
    texts = [" ".join(dice.choice(words, 12, p=common / common.sum())) for _ in range(500)]
    library = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    library.index([text.split() for text in texts], show_progress=False)
    documents = [f"{number:064x}" for number in range(len(texts))]
    index = PLAIN.build([list(zip(documents, texts, strict=True))])
    for question in [*texts[:50], "wordz wordy wordz"]:
        (found,) = index.search([question], len(texts))
        scores = library.get_scores(question.split())
        best = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        assert found == [(documents[at], float(scores[at])) for at in best]


def test_a_build_leaves_no_lines_of_the_library_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        scores_by_text(TEXTS, QUESTIONS[0])
    assert "bm25s" not in {record.name for record in caplog.records}


def test_a_document_without_a_shared_term_is_never_found() -> None:
    [matches] = Bm25().build([DOCUMENTS]).search(["circumference"], 6)
    assert [match.document for match in matches] == [DOCUMENTS[1][0]]


@pytest.mark.parametrize("question", ["zymurgy", "", "+ = $", "　"])
def test_a_question_without_a_known_term_finds_nothing(question: str) -> None:
    assert Bm25().build([DOCUMENTS]).search([question], 3) == [[]]


def test_a_term_in_every_document_still_counts() -> None:
    assert (scores_by_text(["the a", "the b"], "the") > 0).all()


def test_a_corpus_without_words_is_an_index_that_finds_nothing() -> None:
    index = Bm25().build([[("0" * 64, "+"), ("1" * 64, "=")]])
    assert index.search(["x"], 2) == [[]]


def test_finds_by_command_power_and_chinese_pair() -> None:
    documents = [(f"{at:064x}", text) for at, text in enumerate([r"\frac{a}{b}", "x^2", "x^3", "三角形", "角三"])]
    index = Bm25().build([documents])
    for question, expected in ((r"\frac", 0), ("x^3", 2), ("三角", 3)):
        assert int(index.search([question], 1)[0][0].document, 16) == expected


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([0.0, 2, 1], 2, [1, 2]),
        ([1.0, 1, 1], 2, [0, 1]),
        ([1.0, 2, 1, 2], 3, [1, 3, 0]),
        ([0.0, 0], 1, []),
        ([], 3, []),
    ],
)
def test_best(scores: Iterable[float], k: int, expected: list[int]) -> None:
    assert find_best(np.array(list(scores), dtype=np.float32), k).tolist() == expected


@given(st.lists(st.integers(-2, 9), max_size=200), st.integers(1, 12))
def test_the_best_are_those_of_a_full_sort(numbers: list[int], k: int) -> None:
    positive = [at for at, number in enumerate(numbers) if number > 0]
    expected = sorted(positive, key=lambda at: (-numbers[at], at))[:k]
    assert find_best(np.array(numbers, dtype=np.float32), k).tolist() == expected


def test_jax_is_not_started_by_an_import_and_stays_usable(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('JAX was started')")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(*_): ...")
    program = "from services.retriever import index; index.import_bm25s(); print('imported'); import jax"
    command = [sys.executable, "-c", program]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["imported", "JAX was started"]


# The words that BM25 counts.


def test_tokens() -> None:
    cases = [
        ("Find the Value", ["find", "the", "value"]),
        (r"$\frac{1}{2}$", [r"\frac", "1", "2"]),
        (r"\boxed{12}", [r"\boxed", "12"]),
        ("x^2", ["x^2", "x", "2"]),
        ("x^{10}", ["x^10", "x", "10"]),
        ("a_n", ["a_n", "a", "n"]),
        ("a_{12}", ["a_12", "a", "12"]),
        ("sin^2x", ["sin", "2", "x"]),
        ("3x+4y", ["3", "x", "4", "y"]),
        ("3.14", ["3.14"]),
        ("the end.", ["the", "end"]),
        ("it's", ["it's"]),
        ("Café naïve", ["café", "naïve"]),
        ("8 nubp 7", ["8", "nubp", "7"]),
        ("", []),
        ("+ - = $ {}", []),
    ]
    assert {text: found for text, expected in cases if (found := named(tokenise, text)) != expected} == {}


@pytest.mark.parametrize("number", ["40000", "40,000", "40{,}000", r"40,\!000"])
def test_thousands_are_one_number(number: str) -> None:
    assert tokenise(f"${number}$") == ["40000"]


def test_a_list_of_numbers_is_not_one_number() -> None:
    assert tokenise("1, 2, 30") == ["1", "2", "30"]
    assert tokenise("(1,2345)") == ["1,2345"]


def test_chinese_is_characters_and_pairs() -> None:
    assert tokenise("三角形 x") == ["三", "角", "形", "三角", "角形", "x"]
    assert tokenise("面") == ["面"]
    assert tokenise("第2题") == ["第", "2", "题"]


def test_japanese_and_korean_are_treated_alike() -> None:
    assert tokenise("カナ") == ["カ", "ナ", "カナ"]
    assert tokenise("한글") == ["한", "글", "한글"]


def test_compatibility_forms_are_one_token() -> None:
    assert tokenise("ＡＢＣ １２") == ["abc", "12"]
    assert tokenise("café") == tokenise("café")


@given(st.text())
def test_any_text_has_lower_case_tokens_without_blanks(text: str) -> None:
    for token in tokenise(text):
        assert token == token.strip()
        assert token
        assert set(tokenise(token)) >= set(tokenise(token)[:1])


@given(st.lists(st.sampled_from(["find", "x^2", r"\frac", "12", "三角"]), max_size=8))
def test_blanks_separate(words: list[str]) -> None:
    assert tokenise(" ".join(words)) == [token for word in words for token in tokenise(word)]


# Flat indexes on the GPU: when it is used, how much of it, and what happens where it fails.
#
# FAISS's functions for GPUs are stood in for: no GPU is here, and the package that is installed has none of them. What
# this proves is the bookkeeping, and nothing about a real GPU.

VECTORS = len(DOCUMENTS) * HashedWords.dimension * 4
FIXED = CUDA_CONTEXT_MIB + index_module.SCRATCH_MIB


class Resources:
    scratch = 0

    def setTempMemory(self, size: int) -> None:  # noqa: N802 - FAISS's name
        type(self).scratch = size


class Copied:
    def __init__(self, index: Any, broken: list[str]) -> None:
        self._index, self._broken, self._busy = index, broken, Lock()
        self.searches = 0

    def search(self, vectors: Any, k: int) -> Any:
        assert self._busy.acquire(blocking=False)
        try:
            if "search" in self._broken:
                raise RuntimeError("CUDA error 2 out of memory")
            self.searches += 1
            scores, near = self._index.search(vectors, k)
            return np.nextafter(scores, np.float32(2)), near
        finally:
            self._busy.release()


class Gpu:
    def __init__(self) -> None:
        self.copies: list[Copied] = []
        self.broken: list[str] = []

    def copied(self, resources: Resources, device: int, index: Any) -> Copied:
        assert (type(resources), device) == (Resources, 0)
        if "copy" in self.broken:
            raise RuntimeError("CUDA error 2 out of memory")
        self.copies.append(Copied(index, self.broken))
        return self.copies[-1]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", Resources, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", found.copied, raising=False)
    return found


def built(layout: Flat) -> FaissIndex:
    return Faiss(HashedWords(), layout).build([DOCUMENTS])


def test_it_is_used_where_faiss_counts_one_and_it_is_wanted(card: Gpu) -> None:
    assert isinstance(index_module.make_flat("auto", 512), index_module.GpuFlat)
    assert type(index_module.make_flat("never", 512)) is Flat


def test_functions_without_a_gpu_are_no_gpu(card: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    assert type(index_module.make_flat("auto", 512)) is Flat


def test_the_installed_package_sees_none_here() -> None:
    expected = faiss.get_num_gpus() > 0
    assert isinstance(index_module.make_flat("auto", 512), index_module.GpuFlat) is expected


def test_answers_are_those_of_the_cpu_to_the_last_bit(card: Gpu) -> None:
    on_gpu = Faiss(HashedWords(), index_module.GpuFlat(512))
    assert on_gpu.recipe() == Faiss(HashedWords()).recipe()
    assert on_gpu.build([DOCUMENTS]).search(QUESTIONS, 4) == built(Flat()).search(QUESTIONS, 4)
    assert card.copies[0].searches == 1


def test_scratch_memory_is_bounded(card: Gpu) -> None:
    index_module.GpuFlat(512)
    assert Resources.scratch == index_module.SCRATCH_MIB << 20


def test_what_does_not_fit_stays_on_the_cpu(card: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    layout = index_module.GpuFlat(int(FIXED))
    assert built(layout).search(QUESTIONS, 4) == built(Flat()).search(QUESTIONS, 4)
    assert card.copies == []
    assert "retrieval.dense.gpu_mib" in caplog.text


def test_indexes_share_the_memory_and_give_it_back(card: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MIB", VECTORS)  # an index takes one of them
    layout = index_module.GpuFlat(int(FIXED) + 1)
    first = built(layout)
    assert layout.used_mib == FIXED + 1
    built(layout)
    assert len(card.copies) == 1
    del first
    card.copies.clear()
    gc.collect()
    assert layout.used_mib == FIXED
    kept = built(layout)
    assert len(card.copies) == 1
    del kept


@pytest.mark.parametrize("broken", ["copy", "search"])
def test_what_the_gpu_fails_at_is_done_on_the_cpu(card: Gpu, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    card.broken.append(broken)
    with caplog.at_level(logging.WARNING):
        assert built(index_module.GpuFlat(512)).search(QUESTIONS, 4) == built(Flat()).search(QUESTIONS, 4)
    assert "out of memory" in caplog.text


def test_settings_choose_it(card: Gpu) -> None:
    dense, _ = make_backends(Retrieval(dense=Dense(gpu="auto")), HashedWords())
    dense.build([DOCUMENTS]).search(QUESTIONS, 1)
    assert card.copies[0].searches == 1


def test_only_flat_is_searched_there() -> None:
    with pytest.raises(ValueError, match="`gpu: auto` needs backend `flat`, not `hnsw`"):
        Dense(backend="hnsw", gpu="auto")


def settings(*devices: Device, **dense: Any) -> Settings:
    return Settings(device=devices[0], devices=devices[1:], retrieval=Retrieval(dense=Dense(**dense)))


def test_the_memory_is_taken_from_the_budget_of_the_first_gpu() -> None:
    cpu, card, other = Device(id="cpu:0"), Device(id="gpu:0", budget_mib=4000), Device(id="gpu:1", budget_mib=4000)
    made = settings(cpu, card, other, gpu="auto", gpu_mib=600)
    assert [device.models_mib for device in made.all_devices()] == [160, 3400, 4000]
    once = settings_for_device(made, "gpu:0")
    assert once.device.models_mib == settings_for_device(once, "gpu:0").device.models_mib == 3400
    again = Settings.model_validate(made.model_dump())
    assert [device.models_mib for device in again.all_devices()] == [160, 3400, 4000]


def test_a_device_keeps_its_budget_where_vectors_stay_on_the_cpu() -> None:
    assert settings(Device(id="gpu:0", budget_mib=4000)).device.models_mib == 4000
    assert settings(Device(id="cpu:0"), gpu="auto").device.models_mib == 160


def test_a_budget_that_vectors_eat_up_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no memory for models"):
        settings(Device(id="gpu:0", budget_mib=512), gpu="auto", gpu_mib=512)
