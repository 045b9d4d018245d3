"""What stand-ins cannot prove: vectors, memory and a job on a real GPU. Skipped where NVML finds none.

    LLAMA_SERVER=/path/to/llama-server .venv/bin/python -m pytest tests/real/test_gpu.py -m real

FAISS's tests need `faiss-gpu` in place of `faiss-cpu`; those of memory and the job need `nvidia-ml-py`.
"""

import asyncio
import gc
from collections.abc import Iterator

import faiss
import numpy as np
import pytest

from services.guard.memory import NvmlMemory
from services.retriever.index import FaissIndex, Flat, GpuFlat, Vectors, make_flat
from tests.faults.gates import Session
from tests.real.environments import Lacking, had
from tests.real.llama_server import LlamaServer, served_by
from tests.real.stacks import SIXTY, furnished
from tests.running import Document, RunningStack
from tests.unit.retrieval import HashedWords
from tools.bench.retrieval import make_vectors
from tools.bench.staging import find_gpu, hold_all_but

VECTORS = 200_000
HELD_MIB, BUDGET_MIB = 1024, 4096
LOADED = "SELECT CAST(measured ->> 'loaded_mib' AS float) FROM residencies WHERE opened_at IS NOT NULL"
TOLERANCE_MIB = 64
"""The driver hands out memory in blocks."""


def _first_gpu() -> str:
    try:
        return find_gpu()
    except Exception as error:  # the package, its library, the driver or the device is missing
        raise Lacking(str(error)) from error


@pytest.fixture(scope="module")
def gpu() -> str:
    return had("GPU", _first_gpu, str)


@pytest.fixture(scope="module")
def layout(gpu: str) -> GpuFlat:
    found = make_flat("auto", 2048)
    if not isinstance(found, GpuFlat):
        pytest.skip(f"GPU: FAISS {faiss.__version__} sees none; faiss-gpu is needed")
    return found


def make_index(vectors: Vectors, layout: Flat) -> FaissIndex:
    return FaissIndex(layout.lay(vectors), [f"{at}" for at in range(len(vectors))], HashedWords(), layout)


def read_used_mib(gpu: str) -> float:
    return asyncio.run(NvmlMemory(gpu).read()).used


@pytest.mark.parametrize("k", [10, 100])
def test_the_gpu_finds_what_the_cpu_finds(layout: GpuFlat, k: int) -> None:
    vectors = make_vectors(VECTORS, 0)
    vectors[1::4] = vectors[::4]  # every other document has a twin, whose score is the same
    questions = np.concatenate([make_vectors(64, 1), vectors[:64]])
    on_gpu = make_index(vectors, layout).search_vectors(questions, k)
    assert on_gpu == make_index(vectors, Flat()).search_vectors(questions, k)


def test_more_results_than_the_gpu_can_select_come_from_the_cpu(
    layout: GpuFlat, caplog: pytest.LogCaptureFixture
) -> None:
    vectors, questions = make_vectors(5000, 2), make_vectors(2, 3)
    found = make_index(vectors, layout).search_vectors(questions, 3000)
    assert found == make_index(vectors, Flat()).search_vectors(questions, 3000)
    assert "done on the CPU" in caplog.text


def test_vectors_take_as_much_memory_as_is_counted_and_free_it(gpu: str, layout: GpuFlat) -> None:
    make_index(make_vectors(10, 4), layout).search_vectors(make_vectors(1, 5), 5)
    gc.collect()
    before, counted = read_used_mib(gpu), layout.used_mib
    index = make_index(make_vectors(VECTORS, 6), layout)
    index.search_vectors(make_vectors(64, 7), 10)
    taken = read_used_mib(gpu) - before
    assert abs(taken - (layout.used_mib - counted)) <= TOLERANCE_MIB
    del index
    gc.collect()
    assert read_used_mib(gpu) - before <= TOLERANCE_MIB


@pytest.mark.anyio
async def test_memory_is_measured_and_its_holder_is_named(gpu: str) -> None:
    meter = NvmlMemory(gpu)
    before = await meter.read()
    with hold_all_but(round(before.free) - HELD_MIB) as holder:
        held = await meter.read()
        named = {process.pid: process for process in held.processes}
        assert held.used - before.used >= HELD_MIB
        assert held.driver
        assert named[holder].mib == 0 or named[holder].mib >= HELD_MIB - TOLERANCE_MIB
        assert "python" in named[holder].name
    assert (await meter.read()).used - before.used <= TOLERANCE_MIB


@pytest.fixture(scope="module")
def stack(gpu: str, llama: LlamaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    models = served_by(llama)
    for model in models.values():
        assert isinstance(model, dict)
        model["command"] += ["--n-gpu-layers", "99"]
        model["footprint_mib"] = 2048
    device = {"id": gpu, "budget_mib": BUDGET_MIB, "free_timeout_s": 1}
    with furnished(tmp_path_factory.mktemp("gpu"), {"models": models, "device": device}) as found:
        yield found


def read_device(stack: RunningStack) -> Document:
    (device,) = stack.get("/v1/gpus")
    found: Document = device["flips"][0] if device["flips"] else {"state": None}
    return found


def test_a_job_waits_while_another_program_holds_the_gpu(stack: RunningStack) -> None:
    with hold_all_but(1024):
        job = stack.submit("crowded", **SIXTY)
        stack.wait(job, lambda _: read_device(stack)["state"] == "quarantined")
        reason = read_device(stack)["reason"]
        assert "are missing" in reason
        assert "python" in reason
    stack.assert_whole(job)


def test_the_memory_of_each_load_is_recorded(stack: RunningStack) -> None:
    job = stack.submit("measured", reuse="none", **SIXTY)
    stack.assert_whole(job)
    with Session(stack) as session:
        loads = [loaded for (loaded,) in session.rows(LOADED)]
    assert len(loads) >= 2
    assert all(0 < loaded <= BUDGET_MIB for loaded in loads), loads
