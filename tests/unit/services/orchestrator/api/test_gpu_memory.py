"""What is said of a device whose models hold more than was declared for them."""

import pytest

from services.orchestrator.api.examples import make_example
from services.orchestrator.api.gpus import make_memory
from shared.storage.devices import ResidentModel
from tests.unit.commands import Server, mathrag, says

EXAMPLE = make_example("DeviceView")


def model(footprint_mib: int, measured_mib: float | None) -> ResidentModel:
    return ResidentModel(name="generator", digest=None, footprint_mib=footprint_mib, measured_mib=measured_mib)


def test_a_model_of_a_processor_that_holds_far_more_than_was_declared_is_named() -> None:
    memory = make_memory("cpu:0", [model(1100, 3010.0)], 4000)
    assert memory.remark is not None
    assert memory.remark.startswith("generator uses 3010 MiB, but its `footprint_mib` declares 1100: raise it")


@pytest.mark.parametrize(
    ("device", "declared", "measured"),
    [("cpu:0", 1100, 1200.0), ("cpu:0", 1100, None), ("cpu:0", 0, 41.5), ("gpu:0", 1100, 3010.0)],
)
def test_nothing_is_remarked_of_what_fits_is_unknown_or_lies_elsewhere(
    device: str, declared: int, measured: float | None
) -> None:
    assert make_memory(device, [model(declared, measured)], 4000).remark is None


def test_the_remark_is_shown(server: Server) -> None:
    server(says([{**EXAMPLE, "memory": {**EXAMPLE["memory"], "remark": "generator holds 3010 MiB"}}]))
    assert "generator holds 3010 MiB" in mathrag("gpu").stdout
