"""`python -m services.guard`: which device it takes, and what its children may see."""

import os
import subprocess
import sys

import pytest

from services.guard.__main__ import _restrict_to_gpu

pytestmark = pytest.mark.anyio


def test_a_device_that_is_not_configured_is_refused_with_those_that_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.guard", "--device", "cpu:9", "--port", "1"],
        capture_output=True, text=True, check=False, timeout=120,
        env={"PATH": "/usr/bin", "MATHRAG_DEVICES": '[{"id": "cpu:1"}]'},
    )  # fmt: skip
    assert done.returncode == 2
    assert "no device 'cpu:9'; there are cpu:0, cpu:1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("device", "seen"), [("GPU-0f", "GPU-0f"), ("MIG-0f", "MIG-0f"), ("cpu:0", "0,1")])
def test_what_a_guard_starts_sees_its_own_gpu_only(monkeypatch: pytest.MonkeyPatch, device: str, seen: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _restrict_to_gpu(device)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
