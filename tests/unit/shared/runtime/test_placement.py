import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid
from shared.lease.memory import CUDA_CONTEXT_MIB
from shared.runtime.placement import estimate_all, estimate_one, find_problems, place_models, settings_for_device
from shared.settings import REPOSITORY, Device, Model, Settings

# Placement: the stages on devices of their own, the same answer for whoever asks, and words for what cannot be.


ROLES: Mapping[str, str] = {"judge": "j", "generate": "g"}
SMALL, LARGE = Device(id="GPU-small", budget_mib=8_000), Device(id="GPU-large", budget_mib=24_000)
TWINS = (Device(id="cpu:0"), Device(id="cpu:1"))


def scripted(footprint_mib: int = 96, device: str | None = None) -> Model:
    return Model(driver="scripted", footprint_mib=footprint_mib, device=device)


def shipped(name: str, **options: Any) -> Model:
    return Model(driver="process", path=REPOSITORY / "models" / f"world-{name}-f16.gguf", **options)


def remote(device: str | None = None) -> Model:
    return Model(driver="remote", url="http://models.example.org", device=device)


def ollama(url: str | None = None, device: str | None = None) -> Model:
    return Model(driver="ollama", url=url, device=device)


def placed(models: Mapping[str, Model], roles: Mapping[str, str], devices: Sequence[Device]) -> dict[str, str]:
    return place_models(models, roles, devices, {name: model.footprint_mib for name, model in models.items()})


def settings(models: Mapping[str, Model], *devices: Device) -> Settings:
    return Settings(models=dict(models), roles=dict(ROLES), device=devices[0], devices=devices[1:])  # type: ignore[arg-type]


def test_the_stages_are_kept_apart() -> None:
    assert placed({"g": scripted(), "j": scripted()}, ROLES, TWINS) == {"g": "cpu:1", "j": "cpu:0"}


def test_the_larger_model_gets_the_larger_device() -> None:
    for large, small in (("j", "g"), ("g", "j")):
        models = {small: scripted(2_000), large: scripted(7_000)}
        assert placed(models, ROLES, (SMALL, LARGE)) == {large: "GPU-large", small: "GPU-small"}


def test_stages_that_fit_on_one_device_only_share_it() -> None:
    models = {"j": scripted(9_000), "g": scripted(17_000)}
    assert set(placed(models, ROLES, (SMALL, LARGE)).values()) == {"GPU-large"}


def test_a_model_that_is_pinned_stays_and_drives_the_other_stage_away() -> None:
    models = {"j": scripted(2_000), "g": scripted(7_000, device="GPU-small")}
    assert placed(models, ROLES, (SMALL, LARGE)) == {"j": "GPU-large", "g": "GPU-small"}


def test_what_answers_no_role_goes_where_there_is_most_room() -> None:
    models = {
        "j": scripted(2_000),
        "g": scripted(23_000),
        "other": scripted(3_000),
        "pinned": scripted(10, device="GPU-large"),
    }
    assert placed(models, ROLES, (SMALL, LARGE))["other"] == "GPU-small"


def test_a_model_that_needs_no_lease_takes_no_ones_place() -> None:
    models = {"j": remote(), "g": scripted(7_000), "far": remote(device="GPU-large")}
    assert placed(models, ROLES, (SMALL, LARGE)) == {"j": "GPU-small", "g": "GPU-large", "far": "GPU-large"}


FOOTPRINTS = st.lists(st.integers(0, 30_000), max_size=6)
BUDGETS = st.lists(st.integers(1, 30_000), min_size=1, max_size=4)


@given(FOOTPRINTS, BUDGETS, st.randoms(use_true_random=False))
def test_a_placement_is_whole_fits_and_depends_on_no_order(
    footprints: list[int], budgets: list[int], random: st.DataObject
) -> None:
    names = ("j", "g", *(f"m{n}" for n in range(4)))
    models = {name: scripted(mib) for name, mib in zip(names, footprints, strict=False)}
    devices = [Device(id=f"cpu:{n}", budget_mib=mib) for n, mib in enumerate(budgets)]
    found = placed(models, ROLES, devices)
    assert found.keys() == models.keys()
    for name, where in found.items():
        budget = next(device.budget_mib for device in devices if device.id == where)
        assert models[name].footprint_mib <= budget or models[name].footprint_mib > max(budgets)
    if {"j", "g"} <= found.keys() and found["j"] == found["g"]:
        stages = (models["j"].footprint_mib, models["g"].footprint_mib)
        assert not any(
            stages[0] <= one.budget_mib and stages[1] <= other.budget_mib
            for one in devices
            for other in devices
            if one is not other
        )
    shuffled = list(models)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert placed({name: models[name] for name in shuffled}, ROLES, devices) == found


@given(FOOTPRINTS)
def test_one_device_has_everything(footprints: list[int]) -> None:
    models = {f"m{n}": scripted(mib) for n, mib in enumerate(footprints)} | {"far": remote()}
    assert set(placed(models, {}, (SMALL,)).values()) == {"GPU-small"}


