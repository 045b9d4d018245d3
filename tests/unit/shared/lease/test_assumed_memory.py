"""A footprint's four parts, held against published figures of Qwen2.5 and against what cannot be otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease.memory import CUDA_CONTEXT_MIB, Q8_BYTES, AssumedMemory, assume_memory
from shared.shapes import MIB, Architecture

GIB = 1 << 30
QWEN_7B = Architecture(
    weights_bytes=4_683_074_240, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584, vocabulary=152_064,
    trained_context=32_768, name="qwen2",
)  # fmt: skip
QWEN_05B = Architecture(
    weights_bytes=int(0.92 * GIB), layers=24, heads=14, kv_heads=2, head_dim=64, embedding=896, vocabulary=151_936,
    trained_context=32_768, name="qwen2",
)  # fmt: skip

slots = st.integers(1, 64)
contexts = st.integers(1, 131_072)


def test_a_token_of_the_7b_takes_56_kib_of_kv_cache() -> None:
    assert assume_memory(QWEN_7B, context=1024, parallel=1).kv_mib == 56.0


def test_the_compute_buffer_of_the_7b_is_what_llama_cpp_reserves() -> None:
    assert assume_memory(QWEN_7B, context=4096, parallel=4).compute_mib == 304.0


def test_the_7b_with_16k_tokens_takes_5_9_gib() -> None:
    found = assume_memory(QWEN_7B, context=2048, parallel=8)
    parts = (found.weights_mib, found.kv_mib, found.compute_mib, found.context_mib)
    assert [round(part / 1024, 2) for part in parts] == [4.36, 0.88, 0.3, 0.35]
    assert found.total / 1024 == pytest.approx(5.9, abs=0.05)


def test_the_judge_takes_1_75_gib() -> None:
    found = assume_memory(QWEN_05B, context=2048, parallel=8)
    assert found.kv_mib / 1024 == pytest.approx(0.2, abs=0.02)
    assert found.total / 1024 == pytest.approx(1.75, abs=0.05)


def test_a_cpu_has_no_cuda_context() -> None:
    on_gpu, on_cpu = (assume_memory(QWEN_7B, context=1024, parallel=1, on_gpu=on) for on in (True, False))
    assert (on_gpu.context_mib, on_cpu.context_mib) == (CUDA_CONTEXT_MIB, 0.0)
    assert on_gpu.total - on_cpu.total == CUDA_CONTEXT_MIB


def test_a_short_context_has_a_short_batch() -> None:
    whole = assume_memory(QWEN_7B, context=256, parallel=2).compute_mib
    assert assume_memory(QWEN_7B, context=256, parallel=1).compute_mib == whole / 2
    assert assume_memory(QWEN_7B, context=256, parallel=4).compute_mib == whole


def test_a_quantised_cache_takes_about_half() -> None:
    whole, half = (assume_memory(QWEN_7B, context=1024, parallel=8, kv_bytes=each).kv_mib for each in (2.0, Q8_BYTES))
    assert half == whole * 17 / 32


@given(contexts, slots)
def test_the_cache_is_linear_in_slots_and_context(context: int, parallel: int) -> None:
    one = assume_memory(QWEN_7B, context=1, parallel=1).kv_mib
    assert assume_memory(QWEN_7B, context=context, parallel=parallel).kv_mib == pytest.approx(one * context * parallel)


@given(contexts, slots)
def test_a_slot_more_never_takes_less(context: int, parallel: int) -> None:
    fewer, more = (assume_memory(QWEN_05B, context=context, parallel=each).total for each in (parallel, parallel + 1))
    assert fewer <= more


def test_a_total_is_rounded_up() -> None:
    assert AssumedMemory(weights_mib=1.0, kv_mib=0.25, compute_mib=0, context_mib=0).total == 2
    assert AssumedMemory(weights_mib=4_683_074_240 / MIB, kv_mib=0, compute_mib=0, context_mib=0).total == 4467
