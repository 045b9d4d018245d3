"""Whether the models fit a device: each by itself, both at once, and what would fit where one does not."""

from pathlib import Path
from typing import Any

import pytest

from mathrag.reproduction import memory_check
from mathrag.reproduction import preset as presets
from mathrag.reproduction.memory_check import RunModel
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Lane
from shared.model_settings import Model
from shared.models.presets import PRESETS
from shared.settings import Settings
from tests.doubles.ollama_models import SHOWN, SIZE
from tests.doubles.ollama_server import ollama_server

QWEN = {"judge": "qwen2.5-0.5b", "generate": "qwen2.5-7b"}


def wanted(role: str = "generate", quantisation: str = "q4_k_m", **fields: Any) -> RunModel:
    settings = presets.settings(presets.load("paper"))
    name = settings.roles[role]  # type: ignore[index]
    shape = PRESETS[QWEN[role]].with_quantisation(quantisation)
    known = {"model": settings.models[name], "architecture": shape, "on_gpu": True, **fields}
    return RunModel(name=name, lane=Lane(role), **known)


BOTH = [wanted("judge"), wanted()]
LARGE = wanted().needs()
SMALL = wanted("judge").needs()


def test_both_models_of_the_paper_fit_its_card_by_the_estimate() -> None:
    found = memory_check.check_memory(BOTH, 11264, "gpu:0")
    assert found.ok
    assert f"qwen2.5-7b-instruct {LARGE} of 11264 MiB" in found.detail
    assert "both fit at once" in found.detail


def test_too_little_for_both_is_no_error_and_says_what_staging_costs() -> None:
    found = memory_check.check_memory(BOTH, LARGE, "gpu:0")
    assert found.ok
    assert "not both at once: staged: loads 2" in found.detail


def test_too_little_for_one_says_how_much_and_what_would_fit() -> None:
    budget = wanted().memory(parallel=2).at(2)
    found = memory_check.check_memory(BOTH, budget, "GPU-1")
    assert not found.ok
    assert found.detail == f"qwen2.5-7b-instruct needs {LARGE} MiB, GPU-1 has {budget} for models"
    assert found.fix == f"--slots 2 (and OLLAMA_NUM_PARALLEL=2 of the server): {budget} MiB"


def test_a_smaller_quantisation_is_named_where_one_is_known() -> None:
    large = wanted(quantisation="f16")
    fix = memory_check.check_memory([large], 11264, "gpu:0").fix
    assert fix.split("; or ") == [
        f"the quantisation q8_0 in a preset of your own: {wanted(quantisation='q8_0').needs()} MiB",
        f"the quantisation q4_k_m in a preset of your own: {LARGE} MiB",
    ]


def test_where_nothing_fits_the_smallest_budget_that_would_is_named() -> None:
    alone = wanted().memory(parallel=1).at(1)
    assert memory_check.check_memory([wanted()], 2000, "gpu:0").fix == f"a card for which --budget {alone} is right"


def test_what_is_declared_counts_before_what_is_estimated() -> None:
    declared = Model(driver="ollama", context=4096, parallel=4, footprint_mib=9000)
    assert wanted(model=declared).needs() == 9000


def test_a_model_of_which_nothing_is_known_is_not_believed_to_fit() -> None:
    found = memory_check.check_memory([wanted(architecture=None)], 11264, "gpu:0")
    assert not found.ok
    assert "the memory of qwen2.5-7b-instruct is unknown" in found.detail
    assert "footprint_mib" in found.fix


def test_a_declared_model_that_is_too_large_needs_another_budget_or_model() -> None:
    declared = Model(driver="process", server="tgi", hub="x", footprint_mib=9000)
    fix = memory_check.check_memory([wanted(model=declared, architecture=None)], 8000, "gpu:0").fix
    assert fix == "--budget 9000 where the device has it, or a smaller model in a preset of your own"


@pytest.mark.anyio
async def test_a_pulled_models_shape_is_the_servers_word() -> None:
    async with ollama_server("qwen2.5:0.5b-instruct", "qwen2.5:7b-instruct-q4_K_M") as (double, server):
        double.shown = SHOWN
        preset = presets.apply_changes(presets.load("paper"), presets.Changes(server=server.url), Path())
        found = await memory_check.read_models(presets.settings(preset))
    assert [each.lane for each in found] == [Lane.JUDGE, Lane.GENERATE]
    shape = found[1].architecture
    assert isinstance(shape, Architecture)
    assert (shape.weights_bytes, shape.layers) == (SIZE, 28)


@pytest.mark.anyio
async def test_models_of_other_servers_take_nothing_here() -> None:
    far = Model(driver="remote", url="http://127.0.0.1:1/v1")
    settings = Settings(models={"far": far}, roles={"judge": "far", "generate": "far"})
    assert await memory_check.read_models(settings) == []