def test_a_guard_sees_its_own_device_and_models_only() -> None:
    whole = settings({"j": scripted(), "g": scripted()}, *TWINS)
    seen = [settings_for_device(whole, device.id) for device in TWINS]
    assert [(each.device.id, set(each.models), each.devices) for each in seen] == [
        ("cpu:0", {"j"}, ()),
        ("cpu:1", {"g"}, ()),
    ]


def test_the_guard_of_the_only_device_sees_everything() -> None:
    only = settings({"j": scripted(), "g": scripted(), "far": remote()}, SMALL)
    seen = settings_for_device(only, "GPU-small")
    assert (seen.device.id, seen.models) == ("GPU-small", only.models)


def test_a_guard_of_a_device_that_is_not_configured_is_told_which_are() -> None:
    with pytest.raises(Invalid, match=r"no device 'cpu:9'; the devices are cpu:0, cpu:1"):
        settings_for_device(settings({}, *TWINS), "cpu:9")


def test_a_model_that_declares_nothing_counts_with_what_its_file_lets_expect() -> None:
    models = {"j": shipped("judge", context=100_000), "g": shipped("generator")}
    wanted = settings(models, *(each.model_copy(update={"id": f"cpu:{n}"}) for n, each in enumerate((SMALL, LARGE))))
    assert [set(settings_for_device(wanted, device).models) for device in ("cpu:0", "cpu:1")] == [{"g"}, {"j"}]
    (name, said), *more = find_problems(settings(models, *TWINS))
    assert (name, more) == ("j", [])
    assert re.fullmatch(r"by its file needs 1\d\d\d MiB and does not fit on any device, .* has 160 MiB", said)


def test_a_model_whose_file_is_elsewhere_counts_as_nothing(tmp_path: Path) -> None:
    models = {"j": Model(driver="process", path=tmp_path / "far.gguf"), "g": scripted(10, device="cpu:0")}
    assert list(find_problems(settings(models, *TWINS))) == []
    assert set(settings_for_device(settings(models, *TWINS), "cpu:1").models) == {"j"}


def test_what_fits_nowhere_is_said() -> None:
    models = {"j": scripted(9_000, device="GPU-small"), "g": scripted(25_000), "far": remote()}
    found = dict(find_problems(settings(models, SMALL, LARGE)))
    assert found == {
        "j": "declares 9000 MiB and does not fit on GPU-small, which has 8000 MiB",
        "g": "declares 25000 MiB and does not fit on any device, the largest of which has 24000 MiB",
    }


def test_an_ollama_server_belongs_to_one_device() -> None:
    apart = {"j": ollama(), "g": ollama(url="http://127.0.0.1:11434")}
    assert [name for name, _ in find_problems(settings(apart, *TWINS))] == ["g"]
    for well in (
        {"j": ollama(), "g": ollama(url="http://127.0.0.1:11435")},
        {"j": ollama(device="cpu:1"), "g": ollama(device="cpu:1")},
    ):
        assert list(find_problems(settings(well, *TWINS))) == []


# What models are expected to take: declared before told, told before nothing.

JUDGE = REPOSITORY / "models" / "world-judge-f16.gguf"
CPU, GPU = Device(id="cpu:0"), Device(id="GPU-1")


def in_process(path: Path | None, **options: int) -> Model:
    return Model(driver="process", path=path, **options)  # type: ignore[arg-type]


def test_what_is_declared_is_believed_without_a_look_at_the_file(tmp_path: Path) -> None:
    assert estimate_one(in_process(tmp_path / "far.gguf", footprint_mib=1700), on_gpu=True) == 1700


def test_a_file_tells_what_is_not_declared() -> None:
    one = estimate_one(in_process(JUDGE, parallel=1), on_gpu=False)
    assert 0 < one < estimate_one(in_process(JUDGE, parallel=8), on_gpu=False)
    assert one < estimate_one(in_process(JUDGE, parallel=1, context=8192), on_gpu=False)


def test_what_tells_nothing_counts_as_nothing(tmp_path: Path) -> None:
    for path in (None, tmp_path / "far.gguf", REPOSITORY / "LICENSE", tmp_path):
        assert estimate_one(in_process(path), on_gpu=True) == 0


def test_with_a_gpu_among_the_devices_its_context_counts() -> None:
    models = {"j": in_process(JUDGE), "g": in_process(None, footprint_mib=96)}
    (small, declared), (large, same) = (estimate_all(models, some).values() for some in ([CPU], [CPU, GPU]))
    assert (declared, same) == (96, 96)
    assert large - small >= CUDA_CONTEXT_MIB


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    shutil.copy(JUDGE, file)
    before = estimate_one(in_process(file), on_gpu=False)
    file.write_bytes(b"no model")
    os.utime(file, ns=(1, 1))  # another time than before, however fast this was
    assert before > 0
    assert estimate_one(in_process(file), on_gpu=False) == 0
