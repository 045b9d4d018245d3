"""Times that nobody has measured: what they are made of, and that they say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease.memory import Hardware


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
