"""Plans hypothetical models and devices, by figures of the request in place of rows."""

from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mathrag.errors import Invalid
from mathrag.messages import make_hint
from services.orchestrator.scheduling.demands import Needs, drop_repeats
from shared.calls import Lane
from shared.fields import WHOLE
from shared.lease.memory import F16_BYTES, Q8_BYTES, Estimate, Hardware, estimate_memory
from shared.lease.plan import Demand, RetrievalDemand, Room
from shared.models.commands import PRESETS
from shared.params import Params
from shared.shapes import MIB, Architecture

MOST_MODELS = 4
MOST_DEVICES = 4
KV_BYTES = {"f16": F16_BYTES, "q8_0": Q8_BYTES}
TOKENS = {"judge": Params().judge.max_tokens, "generate": Params().generate.max_tokens}
"""Tokens of the longest answers, as of a job with default parameters."""

Count = Annotated[int, Field(gt=0, le=1 << 24), WHOLE]
Layers = Annotated[int, Field(gt=0, le=1 << 12), WHOLE]
Calls = Annotated[int, Field(ge=0, le=1 << 40), WHOLE]
Speed = Annotated[float, Field(ge=1, le=1e12)]
"""Speed in MiB per second."""
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]


class Shape(BaseModel):
    """The dimensions from which memory is estimated, as a GGUF header or a `config.json` has them."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    weights_mib: Annotated[float, Field(gt=0, le=1e9)]
    """Size of the weights in MiB."""
    layers: Layers
    """Number of transformer layers."""
    kv_heads: Layers
    """Number of key-value heads of a layer."""
    head_dim: Layers
    """Dimension of an attention head."""
    embedding: Count
    """Dimension of the embedding."""
    vocabulary: Count
    """Number of tokens in the vocabulary."""

    def architecture(self) -> Architecture:
        """Return the architecture in the form of the metadata readers."""
        rest = self.model_dump(exclude={"weights_mib"})
        return Architecture(weights_bytes=int(self.weights_mib * MIB), heads=self.kv_heads, trained_context=0, **rest)


class ModelWanted(BaseModel):
    """A model that is described by metadata: a preset with a quantisation, or a shape."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    role: Literal["judge", "generate"]
    """Role whose calls the model answers."""
    preset: Name | None = None
    """Name of the preset: qwen2.5-0.5b or qwen2.5-7b."""
    quantisation: Name = "q4_k_m"
    """Quantisation of the preset: q4_k_m, q8_0 or f16."""
    shape: Shape | None = None
    """Dimensions of the model; null with a preset."""
    name: Name | None = None
    """Name of the model in the plan."""
    context: Count = 2048
    """Context length of a slot in tokens."""
    parallel: Annotated[int, Field(gt=0, le=1024), WHOLE] = 8
    """Maximum number of slots."""
    kv: Literal["f16", "q8_0"] = "f16"
    """Type of the KV cache."""
    calls: Calls = 1000
    """Number of calls that the model answers."""
    tokens: Count | None = None
    """Length of a reply in tokens; null for the maximum length of a job with default parameters."""
    device: Name | None = None
    """Device that must hold the model; null for any."""

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if (self.preset is None) == (self.shape is None):
            raise ValueError("a model needs either a `preset` or a `shape`")
        return self

    @property
    def model(self) -> str:
        """Return a key that is equal for roles which one server process can answer: the same weights, slots and
        device.
        """
        return self.model_dump_json(exclude={"role", "calls", "tokens"})

    def combine(self, other: Self) -> Self:
        """Merge two roles of one model: the calls of both, and the longer answers, as in a job's plan."""
        first, _ = sorted((self, other), key=lambda each: list(Lane).index(Lane(each.role)))
        tokens = max(each.tokens or TOKENS[each.role] for each in (self, other))
        return first.model_copy(update={"calls": self.calls + other.calls, "tokens": tokens})

    def demand(self, number: int, hardware: Hardware, *, on_gpu: bool) -> Demand:
        """Return the demand for the plan.

        Raises:
            Invalid: the preset does not exist, or it lacks the quantisation.
        """
        if self.shape is not None:
            architecture = self.shape.architecture()
        else:
            name, quantisation = self.preset or "", self.quantisation
            preset: Any = PRESETS.get(name.lower())
            if preset is None:
                listed = f"use one of {', '.join(sorted(PRESETS))}, or give a `shape`"
                hint = make_hint(name, PRESETS, listed)
                raise Invalid(f"`preset`: unknown preset {name!r}", hint=hint)
            if quantisation.lower() not in preset.weights_bytes:
                hint = f"use one of {', '.join(preset.weights_bytes)}"
                raise Invalid(f"`quantisation`: {name} is not available as {quantisation!r}", hint=hint)
            architecture = preset.with_quantisation(quantisation.lower())
        weights, tokens = architecture.weights_mib, self.tokens or TOKENS[self.role]
        memory = estimate_memory(
            declared_mib=0,
            architecture=architecture,
            context=self.context,
            parallel=self.parallel,
            on_gpu=on_gpu,
            kv_bytes=KV_BYTES[self.kv],
        )
        return Demand(
            model_id=number,
            name=self.name or (f"{self.preset} {self.quantisation}" if self.preset else self.role),
            lane=Lane(self.role),
            memory=memory,
            parallel=self.parallel,
            context=self.context,
            calls=self.calls,
            call_s=hardware.call(weights, tokens=tokens, parallel=self.parallel, on_gpu=on_gpu),
            load_s=hardware.load(weights),
            shared=on_gpu,
            device=self.device,
        )


