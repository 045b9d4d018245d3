"""What a load is expected to take: which knowledge wins, which margin it has, and what fewer slots save."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease.memory import (
    ASSUMED_MARGIN,
    FAR_MIB,
    FAR_RATIO,
    LEARNED_MARGIN,
    LearnedMemory,
    MemoryEstimate,
    assume_memory,
    estimate_memory,
)
from shared.shapes import Architecture

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
def test_a_slot_more_never_takes_less(declared: int, slots: int, on_gpu: bool) -> None:
    found = estimated(declared, on_gpu=on_gpu)
    assert 0 <= found.at(slots) <= found.at(slots + 1)
