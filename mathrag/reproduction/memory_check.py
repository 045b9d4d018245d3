"""Check before a run whether the models fit into the device's memory, and suggest what would fit if they do not.

Plan and estimates are those of the service (`shared/lease`); nothing is measured here.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.checks.check import Check
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Lane
from shared.lease.demand import Demand, Room
from shared.lease.estimates import MemoryEstimate
from shared.lease.hardware import Hardware
from shared.lease.memory import estimate_memory
from shared.lease.plan import plan
from shared.model_settings import Model
from shared.models.metadata import MetadataError, files
from shared.models.metadata import ollama as of_ollama
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed
from shared.models.presets import PRESETS
from shared.settings import Settings

CALLS = 1000
TOKENS = 512
MOST_REMEDIES = 3


class RunModel(msgspec.Struct, frozen=True, kw_only=True):
    """A configured model and what is known of its architecture."""

    name: str
    lane: Lane
    model: Model
    architecture: Architecture | None
    on_gpu: bool

    def memory(self, architecture: Architecture | None = None, parallel: int | None = None) -> MemoryEstimate:
        """Estimate the memory, optionally for another quantisation (`architecture`) or number of slots."""
        other = architecture is not None or parallel is not None
        return estimate_memory(
            declared_mib=0 if other else self.model.footprint_mib,
            architecture=architecture or self.architecture,
            context=self.model.context,
            parallel=parallel or self.model.parallel,
            on_gpu=self.on_gpu,
        )

    def needs(self) -> int:
        """Return the memory with all slots in MiB: an external server cannot be started with fewer."""
        return self.memory().at(self.model.parallel)


async def read_models(settings: Settings) -> list[RunModel]:
    """Return each model that this service loads for a role, once."""
    on_gpu = any(not device.id.startswith("cpu") for device in settings.all_devices())
    roles = {name: Lane(role) for role, name in reversed(settings.roles.items())}
    loaded = {name: lane for name, lane in roles.items() if settings.models[name].driver != "remote"}
    return [
        RunModel(
            name=name, lane=lane, model=settings.models[name], on_gpu=on_gpu,
            architecture=await _read_architecture(name, settings.models[name]),
        )
        for name, lane in sorted(loaded.items())
    ]  # fmt: skip


async def _read_architecture(name: str, model: Model) -> Architecture | None:
    """Read the architecture of a model; None if it is unknown, so that its declared memory must do."""
    try:
        if model.driver == "ollama":
            async with Ollama(model.url or DEFAULT_URL, {}) as api:
                tag = model.tag or name
                return of_ollama.parse_architecture(await api.show(tag), (await api.require_pulled(tag)).size)
        return files.read_architecture(model.path) if model.path else None
    except (MetadataError, OllamaFailed, OSError):
        return None


def check_memory(models: list[RunModel], budget_mib: int, device: str) -> Check:
    """Check that each model fits by itself; the detail tells whether all fit at once."""
    unknown = [each.name for each in models if each.memory().source is None]
    if unknown:
        fix = f"give {unknown[0]} a `footprint_mib` in a preset of your own: mathrag reproduce preset NAME > own.yaml"
        return Check(name="memory", ok=False, detail=f"the memory of {', '.join(unknown)} is unknown", fix=fix)
    large = next((each for each in models if each.needs() > budget_mib), None)
    if large is None:
        return Check(
            name="memory",
            ok=True,
            detail=f"{_format_sizes(models)} of {budget_mib} MiB; {_describe_ways(models, budget_mib)}",
        )
    detail = f"{large.name} needs {large.needs()} MiB, {device} has {budget_mib} for models"
    return Check(name="memory", ok=False, detail=detail, fix="; or ".join(list_remedies(large, budget_mib)))


def _format_sizes(models: list[RunModel]) -> str:
    return ", ".join(f"{each.name} {each.needs()}" for each in models)


def _describe_ways(models: list[RunModel], budget_mib: int) -> str:
    together = sum(each.needs() for each in models)
    if together <= budget_mib:
        return "both fit at once; `staged` keeps them apart, as the paper does"
    found = plan(
        [_make_demand(number, each) for number, each in enumerate(models)], [Room(device="0", budget_mib=budget_mib)]
    )
    return f"not both at once: {found.why}"


def _make_demand(number: int, each: RunModel) -> Demand:
    weights = each.architecture.weights_mib if each.architecture else float(each.needs())
    assumed = Hardware()
    return Demand(
        model_id=number, name=each.name, lane=each.lane, memory=each.memory(), parallel=each.model.parallel,
        context=each.model.context, calls=CALLS, load_s=assumed.load(weights), shared=each.on_gpu,
        call_s=assumed.call(weights, tokens=TOKENS, parallel=each.model.parallel, on_gpu=each.on_gpu),
    )  # fmt: skip


def list_remedies(large: RunModel, budget_mib: int) -> Iterator[str]:
    """Yield what would fit: fewer slots, then smaller quantisations, else a larger budget."""
    if large.architecture is None:
        yield f"--budget {large.needs()} where the device has it, or a smaller model in a preset of your own"
        return
    found = [*_suggest_slots(large, budget_mib), *_suggest_quantisations(large, budget_mib)]
    yield from found[:MOST_REMEDIES] or [f"a card for which --budget {large.memory(parallel=1).at(1)} is right"]


def _suggest_slots(large: RunModel, budget_mib: int, architecture: Architecture | None = None) -> list[str]:
    """Return the option with the largest number of slots that fits; empty if not even one does."""
    slots = large.model.parallel
    while slots > 1:
        slots //= 2
        if (mib := large.memory(architecture, slots).at(slots)) <= budget_mib:
            server = f" (and OLLAMA_NUM_PARALLEL={slots} of the server)" if large.model.driver == "ollama" else ""
            return [f"--slots {slots}{server}: {mib} MiB"]
    return []


def _suggest_quantisations(large: RunModel, budget_mib: int) -> Iterator[str]:
    """Yield quantisations of a known model that fit, the largest first."""
    shape = large.architecture
    for preset in PRESETS.values():
        known: Any = preset.architecture
        if shape is None or (known.layers, known.embedding) != (shape.layers, shape.embedding):
            continue
        for name, weights in sorted(preset.weights_bytes.items(), key=lambda pair: -pair[1]):
            smaller = preset.with_quantisation(name)
            mib = large.memory(smaller).at(large.model.parallel)
            if weights < shape.weights_bytes and mib <= budget_mib:
                yield f"the quantisation {name} in a preset of your own: {mib} MiB"