class DeviceWanted(BaseModel):
    """A device that replaces the configured ones."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    id: Name = "gpu:0"
    """Id of the device. If it begins with `cpu`, the plan counts no memory for a CUDA context, and fewer slots cost no
    time."""
    budget_mib: Count
    """Memory for models in MiB."""


class RetrievalWanted(BaseModel):
    """Retrieval that may run on the GPU, with its memory there and the duration of a search on either processor."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    mib: Count = 2355
    """Memory in MiB; the default is for FAISS's scratch memory and context, and a small embedder."""
    calls: Calls = 1000
    """Number of searches."""
    gpu_s: Annotated[float, Field(ge=0, le=1e6)]
    """Seconds of a search on the GPU."""
    cpu_s: Annotated[float, Field(ge=0, le=1e6)]
    """Seconds of a search on the CPU."""

    def retrieval(self) -> RetrievalDemand:
        gpu, cpu = (
            Estimate(value=value, source="assumed", detail="as requested") for value in (self.gpu_s, self.cpu_s)
        )
        return RetrievalDemand(mib=self.mib, calls=self.calls, gpu_s=gpu, cpu_s=cpu)


def make_demands(models: list[ModelWanted], hardware: Hardware, *, on_gpu: bool) -> list[Demand]:
    """Return the models in the order of the request; a model that is given for two roles is one model."""
    distinct: dict[str, ModelWanted] = {}
    for model in models:
        known = distinct.get(model.model)
        distinct[model.model] = known.combine(model) if known else model
    return [model.demand(number, hardware, on_gpu=on_gpu) for number, model in enumerate(distinct.values(), 1)]


class ReplacedModels(NamedTuple):
    """Holds the demands of a job after some of its models were replaced by hypothetical ones."""

    demands: list[Demand]
    order: tuple[int, ...]
    """Ids of the demands, in the order in which one question needs them."""


def replace_models(
    demands: list[Demand], needs: Needs, models: list[ModelWanted], hardware: Hardware, *, on_gpu: bool
) -> ReplacedModels:
    """Return `demands`, which belong to `needs`, with `models` in place of those of their roles.

    A model that answers two roles of a job gets the lane of the first; two roles of one model share one server.
    """
    by_lane = {Lane(model.role): model for model in models}
    ids: dict[str, int] = {}
    same: dict[int, int] = {}
    made: dict[int, Demand] = {}
    for demand in demands:
        model = by_lane.get(demand.lane)
        number, replacement = demand.model_id, demand
        if model is not None:
            number = ids.setdefault(model.model, demand.model_id)
            longest = model.model_copy(update={"tokens": model.tokens or needs.wanted[demand.model_id].tokens})
            replacement = longest.demand(number, hardware, on_gpu=on_gpu)
        calls = demand.calls + (made[number].calls if number in made else 0)
        made[number] = msgspec.structs.replace(replacement, calls=calls)
        same[demand.model_id] = number
    return ReplacedModels(list(made.values()), drop_repeats(same.get(model, model) for model in needs.order))


def make_rooms(devices: list[DeviceWanted]) -> list[Room]:
    """Return the devices, all empty.

    Raises:
        Invalid: two have the same name, or GPUs and CPUs are mixed.
    """
    names = [device.id for device in devices]
    if len(set(names)) < len(names):
        raise Invalid("`devices`: two have the same `id`", hint="give each device its own `id`")
    if len({on_gpu(name) for name in names}) > 1:
        raise Invalid("`devices`: a CPU and a GPU cannot be planned together", hint="send one request for each kind")
    return [Room(device=device.id, budget_mib=device.budget_mib) for device in devices]


def on_gpu(device: str) -> bool:
    """Return whether the device is a GPU, by its name."""
    return not device.startswith("cpu")
