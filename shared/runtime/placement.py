"""Which device each model runs on: the same configuration and footprints give the same answer, whoever asks.

The stages are kept apart: with a device for the judge and one for the generator each is loaded once, and both work at
the same time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared import suggestions
from shared.device_settings import Device
from shared.errors import Invalid
from shared.model_settings import Model
from shared.models.ollama import DEFAULT_URL
from shared.runtime.configured_memory import memory_of_all
from shared.settings import Settings


def placement(
    models: Mapping[str, Model], roles: Mapping[Any, str], devices: Sequence[Device], footprints: Mapping[str, int]
) -> dict[str, str]:
    """Id of the device by name of the model; `footprints`: what each is expected to take, in MiB. Pure.

    A model with a `device` stays there; one that needs no lease is served by the first device's guard. Of the others
    those that answer a role come first, the largest before the smaller ones, each to the largest device that it fits
    on and that no role has yet; then the rest, to the device with the most room left. What fits nowhere goes by the
    same rule, and is not loaded there: `problems` says so.
    """
    placed = {
        name: model.device or devices[0].id for name, model in models.items() if model.device or not leased(model)
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
    taken = {name: mib for name, mib in footprints.items() if leased(models[name])}
    for name in rest:
        fitting = [device for device in devices if footprints[name] <= device.models_mib] or devices
        placed[name] = min(fitting, key=lambda device: _crowding(device, name, placed, taken, answering)).id
    return {name: placed[name] for name in models}


def leased(model: Model) -> bool:
    """Whether the device's memory is needed to answer for it."""
    return model.driver != "remote"


def _crowding(
    device: Device, name: str, placed: Mapping[str, str], taken: Mapping[str, int], answering: Sequence[str]
) -> tuple[int, int]:
    """How little a device suits a model: roles that it has already, and how much less room than others."""
    there = [each for each, where in placed.items() if where == device.id and each in taken]
    if name in answering:
        return sum(each in answering for each in there), -device.models_mib
    return 0, sum(taken[each] for each in there) - device.models_mib


def narrowed(settings: Settings, device: str) -> Settings:
    """The settings as far as one device is concerned: it is `device`, and its models are all that there are.

    Raises:
        Invalid: there is no such device.
    """
    found = {each.id: each for each in settings.all_devices()}
    if device not in found:
        hint = suggestions.hint(device, found, "see `device` and `devices`")
        raise Invalid(f"no device {device!r}; there are {', '.join(found)}", hint=hint)
    placed, _ = _placed(settings)
    models = {name: model for name, model in settings.models.items() if placed[name] == device}
    own = {"device": found[device], "devices": (), "models": models, "guard_url": found[device].guard_url}
    return settings.model_copy(update=own)


def problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """(model, what is wrong) for models that could never be loaded where several devices are configured."""
    if not settings.devices:
        return
    devices = {device.id: device for device in settings.all_devices()}
    placed, footprints = _placed(settings)
    largest = max(device.models_mib for device in devices.values())
    for name, model in settings.models.items():
        budget = devices[placed[name]].models_mib if model.device else largest
        if leased(model) and footprints[name] > budget:
            where = f"{model.device}, which" if model.device else "any device, the largest of which"
            how = "declares" if model.footprint_mib else "by its file needs"
            yield name, f"{how} {footprints[name]} MiB and does not fit on {where} has {budget} MiB"
    yield from _shared_servers(settings.models, placed)


def _placed(settings: Settings) -> tuple[dict[str, str], dict[str, int]]:
    """Device and footprint by name of the model."""
    devices = settings.all_devices()
    footprints = memory_of_all(settings.models, devices)
    return placement(settings.models, settings.roles, devices, footprints), footprints


def _shared_servers(models: Mapping[str, Model], placed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """An Ollama server puts its models where it likes, so each device needs a server of its own."""
    owners: dict[str, str] = {}
    for name, model in models.items():
        if model.driver == "ollama":
            owner = owners.setdefault(model.url or DEFAULT_URL, placed[name])
            if owner != placed[name]:
                yield name, f"is on {placed[name]}, but its Ollama server has models on {owner}: set `url` or `device`"
