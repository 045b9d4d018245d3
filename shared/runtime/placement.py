"""Place each model on a device; equal configurations and footprints give equal placements in every process.

The stages are kept apart: with one device for the judge and one for the generator, each model is loaded once and both
work at the same time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mathrag.errors import Invalid
from mathrag.messages import make_hint
from shared.lease.memory import estimate_memory
from shared.models import metadata
from shared.models.metadata import MetadataError
from shared.models.ollama import DEFAULT_URL
from shared.settings import Device, Model, Settings
from shared.shapes import Architecture

# Memory of configured models in MiB: as declared, otherwise an estimate from their files.
#
# An estimate needs the file on this machine. Where guards run on other machines, declare `footprint_mib`.


def estimate_all(models: Mapping[str, Model], devices: Iterable[Device]) -> dict[str, int]:
    """Return the memory of each model by name, for the kind of device that needs most: placement is not known yet."""
    on_gpu = any(not device.id.startswith("cpu") for device in devices)
    return {name: estimate_one(model, on_gpu=on_gpu) for name, model in models.items()}


def estimate_one(model: Model, *, on_gpu: bool) -> int:
    """Return the memory of one model; 0 if nothing is declared and nothing can be estimated."""
    architecture = None
    if not model.footprint_mib and model.path is not None:
        with suppress(MetadataError, OSError):
            architecture = _read_architecture(model.path, model.path.stat().st_mtime_ns)
    memory = estimate_memory(
        declared_mib=model.footprint_mib,
        architecture=architecture,
        context=model.context,
        parallel=model.parallel,
        on_gpu=on_gpu,
    )
    return memory.at(model.parallel)


@cache
def _read_architecture(path: Path, _modified_ns: int) -> Architecture:
    return metadata.read_architecture(path)


def place_models(
    models: Mapping[str, Model], roles: Mapping[Any, str], devices: Sequence[Device], footprints: Mapping[str, int]
) -> dict[str, str]:
    """Return the device id by model name. `footprints` are the models' expected sizes in MiB.

    A model with a `device` stays there; a model that needs no lease is served by the first device's guard. Of the
    others, models with a role come first, the largest before smaller ones, each on the largest device that it fits on
    and that has no role yet; then the rest, each on the device with the most room left. A model that fits nowhere is
    placed by the same rule but never loaded; `find_problems` reports it.
    """
    placed = {
        name: model.device or devices[0].id for name, model in models.items() if model.device or not needs_memory(model)
    }
    answering = list(roles.values())
    rest = sorted(
        models.keys() - placed.keys(),
        key=lambda name: (
            name not in answering,
            -footprints[name],
            answering.index(name) if name in answering else 0,
            name,
        ),
    )
    taken = {name: mib for name, mib in footprints.items() if needs_memory(models[name])}
    for name in rest:
        fitting = [device for device in devices if footprints[name] <= device.models_mib] or devices
        placed[name] = min(fitting, key=lambda device: _measure_crowding(device, name, placed, taken, answering)).id
    return {name: placed[name] for name in models}


def needs_memory(model: Model) -> bool:
    """Tell whether the model occupies memory of a device."""
    return model.driver != "remote"


def _measure_crowding(
    device: Device, name: str, placed: Mapping[str, str], taken: Mapping[str, int], answering: Sequence[str]
) -> tuple[int, int]:
    """Return a sort key of how badly a device suits a model: roles that it has, then memory that is taken."""
    there = [each for each, where in placed.items() if where == device.id and each in taken]
    if name in answering:
        return sum(each in answering for each in there), -device.models_mib
    return 0, sum(taken[each] for each in there) - device.models_mib


def settings_for_device(settings: Settings, device: str) -> Settings:
    """Return the settings reduced to one device: it becomes `device`, and only its models remain.

    Raises:
        Invalid: the device does not exist.
    """
    found = {each.id: each for each in settings.all_devices()}
    if device not in found:
        hint = make_hint(device, found, "see `device` and `devices`")
        raise Invalid(f"no device {device!r}; the devices are {', '.join(found)}", hint=hint)
    placed, _ = _place(settings)
    models = {name: model for name, model in settings.models.items() if placed[name] == device}
    own = {"device": found[device], "devices": (), "models": models, "guard_url": found[device].guard_url}
    return settings.model_copy(update=own)


def find_device(settings: Settings, model: str) -> str:
    """Return the id of the device that loads the model."""
    return _place(settings)[0][model]


def find_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (model, problem) for models that can never be loaded, where several devices are configured."""
    if not settings.devices:
        return
    devices = {device.id: device for device in settings.all_devices()}
    placed, footprints = _place(settings)
    largest = max(device.models_mib for device in devices.values())
    for name, model in settings.models.items():
        budget = devices[placed[name]].models_mib if model.device else largest
        if needs_memory(model) and footprints[name] > budget:
            where = f"{model.device}, which" if model.device else "any device, the largest of which"
            how = "declares" if model.footprint_mib else "by its file needs"
            yield name, f"{how} {footprints[name]} MiB and does not fit on {where} has {budget} MiB"
    # Ollama chooses devices itself, so each device needs its own server.
    owners: dict[str, str] = {}
    for name, model in settings.models.items():
        if model.driver == "ollama":
            owner = owners.setdefault(model.url or DEFAULT_URL, placed[name])
            if owner != placed[name]:
                yield name, f"is on {placed[name]}, but its Ollama server has models on {owner}: set `url` or `device`"


def _place(settings: Settings) -> tuple[dict[str, str], dict[str, int]]:
    """Return the device and the footprint of each model by name."""
    devices = settings.all_devices()
    footprints = estimate_all(settings.models, devices)
    return place_models(settings.models, settings.roles, devices, footprints), footprints
