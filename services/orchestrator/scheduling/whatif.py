"""Plans of models and devices that need not be there: a request's own figures instead of rows."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.orchestrator.scheduling.demands import Wanted
from services.orchestrator.scheduling.needs import Needs
from shared import suggestions
from shared.contracts.architecture import MIB, Architecture
from shared.contracts.calls import Lane
from shared.contracts.fields import WHOLE
from shared.contracts.params import Params
from shared.errors import Invalid
from shared.lease.demand import Demand, Retrieval, Room
from shared.lease.estimates import Estimate, MemoryEstimate
from shared.lease.hardware import Hardware
from shared.lease.memory import F16_BYTES, Q8_BYTES, estimate_memory
from shared.models.presets import PRESETS

MOST_MODELS = 4
MOST_DEVICES = 4
KV_BYTES = {"f16": F16_BYTES, "q8_0": Q8_BYTES}
TOKENS = {"judge": Params().judge.max_tokens, "generate": Params().generate.max_tokens}
"""Of the longest answers, as of a job that says nothing else."""

Count = Annotated[int, Field(gt=0, le=1 << 24), WHOLE]
Layers = Annotated[int, Field(gt=0, le=1 << 12), WHOLE]
Calls = Annotated[int, Field(ge=0, le=1 << 40), WHOLE]
Speed = Annotated[float, Field(ge=1, le=1e12)]
"""MiB per second."""
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]


class Shape(BaseModel):
    """What a footprint follows from, as a GGUF header or a `config.json` has it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weights_mib: Annotated[float, Field(gt=0, le=1e9)]
    layers: Layers
    kv_heads: Layers
    head_dim: Layers
    embedding: Count
    vocabulary: Count

    def architecture(self) -> Architecture:
        """The same, as readers of metadata give it."""
        rest = self.model_dump(exclude={"weights_mib"})
        return Architecture(weights_bytes=int(self.weights_mib * MIB), heads=self.kv_heads, trained_context=0, **rest)


class ModelWanted(BaseModel):
    """A model by its metadata: a preset in a quantisation, or its shape."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["judge", "generate"]
    preset: Name | None = None
    """qwen2.5-0.5b or qwen2.5-7b."""
    quantisation: Name = "q4_k_m"
    """Of a preset: q4_k_m, q8_0 or f16."""
    shape: Shape | None = None
    name: Name | None = None
    """What it is called in the answer."""
    context: Count = 2048
    """Tokens of a slot."""
    parallel: Annotated[int, Field(gt=0, le=1024), WHOLE] = 8
    """Most slots."""
    kv: Literal["f16", "q8_0"] = "f16"
    """How the KV cache is kept."""
    calls: Calls = 1000
    tokens: Count | None = None
    """Of an answer; by default as long as a job's may be."""
    device: Name | None = None
    """Where it must be."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if (self.preset is None) == (self.shape is None):
            raise ValueError("a model needs a `preset` or a `shape`, and not both")
        return self

    @property
    def model(self) -> str:
        """Equal for roles that one server process answers: the same weights with the same slots on the same device."""
        return self.model_dump_json(exclude={"role", "calls", "tokens"})

    def beside(self, other: Self) -> Self:
        """One model that answers both: the calls of both, with the longer one's answers, as in a job's plan."""
        first, _ = sorted((self, other), key=lambda each: list(Lane).index(Lane(each.role)))
        tokens = max(each.tokens or TOKENS[each.role] for each in (self, other))
        return first.model_copy(update={"calls": self.calls + other.calls, "tokens": tokens})

    def demand(self, number: int, hardware: Hardware, *, on_gpu: bool) -> Demand:
        """As the plan wants it.

        Raises:
            Invalid: no such preset, or it has no such quantisation.
        """
        architecture = self.shape.architecture() if self.shape else _preset(self.preset or "", self.quantisation)
        weights, tokens = architecture.weights_mib, self.tokens or TOKENS[self.role]
        return Demand(
            model_id=number,
            name=self.name or (f"{self.preset} {self.quantisation}" if self.preset else self.role),
            lane=Lane(self.role),
            memory=self._memory(architecture, on_gpu=on_gpu),
            parallel=self.parallel,
            context=self.context,
            calls=self.calls,
            call_s=hardware.call(weights, tokens=tokens, parallel=self.parallel, on_gpu=on_gpu),
            load_s=hardware.load(weights),
            shared=on_gpu,
            device=self.device,
        )

    def _memory(self, architecture: Architecture, *, on_gpu: bool) -> MemoryEstimate:
        return estimate_memory(
            declared_mib=0, architecture=architecture, context=self.context, parallel=self.parallel, on_gpu=on_gpu,
            kv_bytes=KV_BYTES[self.kv],
        )  # fmt: skip


class DeviceWanted(BaseModel):
    """A device, in the place of those that are configured."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Name = "gpu:0"
    """One that begins with `cpu` needs no CUDA context, and its slots save no work."""
    budget_mib: Count


