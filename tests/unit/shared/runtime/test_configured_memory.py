"""What models are expected to take: declared before told, told before nothing."""

import os
import shutil
from pathlib import Path

from shared.lease.memory import CUDA_CONTEXT_MIB
from shared.runtime.placement import estimate_all, estimate_one
from shared.settings import REPOSITORY, Device, Model

JUDGE = REPOSITORY / "models" / "world-judge-f16.gguf"
CPU, GPU = Device(id="cpu:0"), Device(id="GPU-1")


def model(path: Path | None, **options: int) -> Model:
    return Model(driver="process", path=path, **options)  # type: ignore[arg-type]


def test_what_is_declared_is_believed_without_a_look_at_the_file(tmp_path: Path) -> None:
    assert estimate_one(model(tmp_path / "far.gguf", footprint_mib=1700), on_gpu=True) == 1700


def test_a_file_tells_what_is_not_declared() -> None:
    one = estimate_one(model(JUDGE, parallel=1), on_gpu=False)
    assert 0 < one < estimate_one(model(JUDGE, parallel=8), on_gpu=False)
    assert one < estimate_one(model(JUDGE, parallel=1, context=8192), on_gpu=False)


def test_what_tells_nothing_counts_as_nothing(tmp_path: Path) -> None:
    for path in (None, tmp_path / "far.gguf", REPOSITORY / "LICENSE", tmp_path):
        assert estimate_one(model(path), on_gpu=True) == 0


def test_with_a_gpu_among_the_devices_its_context_counts() -> None:
    models = {"j": model(JUDGE), "g": model(None, footprint_mib=96)}
    (small, declared), (large, same) = (estimate_all(models, some).values() for some in ([CPU], [CPU, GPU]))
    assert (declared, same) == (96, 96)
    assert large - small >= CUDA_CONTEXT_MIB


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    shutil.copy(JUDGE, file)
    before = estimate_one(model(file), on_gpu=False)
    file.write_bytes(b"no model")
    os.utime(file, ns=(1, 1))  # another time than before, however fast this was
    assert before > 0
    assert estimate_one(model(file), on_gpu=False) == 0
