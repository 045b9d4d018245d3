import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease.memory import (
    ASSUMED_MARGIN,
    CUDA_CONTEXT_MIB,
    FAR_MIB,
    FAR_RATIO,
    LEARNED_MARGIN,
    Q8_BYTES,
    AssumedMemory,
    Hardware,
    LearnedMemory,
    MemoryEstimate,
    assume_memory,
    estimate_memory,
)
from shared.shapes import MIB, Architecture

# What a load is expected to take: which knowledge wins, which margin it has, and what fewer slots save.


QWEN = Architecture(
    weights_bytes=4_683_074_240, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584, vocabulary=152_064,
    trained_context=32_768, name="qwen2",
)  # fmt: skip
SLOT = 112.0
"""MiB of KV cache of a slot of 2048 tokens."""


def estimated(
    declared: int = 0, architecture: Architecture | None = QWEN, on_gpu: bool = True, **learned: LearnedMemory
) -> MemoryEstimate:
    return estimate_memory(
        declared_mib=declared,
        architecture=architecture,
        context=2048,
        parallel=8,
        on_gpu=on_gpu,
        learned={int(name.removeprefix("slots_")): memory for name, memory in learned.items()},
    )


def loads_of(least: float, most: float) -> LearnedMemory:
    return LearnedMemory(least_mib=least, most_mib=most, loads=2)


def test_before_the_first_load_it_is_the_estimate_and_a_margin() -> None:
    found = estimated()
    whole = assume_memory(QWEN, context=2048, parallel=8).total
    assert found.source == "assumed"
    assert found.at(8) == pytest.approx(whole * (1 + ASSUMED_MARGIN), abs=1)
    assert found.at(8) - found.at(4) == pytest.approx(4 * SLOT * (1 + ASSUMED_MARGIN), abs=1)


def test_a_declared_footprint_wins_over_the_estimate_as_it_is() -> None:
    found = estimated(declared=6000)
    assert (found.source, found.at(8), found.at(4)) == ("declared", 6000, 6000 - 4 * 112)


def test_a_declared_footprint_alone_has_no_slots() -> None:
    found = estimated(declared=6000, architecture=None)
    assert (found.at(8), found.at(1)) == (6000, 6000)


def test_a_declared_footprint_smaller_than_its_cache_is_left_whole() -> None:
    found = estimated(declared=500)
    assert (found.at(8), found.at(1)) == (500, 500)


def test_a_learned_band_wins_over_everything() -> None:
    found = estimated(declared=6000, slots_8=loads_of(5000, 5100))
    assert found.source == "learned"
    assert found.at(8) == 5202 == round(5100 * (1 + LEARNED_MARGIN))
    assert found.at(4) == 5202 - 4 * 112


def test_a_band_of_other_slots_is_better_than_none() -> None:
    found = estimated(slots_4=loads_of(4000, 4000), slots_2=loads_of(3000, 3000))
    assert found.at(4) == 4080
    assert found.at(8) == 4080 + 4 * 112


def test_on_a_cpu_a_band_predicts_nothing() -> None:
    found = estimated(declared=96, on_gpu=False, slots_8=loads_of(40, 44))
    assert (found.source, found.at(8)) == ("declared", 96)


def test_what_nobody_knows_counts_as_nothing() -> None:
    found = estimated(architecture=None)
    assert (found.source, found.at(8)) == (None, 0)


@pytest.mark.parametrize(("mib", "far"), [(5000, False), (6249, False), (6251, True), (3000, True), (3800, False)])
def test_far_is_a_quarter_outside(mib: float, far: bool) -> None:
    assert FAR_RATIO == 0.25
    assert loads_of(4900, 5000).is_far(mib) is far


def test_small_models_are_never_far_by_a_few_mib() -> None:
    assert not loads_of(40, 40).is_far(40 + FAR_MIB)
    assert loads_of(40, 40).is_far(41 + FAR_MIB)


@given(st.lists(st.floats(1, 1e5), min_size=1))
def test_a_band_holds_all_that_widened_it(loads: list[float]) -> None:
    found = LearnedMemory(least_mib=loads[0], most_mib=loads[0])
    for mib in loads[1:]:
        found = found.include(mib)
    assert (found.least_mib, found.most_mib, found.loads) == (min(loads), max(loads), len(loads))
    assert not any(found.is_far(mib) for mib in loads)


@given(st.integers(0, 10_000), st.integers(1, 64), st.booleans())
def test_a_slot_more_never_takes_less_in_memory(declared: int, slots: int, on_gpu: bool) -> None:
    found = estimated(declared, on_gpu=on_gpu)
    assert 0 <= found.at(slots) <= found.at(slots + 1)


# A footprint's four parts, held against published figures of Qwen2.5 and against what cannot be otherwise.

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
def test_a_slot_more_never_takes_less_in_assumed_memory(context: int, parallel: int) -> None:
    fewer, more = (assume_memory(QWEN_05B, context=context, parallel=each).total for each in (parallel, parallel + 1))
    assert fewer <= more


def test_a_total_is_rounded_up() -> None:
    assert AssumedMemory(weights_mib=1.0, kv_mib=0.25, compute_mib=0, context_mib=0).total == 2
    assert AssumedMemory(weights_mib=4_683_074_240 / MIB, kv_mib=0, compute_mib=0, context_mib=0).total == 4467


# Times that nobody has measured: what they are made of, and that they say so.


def test_a_load_reads_the_weights_and_verifies() -> None:
    found = Hardware(disk_mib_s=100).load(4466)
    assert found.value == pytest.approx(45.06)
    assert (found.source, found.detail) == ("assumed", "4466 MiB of weights at 100 MiB/s, and 0.4 s to verify")


def test_a_call_reads_the_weights_for_every_token() -> None:
    found = Hardware(gpu_mib_s=1000).call(500, tokens=10, parallel=4, on_gpu=True)
    assert found.value == pytest.approx(1.25)
    assert found.detail == "10 tokens, each reading 500 MiB at 1000 MiB/s, for 4 slots at once"


def test_a_cpu_reads_at_its_own_speed() -> None:
    on_gpu, on_cpu = (Hardware().call(500, tokens=10, parallel=1, on_gpu=on).value for on in (True, False))
    assert on_cpu > 10 * on_gpu


@given(st.floats(0, 1e6), st.integers(1, 1000), st.integers(1, 64), st.booleans())
def test_more_slots_never_take_longer(weights: float, tokens: int, parallel: int, on_gpu: bool) -> None:
    one, more = (
        Hardware().call(weights, tokens=tokens, parallel=slots, on_gpu=on_gpu).value
        for slots in (parallel, parallel + 1)
    )
    assert 0 <= more <= one
