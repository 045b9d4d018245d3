"""Flat indexes on the GPU: when it is used, how much of it, and what happens where it fails.

FAISS's functions for GPUs are stood in for: no GPU is here, and the package that is installed has none of them. What
this proves is the bookkeeping, and nothing about a real GPU.
"""

import gc
import logging
from threading import Lock
from typing import Any

import faiss
import numpy as np
import pytest

from services.retriever import index as index_module
from services.retriever.backends import make_backends
from services.retriever.index import Faiss, FaissIndex, Flat
from shared.lease.memory import CUDA_CONTEXT_MIB
from shared.runtime.placement import settings_for_device
from shared.settings import Dense, Device, Retrieval, Settings
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, HashedWords

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