class RetrievalWanted(BaseModel):
    """Searches that may run on the GPU: what they take there, and how long one takes here and there."""

    model_config = ConfigDict(extra="forbid", strict=True)

    mib: Count = 2355
    """2.3 GiB: FAISS's scratch and context, and a small embedder."""
    calls: Calls = 1000
    gpu_s: Annotated[float, Field(ge=0, le=1e6)]
    cpu_s: Annotated[float, Field(ge=0, le=1e6)]

    def retrieval(self) -> Retrieval:
        """As the plan wants it."""
        gpu, cpu = (Estimate(value=value, source="assumed", detail="as asked") for value in (self.gpu_s, self.cpu_s))
        return Retrieval(mib=self.mib, calls=self.calls, gpu_s=gpu, cpu_s=cpu)


def demanded(models: list[ModelWanted], hardware: Hardware, *, on_gpu: bool) -> list[Demand]:
    """Models in the order in which they were asked for; one that is asked for in two roles is one model."""
    distinct: dict[str, ModelWanted] = {}
    for model in models:
        known = distinct.get(model.model)
        distinct[model.model] = known.beside(model) if known else model
    return [model.demand(number, hardware, on_gpu=on_gpu) for number, model in enumerate(distinct.values(), 1)]


class Replaced(NamedTuple):
    """The models of a job, some of them by others."""

    demands: list[Demand]
    order: tuple[int, ...]
    """As one question needs them, by the ids of the demands."""


def replaced(
    demands: list[Demand], needs: Needs, models: list[ModelWanted], hardware: Hardware, *, on_gpu: bool
) -> Replaced:
    """`demands`, which `needs` asks for, with `models` in the place of those of their roles.

    A model that answers two roles in a job stands in the lane of the first; two roles of one model are one server.
    """
    by_lane = {Lane(model.role): model for model in models}
    ids: dict[str, int] = {}
    same: dict[int, int] = {}
    made: dict[int, Demand] = {}
    for demand in demands:
        model = by_lane.get(demand.lane)
        number = demand.model_id if model is None else ids.setdefault(model.model, demand.model_id)
        stands = demand if model is None else _in_place(model, number, needs.wanted[demand.model_id], hardware, on_gpu)
        calls = demand.calls + (made[number].calls if number in made else 0)
        made[number] = msgspec.structs.replace(stands, calls=calls)
        same[demand.model_id] = number
    return Replaced(list(made.values()), _runs(same.get(model, model) for model in needs.order))


def _in_place(model: ModelWanted, number: int, wanted: Wanted, hardware: Hardware, on_gpu: bool) -> Demand:  # noqa: FBT001 - handed on
    longest = model.model_copy(update={"tokens": model.tokens or wanted.tokens})
    return longest.demand(number, hardware, on_gpu=on_gpu)


def _runs(order: Iterable[int]) -> tuple[int, ...]:
    """Without a model that follows itself."""
    return tuple(model for model, _ in groupby(order))


def roomy(devices: list[DeviceWanted]) -> list[Room]:
    """Devices that hold nothing.

    Raises:
        Invalid: two of one name, or GPUs beside CPUs.
    """
    names = [device.id for device in devices]
    if len(set(names)) < len(names):
        raise Invalid("`devices`: two have one `id`", hint="give each its own")
    if len({on_gpu(name) for name in names}) > 1:
        raise Invalid("`devices`: a CPU beside a GPU cannot be compared here", hint="ask twice")
    return [Room(device=device.id, budget_mib=device.budget_mib) for device in devices]


def on_gpu(device: str) -> bool:
    """By its name."""
    return not device.startswith("cpu")


def _preset(name: str, quantisation: str) -> Architecture:
    found: Any = PRESETS.get(name.lower())
    if found is None:
        listed = f"there are {', '.join(sorted(PRESETS))}; or give a `shape`"
        raise Invalid(f"`preset`: there is no {name!r}", hint=suggestions.hint(name, PRESETS, listed))
    if quantisation.lower() not in found.weights_bytes:
        raise Invalid(
            f"`quantisation`: {name} has no {quantisation!r}", hint=f"it has {', '.join(found.weights_bytes)}"
        )
    architecture: Architecture = found.quantised(quantisation.lower())
    return architecture
